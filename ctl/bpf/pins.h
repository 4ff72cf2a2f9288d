// SPDX-License-Identifier: GPL-2.0-only
// The bpffs directory of an instance: <kBpffs>/ftctl/<instance>/{maps,links}/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "util/result.h"

namespace ftctl::bpf {

/// What a pin under links/ holds, told by its name "<ifindex>-<kind>".
enum class PinKind {
    xdp,            ///< XDP link
    ingress,        ///< tcx link
    egress,         ///< tcx link
    clsact_ingress, ///< program of a clsact filter
    clsact_egress,  ///< program of a clsact filter
    clsact_qdisc,   ///< marker (a program): the clsact qdisc was made by us
};

struct LinkPin {
    std::uint32_t ifindex = 0;
    PinKind kind{};

    [[nodiscard]] std::string name() const;
    static std::optional<LinkPin> parse(std::string_view name);
};

/// What the names of tracepoint links' pins begin with; they count failed XDP transmissions, once for
/// the instance.
inline constexpr std::string_view kTracepointPin = "tp-";

/// Letters, digits, '_' and '-', at most 64 of them: it becomes a file name in bpffs.
Status check_instance_name(std::string_view instance);

/// Paths of one instance; default-constructed: nothing is pinned.
class PinDir {
  public:
    PinDir() = default;
    explicit PinDir(const std::string &instance);

    [[nodiscard]] bool enabled() const { return !root_.empty(); }
    [[nodiscard]] bool exists() const;
    [[nodiscard]] std::string maps() const { return root_ + "/maps"; }
    [[nodiscard]] std::string link(const std::string &name) const { return root_ + "/links/" + name; }

    /// Makes the directories; fine when they are there.
    [[nodiscard]] Status create() const;
    /// Names under links/, sorted.
    [[nodiscard]] std::vector<std::string> link_names() const;
    [[nodiscard]] std::vector<LinkPin> links() const;

    /// Pins `fd` under links/. A pin of that name is replaced in one step.
    [[nodiscard]] Status pin_link(const std::string &name, int fd) const;
    /// Unlinks links/<name>; fine when it is not there or nothing is pinned.
    void unpin_link(const std::string &name) const;

    /// Unlinks every pin and removes the directories; links whose last reference a pin was detach.
    /// The common parent goes when no other instance is left in it.
    [[nodiscard]] Status remove() const;

  private:
    std::string root_;
};

} // namespace ftctl::bpf
