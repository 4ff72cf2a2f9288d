// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/pins.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "bpf/datapath.h"
#include "ftctl/abi.h"

namespace ftctl::bpf {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<PinKind, std::string_view>, 6> kKinds = {{
    {PinKind::xdp, "xdp"},
    {PinKind::ingress, "ingress"},
    {PinKind::egress, "egress"},
    {PinKind::clsact_ingress, "clsact-ingress"},
    {PinKind::clsact_egress, "clsact-egress"},
    {PinKind::clsact_qdisc, "clsact-qdisc"},
}};

std::string parent_dir()
{
    return std::string(kBpffs) + "/ftctl";
}

std::vector<std::string> names_in(const std::string &dir)
{
    std::vector<std::string> names;
    std::error_code ec;
    for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec))
        names.push_back(it->path().filename().string());
    std::ranges::sort(names);
    return names;
}

Status remove_dir(const std::string &dir)
{
    if (rmdir(dir.c_str()) != 0 && errno != ENOENT)
        return fail_errno(fmt::format("remove {}", dir), errno);
    return {};
}

// One level: pins, no directories in them.
Status remove_pins_in(const std::string &dir)
{
    for (const std::string &name : names_in(dir)) {
        const std::string path = fmt::format("{}/{}", dir, name);
        if (unlink(path.c_str()) != 0 && errno != ENOENT)
            return fail_errno(fmt::format("remove pin {}", path), errno);
    }
    return remove_dir(dir);
}

} // namespace

std::string LinkPin::name() const
{
    const auto *entry = std::ranges::find(kKinds, kind, &std::pair<PinKind, std::string_view>::first);
    return fmt::format("{}-{}", ifindex, entry->second);
}

std::optional<LinkPin> LinkPin::parse(std::string_view name)
{
    LinkPin pin;
    const auto [rest, ec] = std::from_chars(name.data(), name.data() + name.size(), pin.ifindex);
    if (ec != std::errc() || pin.ifindex == 0 || pin.ifindex > FTCTL_MAX_IFINDEX)
        return std::nullopt;
    name.remove_prefix(static_cast<std::size_t>(rest - name.data()));
    if (!name.starts_with('-'))
        return std::nullopt;
    name.remove_prefix(1);
    const auto *entry = std::ranges::find(kKinds, name, &std::pair<PinKind, std::string_view>::second);
    if (entry == kKinds.end())
        return std::nullopt;
    pin.kind = entry->first;
    return pin;
}

Status check_instance_name(std::string_view instance)
{
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
               c == '-';
    };
    // bpffs takes no dots (bpf_lookup).
    if (instance.empty() || instance.size() > 64 || !std::ranges::all_of(instance, fits))
        return fail("instance name", fmt::format("'{}' cannot be a file name", instance),
                    "use up to 64 letters, digits, '_' and '-'", Code::usage);
    return {};
}

PinDir::PinDir(const std::string &instance) : root_(parent_dir() + "/" + instance) {}

bool PinDir::exists() const
{
    return enabled() && access(root_.c_str(), F_OK) == 0;
}

Status PinDir::create() const
{
    const std::array<std::string, 4> dirs = {parent_dir(), root_, maps(), root_ + "/links"};
    for (const std::string &dir : dirs) {
        if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST)
            return fail_errno(fmt::format("make directory {}", dir), errno);
    }
    return {};
}

std::vector<std::string> PinDir::link_names() const
{
    return enabled() ? names_in(root_ + "/links") : std::vector<std::string>{};
}

std::vector<LinkPin> PinDir::links() const
{
    std::vector<LinkPin> pins;
    for (const std::string &name : link_names()) {
        if (auto pin = LinkPin::parse(name))
            pins.push_back(*pin);
    }
    return pins;
}

Status PinDir::pin_link(const std::string &name, int fd) const
{
    if (!enabled())
        return {};
    const std::string path = link(name);
    const std::string fresh = path + "-new";
    unlink(fresh.c_str()); // left by a process that died between the two steps
    if (bpf_obj_pin(fd, fresh.c_str()) != 0)
        return fail_errno(fmt::format("pin {}", path), errno);
    if (rename(fresh.c_str(), path.c_str()) != 0) {
        const int err = errno;
        unlink(fresh.c_str());
        return fail_errno(fmt::format("pin {}", path), err);
    }
    return {};
}

void PinDir::unpin_link(const std::string &name) const
{
    if (enabled())
        unlink(link(name).c_str());
}

Status PinDir::remove() const
{
    if (!enabled())
        return {};
    // Programs first: without maps/ an instance counts as unfinished and is cleaned up at start.
    const std::array<std::string, 2> dirs = {root_ + "/links", maps()};
    for (const std::string &dir : dirs) {
        if (auto removed = remove_pins_in(dir); !removed)
            return removed;
    }
    if (auto removed = remove_dir(root_); !removed)
        return removed;
    rmdir(parent_dir().c_str()); // ENOTEMPTY while there are other instances
    return {};
}

} // namespace ftctl::bpf
