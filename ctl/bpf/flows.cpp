// SPDX-License-Identifier: GPL-2.0-only
// Flows: single entries, edits in place, and the walk over both maps.
#include "bpf/datapath_impl.h"

#include <algorithm>
#include <vector>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "bpf/flow_walk.h"

namespace ftctl::bpf {
namespace {

// flow4's key is how flow4t's begins.
static_assert(offsetof(ftctl_key4t, in) == 0);

MapId map_of(bool tunneled)
{
    return tunneled ? MapId::flow4t : MapId::flow4;
}

template <typename Key>
FlowEntry entry_of(const Key &key, const ftctl_flow &flow);

template <>
FlowEntry entry_of(const ftctl_key4 &key, const ftctl_flow &flow)
{
    FlowEntry entry;
    entry.key.in = key;
    entry.flow = flow;
    return entry;
}

template <>
FlowEntry entry_of(const ftctl_key4t &key, const ftctl_flow &flow)
{
    return {key, true, flow};
}

constexpr std::uint32_t kBatch = 1024;
// A bucket goes out whole or not at all (ENOSPC). Its length is the number of colliding keys; no
// honest hash comes near this.
constexpr std::uint32_t kBatchLimit = 1U << 20;

// true: to the end; false: the handler stopped it, or Error.
template <typename Key>
Result<bool> walk_in_batches(int fd, const std::function<bool(const FlowEntry &)> &handler)
{
    std::vector<Key> keys(kBatch);
    std::vector<ftctl_flow> flows(kBatch);
    std::uint32_t cursor = 0; // number of the bucket, for hash maps
    bool first = true;
    for (;;) {
        auto count = static_cast<std::uint32_t>(keys.size());
        std::uint32_t next = 0;
        const int rc = bpf_map_lookup_batch(fd, first ? nullptr : &cursor, &next, keys.data(), flows.data(),
                                            &count, nullptr);
        const int err = rc == 0 ? 0 : errno;
        if (err == ENOSPC && keys.size() < kBatchLimit) {
            keys.resize(keys.size() * 2);
            flows.resize(keys.size());
            continue;
        }
        if (err == EINTR)
            continue;
        if (err != 0 && err != ENOENT) // ENOENT: this was the last batch
            return fail_errno("list the flows", err);
        count = std::min(count, static_cast<std::uint32_t>(keys.size()));
        for (std::uint32_t i = 0; i < count; ++i) {
            if (!handler(entry_of(keys[i], flows[i])))
                return false;
        }
        if (err == ENOENT)
            return true;
        cursor = next;
        first = false;
    }
}

template <typename Key>
Result<bool> walk_by_key(int fd, std::uint32_t max_entries,
                         const std::function<bool(const FlowEntry &)> &handler)
{
    Key key{};
    if (bpf_map_get_next_key(fd, nullptr, &key) != 0) {
        if (errno == ENOENT)
            return true;
        return fail_errno("list the flows", errno);
    }
    // When `key` was deleted meanwhile the kernel begins again at the first one: hence a bound.
    for (std::uint64_t steps = 0; steps < 2ULL * max_entries; ++steps) {
        Key next{};
        const bool last = bpf_map_get_next_key(fd, &key, &next) != 0;
        ftctl_flow flow{};
        if (bpf_map_lookup_elem(fd, &key, &flow) == 0 && !handler(entry_of(key, flow)))
            return false;
        if (last)
            return true;
        key = next;
    }
    return true;
}

template <typename Key>
Result<bool> walk(int fd, std::uint32_t max_entries, const std::function<bool(const FlowEntry &)> &handler)
{
    auto done = walk_in_batches<Key>(fd, handler);
    // EINVAL, ENOTSUPP (524): no batch operations for this kind of map
    if (!done && (done.error().err == EINVAL || done.error().err == 524))
        return walk_by_key<Key>(fd, max_entries, handler);
    return done;
}

} // namespace

Status walk_flows_by_key(int fd, bool tunneled, std::uint32_t max_entries,
                         const std::function<bool(const FlowEntry &)> &handler)
{
    auto done = tunneled ? walk_by_key<ftctl_key4t>(fd, max_entries, handler)
                         : walk_by_key<ftctl_key4>(fd, max_entries, handler);
    if (!done)
        return tl::unexpected(done.error());
    return {};
}

Status DatapathImpl::flow_insert(const FlowEntry &entry)
{
    if (bpf_map_update_elem(maps_.fd(map_of(entry.tunneled)), &entry.key, &entry.flow, BPF_NOEXIST) != 0)
        return fail_errno("insert a flow", errno, errno == E2BIG ? "raise limits.flows" : "");
    return {};
}

Result<std::optional<ftctl_flow>> DatapathImpl::flow_lookup(const ftctl_key4t &key, bool tunneled)
{
    ftctl_flow flow{};
    if (bpf_map_lookup_elem(maps_.fd(map_of(tunneled)), &key, &flow) == 0)
        return flow;
    if (errno == ENOENT)
        return std::nullopt;
    return fail_errno("look up a flow", errno);
}

Result<std::optional<ftctl_flow>> DatapathImpl::flow_delete(const ftctl_key4t &key, bool tunneled)
{
    // In one step: between a lookup and a delete packets would be lost to the count.
    ftctl_flow flow{};
    if (bpf_map_lookup_and_delete_elem(maps_.fd(map_of(tunneled)), &key, &flow) == 0)
        return flow;
    if (errno == ENOENT)
        return std::nullopt;
    return fail_errno("remove a flow", errno);
}

Status DatapathImpl::flow_edit(const ftctl_flow_edit &edit)
{
    if (!flow_edit_) {
        auto program = load_flow_edit(maps_);
        if (!program)
            return tl::unexpected(program.error());
        flow_edit_ = std::move(*program);
    }
    ftctl_flow_edit ctx = edit; // the kernel copies the context back
    bpf_test_run_opts opts{};
    opts.sz = sizeof(opts);
    opts.ctx_in = &ctx;
    opts.ctx_size_in = sizeof(ctx);
    if (bpf_prog_test_run_opts(flow_edit_.get(), &opts) != 0)
        return fail_errno("change a flow", errno);
    if (const auto ret = static_cast<std::int32_t>(opts.retval); ret != 0)
        return fail_errno("change a flow", ret < 0 ? -ret : EINVAL);
    return {};
}

Status DatapathImpl::flow_each(const std::function<bool(const FlowEntry &)> &handler)
{
    auto plain = walk<ftctl_key4>(maps_.fd(MapId::flow4), maps_.flow_entries(), handler);
    if (!plain)
        return tl::unexpected(plain.error());
    if (!*plain)
        return {};
    auto tunneled = walk<ftctl_key4t>(maps_.fd(MapId::flow4t), maps_.flow_entries(), handler);
    if (!tunneled)
        return tl::unexpected(tunneled.error());
    return {};
}

} // namespace ftctl::bpf
