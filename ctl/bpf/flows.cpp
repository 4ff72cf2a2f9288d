// SPDX-License-Identifier: GPL-2.0-only
// Flows: single entries, edits in place, and the walk over all maps.
#include "bpf/datapath_impl.h"

#include <algorithm>
#include <array>
#include <vector>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "bpf/flow_walk.h"
#include "util/clock.h"

namespace ftctl::bpf {
namespace {

constexpr std::array kPlaced = {FTCTL_SHAPE_4, FTCTL_SHAPE_4T}; // where their hash says
constexpr const char *kInsert = "insert a flow";
constexpr const char *kFullHint = "raise limits.flows";

// One map's key and value, to and from a FlowEntry.
ftctl_tuple tuple_of(const ftctl_key6 &key)
{
    ftctl_tuple tuple{};
    tuple.src = key.src;
    tuple.dst = key.dst;
    tuple.sport = key.sport;
    tuple.dport = key.dport;
    tuple.iif_proto = key.iif_proto;
    tuple.family = 6;
    return tuple;
}

FlowEntry entry_of(const ftctl_key6 &key, const ftctl_flow6 &flow)
{
    return {tuple_of(key), flow.flow, flow.new_src, flow.new_dst};
}

FlowEntry entry_of(const ftctl_keyx & /*key*/, const ftctl_flowx &flow)
{
    return {flow.tuple, flow.flow.flow, flow.flow.new_src, flow.flow.new_dst};
}

// What bpf(2) is given: the key and the value in their hash map's own layout.
struct Packed {
    Packed(const ftctl_tuple &tuple, ftctl_shape map) : shape(map)
    {
        if (shape == FTCTL_SHAPE_6) {
            ftctl_key6_of(&tuple, &key.k6);
        } else {
            key.kx.digest = ftctl_tuple_digest(&tuple);
            value.tuple = tuple;
        }
    }
    /// After `value` was read from the map: is it the flow of that tuple?
    [[nodiscard]] bool is_of(const ftctl_tuple &tuple) const
    {
        return shape != FTCTL_SHAPE_X || std::memcmp(&value.tuple, &tuple, sizeof(tuple)) == 0;
    }
    [[nodiscard]] FlowEntry entry(const ftctl_tuple &tuple) const
    {
        return {tuple, value.flow.flow, value.flow.new_src, value.flow.new_dst};
    }

    ftctl_shape shape;
    union {
        ftctl_key6 k6;
        ftctl_keyx kx;
    } key{};
    ftctl_flowx value{}; // ftctl_flow6 is how it begins, and ftctl_flow how that does
};
static_assert(offsetof(ftctl_flow6, flow) == 0 && offsetof(ftctl_flowx, flow) == 0);

constexpr std::uint32_t kBatch = 1024;
// A bucket goes out whole or not at all (ENOSPC). Its length is the number of colliding keys; no
// honest hash comes near this.
constexpr std::uint32_t kBatchLimit = 1U << 20;

// true: to the end; false: the handler stopped it, or Error.
template <typename Key, typename Flow>
Result<bool> walk_in_batches(int fd, const std::function<bool(const FlowEntry &)> &handler)
{
    std::vector<Key> keys(kBatch);
    std::vector<Flow> flows(kBatch);
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

template <typename Key, typename Flow>
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
        Flow flow{};
        if (bpf_map_lookup_elem(fd, &key, &flow) == 0 && !handler(entry_of(key, flow)))
            return false;
        if (last)
            return true;
        key = next;
    }
    return true;
}

template <typename Key, typename Flow>
Result<bool> walk(int fd, std::uint32_t max_entries, const std::function<bool(const FlowEntry &)> &handler)
{
    if (fd < 0) // there was no such flow yet
        return true;
    auto done = walk_in_batches<Key, Flow>(fd, handler);
    // EINVAL, ENOTSUPP (524): no batch operations for this kind of map
    if (!done && (done.error().err == EINVAL || done.error().err == 524))
        return walk_by_key<Key, Flow>(fd, max_entries, handler);
    return done;
}

} // namespace

Status walk_flows_by_key(int fd, ftctl_shape shape, std::uint32_t max_entries,
                         const std::function<bool(const FlowEntry &)> &handler)
{
    auto done = shape == FTCTL_SHAPE_6 ? walk_by_key<ftctl_key6, ftctl_flow6>(fd, max_entries, handler)
                                       : walk_by_key<ftctl_keyx, ftctl_flowx>(fd, max_entries, handler);
    if (!done)
        return tl::unexpected(done.error());
    return {};
}

// Of the flows that an earlier daemon left nothing is known but the bits, which stay as they are until one
// changes.
Status DatapathImpl::need_index()
{
    if (bloom_)
        return {};
    FlowBloom bloom(maps_.config(), maps_.flow_bloom(), maps_.flow_entries());
    std::array<std::uint32_t, FTCTL_SHAPES> flows{};
    const auto count = [&](const FlowEntry &entry) {
        bloom.count(entry.key);
        ++flows.at(ftctl_shape_of(&entry.key));
        return true;
    };
    if (auto walked = flow_each(count); !walked)
        return walked;
    for (const ftctl_shape shape : kPlaced) {
        if (FlowTable *table = maps_.flow_table(shape); table != nullptr) {
            table->recount(monotonic_ns());
            table->set_crowded_out(flows.at(shape) - table->size());
        }
    }
    bloom_ = std::move(bloom);
    bloom_.show();
    return {};
}

Status DatapathImpl::flow_insert_hashed(const FlowEntry &entry, ftctl_shape shape)
{
    Packed packed(entry.key, shape);
    packed.value.flow = {entry.flow, entry.new_src, entry.new_dst};
    if (bpf_map_update_elem(maps_.flow_fd(shape), &packed.key, &packed.value, BPF_NOEXIST) != 0)
        return fail_errno(kInsert, errno, errno == E2BIG ? kFullHint : "");
    return {};
}

Status DatapathImpl::flow_insert_placed(FlowTable &table, const FlowEntry &entry)
{
    auto found = flow_lookup(entry.key);
    if (!found)
        return tl::unexpected(found.error());
    if (*found || !FlowTable::can_hold(entry.key))
        return fail_errno(kInsert, *found ? EEXIST : EINVAL);
    if (table.size() + table.crowded_out() >= maps_.flow_entries())
        return fail_errno(kInsert, E2BIG, kFullHint);
    if (table.insert(entry.key, entry.flow, monotonic_ns()))
        return {};
    if (auto made = maps_.need_flow_map(FTCTL_SHAPE_X); !made)
        return made;
    table.set_crowded_out(table.crowded_out() + 1);
    auto done = flow_insert_hashed(entry, FTCTL_SHAPE_X);
    if (!done)
        table.set_crowded_out(table.crowded_out() - 1);
    return done;
}

Status DatapathImpl::flow_insert(const FlowEntry &entry)
{
    const ftctl_shape shape = ftctl_shape_of(&entry.key);
    if (auto known = need_index(); !known)
        return known;
    if (auto made = maps_.need_flow_map(shape); !made)
        return made;
    FlowTable *table = maps_.flow_table(shape);
    bloom_.add(entry.key);
    auto done = table != nullptr ? flow_insert_placed(*table, entry) : flow_insert_hashed(entry, shape);
    if (!done)
        bloom_.remove(entry.key);
    return done;
}

Result<std::optional<FlowEntry>> DatapathImpl::flow_lookup_hashed(const ftctl_tuple &key, ftctl_shape shape)
{
    Packed packed(key, shape);
    const int fd = maps_.flow_fd(shape);
    if (fd < 0)
        return std::nullopt;
    if (bpf_map_lookup_elem(fd, &packed.key, &packed.value) == 0)
        return packed.is_of(key) ? std::optional(packed.entry(key)) : std::nullopt;
    if (errno == ENOENT)
        return std::nullopt;
    return fail_errno("look up a flow", errno);
}

Result<std::optional<FlowEntry>> DatapathImpl::flow_lookup(const ftctl_tuple &key)
{
    const ftctl_shape shape = ftctl_shape_of(&key);
    const FlowTable *table = maps_.flow_table(shape);
    if (table == nullptr)
        return flow_lookup_hashed(key, shape);
    if (const ftctl_flow *flow = table->find(key); flow != nullptr)
        return FlowEntry{key, *flow, {}, {}};
    return flow_lookup_hashed(key, FTCTL_SHAPE_X);
}

Result<std::optional<FlowEntry>> DatapathImpl::flow_delete_hashed(const ftctl_tuple &key, ftctl_shape shape)
{
    Packed packed(key, shape);
    const int fd = maps_.flow_fd(shape);
    if (fd < 0)
        return std::nullopt;
    if (shape == FTCTL_SHAPE_X) {
        // another tuple's, with the same digest, stays
        if (auto found = flow_lookup_hashed(key, shape); !found || !*found)
            return found;
    }
    // In one step: between a lookup and a delete packets would be lost to the count.
    if (bpf_map_lookup_and_delete_elem(fd, &packed.key, &packed.value) == 0)
        return packed.entry(key);
    if (errno == ENOENT)
        return std::nullopt;
    return fail_errno("remove a flow", errno);
}

Result<std::optional<FlowEntry>> DatapathImpl::flow_delete(const ftctl_tuple &key)
{
    const ftctl_shape shape = ftctl_shape_of(&key);
    if (auto known = need_index(); !known)
        return tl::unexpected(known.error());
    FlowTable *table = maps_.flow_table(shape);
    if (table != nullptr) {
        if (const auto flow = table->remove(key, monotonic_ns())) {
            bloom_.remove(key);
            return FlowEntry{key, *flow, {}, {}};
        }
    }
    auto gone = flow_delete_hashed(key, table != nullptr ? FTCTL_SHAPE_X : shape);
    if (gone && *gone) {
        bloom_.remove(key);
        if (table != nullptr)
            table->set_crowded_out(table->crowded_out() - 1);
    }
    return gone;
}

Status DatapathImpl::need_edit()
{
    if (edit_.flow_edit)
        return {};
    auto programs = load_edit(maps_);
    if (!programs)
        return tl::unexpected(programs.error());
    edit_ = std::move(*programs);
    return {};
}

// The length of a jiffy is the resolution of the coarse clock (KTIME_LOW_RES).
Status DatapathImpl::set_clock()
{
    if (auto loaded = need_edit(); !loaded)
        return loaded;
    timespec tick{};
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) != 0 || tick.tv_sec != 0)
        return fail_errno("set the clock of the datapath", errno);
    maps_.config().tick_ns = static_cast<std::uint32_t>(tick.tv_nsec);
    if (run_clock_set(edit_.clock_set.get()) != 0)
        return fail_errno("set the clock of the datapath", errno);
    return {};
}

Status DatapathImpl::flow_edit(const ftctl_flow_edit &edit)
{
    if (auto loaded = need_edit(); !loaded)
        return loaded;
    ftctl_flow_edit ctx = edit; // the kernel copies the context back
    bpf_test_run_opts opts{};
    opts.sz = sizeof(opts);
    opts.ctx_in = &ctx;
    opts.ctx_size_in = sizeof(ctx);
    if (bpf_prog_test_run_opts(edit_.flow_edit.get(), &opts) != 0)
        return fail_errno("change a flow", errno);
    if (const auto ret = static_cast<std::int32_t>(opts.retval); ret != 0)
        return fail_errno("change a flow", ret < 0 ? -ret : EINVAL);
    return {};
}

Status DatapathImpl::flow_each(const std::function<bool(const FlowEntry &)> &handler)
{
    const std::uint32_t entries = maps_.flow_entries();
    const auto in = [this](ftctl_shape shape) { return maps_.flow_fd(shape); };
    const auto placed = [&](const ftctl_tuple &key, const ftctl_flow &flow) {
        return handler({key, flow, {}, {}});
    };
    Result<bool> more = true;
    for (const ftctl_shape shape : kPlaced) {
        const FlowTable *table = maps_.flow_table(shape);
        more = *more && (table == nullptr || table->each(placed));
    }
    if (more && *more)
        more = walk<ftctl_key6, ftctl_flow6>(in(FTCTL_SHAPE_6), entries, handler);
    if (more && *more)
        more = walk<ftctl_keyx, ftctl_flowx>(in(FTCTL_SHAPE_X), entries, handler);
    if (!more)
        return tl::unexpected(more.error());
    return {};
}

} // namespace ftctl::bpf
