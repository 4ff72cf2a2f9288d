// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/maps.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string_view>
#include <utility>

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "bpf/flow_bloom.h"

namespace ftctl::bpf {
namespace {

constexpr std::uint32_t kU32 = sizeof(std::uint32_t);
// enum values and macros of linux/bpf.h are of several types; a table wants one.
constexpr std::uint32_t kMmapable = BPF_F_MMAPABLE;
constexpr std::uint32_t kNoPrealloc = BPF_F_NO_PREALLOC;
constexpr std::uint32_t kAnySize = BPF_F_INNER_MAP;
constexpr std::uint32_t kEgressDevices = 256;

// Not every machine has tunnels, IPv6 or tags, and the buckets alone are 16 bytes for each entry there could
// be: these maps are made when the first such flow comes, and their entries as they are needed.
constexpr MapSpec kFlow4t = {"flow4t", BPF_MAP_TYPE_ARRAY,  kU32, sizeof(ftctl_flow4t),
                             0,        kMmapable | kAnySize};
constexpr MapSpec kFlow6 = {"flow6", BPF_MAP_TYPE_HASH, sizeof(ftctl_key6), sizeof(ftctl_flow6),
                            0,       kNoPrealloc};
constexpr MapSpec kFlowx = {"flowx", BPF_MAP_TYPE_HASH, sizeof(ftctl_keyx), sizeof(ftctl_flowx),
                            0,       kNoPrealloc};

// The early filter's maps are made with each rule set; what holds them has room for two sets.
constexpr std::uint32_t kFilterSets = 2;
constexpr MapSpec kFilterPrefixes = {
    "filter_prefix", BPF_MAP_TYPE_LPM_TRIE, sizeof(ftctl_filter_key), sizeof(ftctl_filter_hit), 0,
    kNoPrealloc};
constexpr MapSpec kFilterSet = {"filter_set", BPF_MAP_TYPE_ARRAY, kU32, sizeof(ftctl_filter_set), 1,
                                kMmapable};
constexpr MapSpec kFilterCounts = {
    "filter_count", BPF_MAP_TYPE_ARRAY, kU32, sizeof(ftctl_filter_count), 0, kMmapable | kAnySize};
constexpr MapSpec kFilterRules = {"filter_rule",       BPF_MAP_TYPE_ARRAY, kU32, sizeof(ftctl_filter_rule), 0,
                                  kMmapable | kAnySize};

constexpr std::array<MapSpec, kMapCount> kSpecs = {{
    {"config", BPF_MAP_TYPE_ARRAY, kU32, sizeof(ftctl_config), 1, kMmapable},
    {"paths", BPF_MAP_TYPE_ARRAY, kU32, sizeof(ftctl_path), FTCTL_MAX_PATHS, kMmapable},
    {"slots", BPF_MAP_TYPE_ARRAY, kU32, sizeof(ftctl_slot), FTCTL_MAX_SLOTS, kMmapable},
    {"stats", BPF_MAP_TYPE_PERCPU_ARRAY, kU32, sizeof(ftctl_stats), FTCTL_MAX_SLOTS, 0},
    {"flow4", BPF_MAP_TYPE_ARRAY, kU32, sizeof(ftctl_flow4), 0, kMmapable},
    {"outer_flow4t", BPF_MAP_TYPE_ARRAY_OF_MAPS, kU32, kU32, 1, 0, &kFlow4t},
    {"outer_flow6", BPF_MAP_TYPE_ARRAY_OF_MAPS, kU32, kU32, 1, 0, &kFlow6},
    {"outer_flowx", BPF_MAP_TYPE_ARRAY_OF_MAPS, kU32, kU32, 1, 0, &kFlowx},
    {"flow_bloom", BPF_MAP_TYPE_ARRAY, kU32, sizeof(std::uint64_t), 0, kMmapable},
    {"samples", BPF_MAP_TYPE_LRU_HASH, sizeof(ftctl_sample_key), sizeof(ftctl_sample), FTCTL_MAX_SAMPLES, 0},
    {"events", BPF_MAP_TYPE_RINGBUF, 0, 0, FTCTL_EVENT_RING_BYTES, 0},
    {"egress", BPF_MAP_TYPE_DEVMAP_HASH, kU32, kU32, kEgressDevices, 0},
    // Ingress of one device leaves word here for egress of another (struct tc_scratch in bpf/).
    {"scratch", BPF_MAP_TYPE_PERCPU_ARRAY, kU32, kU32, 1, 0},
    {"filter_prefixes", BPF_MAP_TYPE_ARRAY_OF_MAPS, kU32, kU32, kFilterSets, 0, &kFilterPrefixes},
    {"filter_sets", BPF_MAP_TYPE_ARRAY_OF_MAPS, kU32, kU32, kFilterSets, 0, &kFilterSet},
    {"filter_counts", BPF_MAP_TYPE_ARRAY_OF_MAPS, kU32, kU32, kFilterSets, 0, &kFilterCounts},
    {"filter_rules", BPF_MAP_TYPE_ARRAY_OF_MAPS, kU32, kU32, kFilterSets, 0, &kFilterRules},
    {"broadcasts", BPF_MAP_TYPE_HASH, sizeof(ftctl_broadcast), kU32, FTCTL_MAX_BROADCASTS, kNoPrealloc},
}};

constexpr std::array<std::pair<ftctl_shape, MapId>, 3> kOuterFlows = {{{FTCTL_SHAPE_4T, MapId::outer_flow4t},
                                                                       {FTCTL_SHAPE_6, MapId::outer_flow6},
                                                                       {FTCTL_SHAPE_X, MapId::outer_flowx}}};

const char *const kMemoryHint = "the maps need memory in proportion to limits.flows and filter rules; lower "
                                "them, or raise the memory limit";

tl::unexpected<Error> misfit(const char *name, std::string why)
{
    return fail(fmt::format("open pinned map {}", name), std::move(why), {}, Code::partial);
}

// Sizes are compared before anything is read: a map of another layout is not ours to interpret.
Status check_pinned(const MapSpec &spec, int fd, std::uint32_t &entries)
{
    bpf_map_info info{};
    std::uint32_t len = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &len) != 0)
        return misfit(spec.name, std::strerror(errno));
    if (info.type != static_cast<std::uint32_t>(spec.type) || info.key_size != spec.key_size ||
        info.value_size != spec.value_size ||
        (spec.max_entries != 0 && info.max_entries != spec.max_entries) ||
        (info.map_flags & (kMmapable | kNoPrealloc | kAnySize)) != spec.flags)
        return misfit(spec.name, "the layout is that of another version of ftctl");
    entries = info.max_entries;
    return {};
}

Result<Fd> get_pinned(const std::string &path, const char *name)
{
    Fd fd(bpf_obj_get(path.c_str()));
    if (fd)
        return fd;
    const int err = errno;
    auto error = fail_errno(fmt::format("open pinned map {}", name), err);
    // EPERM must not look like leftovers, which would be removed.
    if (err == ENOENT)
        error.value().code = Code::partial;
    return error;
}

// The kernel gives a hash map as many buckets as it has entries, rounded up to a power of two. limits.flows
// is mostly one, so that a full map would have one entry in each bucket and a packet would look at one and a
// half of them, each out of memory. One entry more doubles the buckets: one and a quarter, for at most 8 MiB.
constexpr std::uint32_t kMostEntriesWithMoreBuckets = 1U << 19;

std::uint32_t flow_map_size(std::uint32_t flow_entries)
{
    return flow_entries <= kMostEntriesWithMoreBuckets ? flow_entries + 1 : flow_entries;
}

// Of a map whose spec leaves it open.
std::uint32_t entries_of(MapId id, std::uint32_t flow_entries)
{
    return id == MapId::flow_bloom ? FlowBloom::map_entries(flow_entries) : flow_table_entries(flow_entries);
}

std::size_t page_rounded(std::size_t bytes)
{
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

} // namespace

std::string_view shared_name(const bpf_map *map)
{
    constexpr std::string_view kVariable = FTCTL_VARIABLE;
    std::string_view name = bpf_map__name(map);
    if (name.starts_with(kVariable))
        name.remove_prefix(kVariable.size());
    return name;
}

const MapSpec &map_spec(MapId id)
{
    return kSpecs[static_cast<std::size_t>(id)];
}

Result<Fd> make_map(const MapSpec &spec, std::uint32_t entries)
{
    bpf_map_create_opts opts{};
    opts.sz = sizeof(opts);
    opts.map_flags = spec.flags;
    Fd like;
    if (spec.inner != nullptr) {
        auto inner = make_map(*spec.inner, 1);
        if (!inner)
            return inner;
        like = std::move(*inner);
        opts.inner_map_fd = static_cast<std::uint32_t>(like.get());
    }
    if (spec.max_entries != 0)
        entries = spec.max_entries;
    Fd fd(bpf_map_create(spec.type, spec.name, spec.key_size, spec.value_size, entries, &opts));
    if (!fd) {
        const int err = errno;
        return fail_errno(fmt::format("make map {}", spec.name), err,
                          err == ENOMEM  ? kMemoryHint
                          : err == EPERM ? "run as root (CAP_BPF)"
                                         : "");
    }
    return fd;
}

Result<Fd> inner_map(int outer, std::uint32_t index, const std::string &what)
{
    std::uint32_t number = 0;
    if (bpf_map_lookup_elem(outer, &index, &number) != 0)
        return fail_errno(what, errno);
    Fd fd(bpf_map_get_fd_by_id(number));
    if (!fd)
        return fail_errno(what, errno);
    return fd;
}

Mapping::Mapping(Mapping &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0))
{
}

Mapping &Mapping::operator=(Mapping &&other) noexcept
{
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

Mapping::~Mapping()
{
    if (data_ != nullptr)
        munmap(data_, bytes_);
}

Result<Mapping> Mapping::map(int fd, std::size_t bytes, const char *name)
{
    Mapping mapping;
    bytes = page_rounded(bytes);
    void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return fail_errno(fmt::format("map {} into memory", name), errno);
    mapping.data_ = data;
    mapping.bytes_ = bytes;
    return mapping;
}

Result<Maps> Maps::create(const DatapathLimits &limits)
{
    // Two flows each; hash maps round buckets up to a power of two, which must stay below 2^31.
    if (limits.flows == 0 || limits.flows > (1U << 29))
        return fail("make the maps", fmt::format("limits.flows is {}", limits.flows),
                    "use a value from 1 to 536870912", Code::usage);
    Maps maps;
    maps.flow_entries_ = limits.flows * 2;
    for (std::size_t i = 0; i < kMapCount; ++i) {
        const MapSpec &spec = kSpecs[i];
        auto fd = make_map(spec, entries_of(static_cast<MapId>(i), maps.flow_entries_));
        if (!fd)
            return tl::unexpected(fd.error());
        maps.fds_[i] = std::move(*fd);
    }
    if (auto mapped = maps.map_memory(); !mapped)
        return tl::unexpected(mapped.error());
    std::random_device random;
    std::uniform_int_distribution<std::uint64_t> any(1, std::numeric_limits<std::uint64_t>::max());
    maps.config().abi = FTCTL_ABI;
    maps.config().instance = any(random);
    maps.config().netns_cookie = netns_cookie();
    return maps;
}

Result<Maps> Maps::open(const std::string &dir)
{
    Maps maps;
    for (std::size_t i = 0; i < kMapCount; ++i) {
        const MapSpec &spec = kSpecs[i];
        auto fd = get_pinned(fmt::format("{}/{}", dir, spec.name), spec.name);
        if (!fd) {
            // config comes first here and is pinned last: without it nothing was ever finished
            if (i == 0 && fd.error().err == ENOENT)
                fd.error().code = Code::not_running;
            return tl::unexpected(fd.error());
        }
        std::uint32_t entries = 0;
        if (auto fits = check_pinned(spec, fd->get(), entries); !fits)
            return tl::unexpected(fits.error());
        if (i == static_cast<std::size_t>(MapId::flow4))
            maps.flow_entries_ = flow_table_flows(entries);
        else if (spec.max_entries == 0 && entries != entries_of(static_cast<MapId>(i), maps.flow_entries_))
            return misfit(spec.name, "its size is not that of the flow maps");
        maps.fds_[i] = std::move(*fd);
        if (i == 0) {
            // before any other map is looked at
            auto config = Mapping::map(maps.fds_[0].get(), sizeof(ftctl_config), "config");
            if (!config)
                return tl::unexpected(config.error());
            const std::uint32_t abi = static_cast<const ftctl_config *>(config->data())->abi;
            if (abi != FTCTL_ABI)
                return misfit(spec.name, fmt::format("ABI {} where {} is needed", abi, FTCTL_ABI));
        }
    }
    if (auto opened = maps.open_flow_maps(); !opened)
        return tl::unexpected(opened.error());
    if (auto mapped = maps.map_memory(); !mapped)
        return tl::unexpected(mapped.error());
    return maps;
}

Status Maps::open_flow_maps()
{
    for (const auto &[shape, outer] : kOuterFlows) {
        const MapSpec &spec = *map_spec(outer).inner;
        auto inner = inner_map(fd(outer), 0, fmt::format("open map {}", spec.name));
        if (!inner && inner.error().err == ENOENT)
            continue;
        if (!inner)
            return tl::unexpected(inner.error());
        std::uint32_t entries = 0;
        if (auto fits = check_pinned(spec, inner->get(), entries); !fits)
            return fits;
        if (entries != flow_map_entries(shape))
            return misfit(spec.name, "flow maps of different capacity");
        if (auto taken = take_flow_map(shape, std::move(*inner)); !taken)
            return taken;
    }
    return {};
}

std::uint32_t Maps::flow_map_entries(ftctl_shape shape) const
{
    return shape == FTCTL_SHAPE_4T ? flow4t_entries() : flow_map_size(flow_entries_);
}

Status Maps::take_flow_map(ftctl_shape shape, Fd map)
{
    if (shape == FTCTL_SHAPE_4T) {
        auto memory = Mapping::map(map.get(), flow4t_entries() * sizeof(ftctl_flow4t), kFlow4t.name);
        if (!memory)
            return tl::unexpected(memory.error());
        flow4t_ = std::move(*memory);
        tables_.at(shape) = std::make_unique<FlowTableOf<ftctl_flow4t>>(
            static_cast<ftctl_flow4t *>(flow4t_.data()), flow4t_entries());
    }
    inner_.at(shape) = std::move(map);
    return {};
}

int Maps::flow_fd(ftctl_shape shape) const
{
    return inner_.at(shape).get();
}

Status Maps::need_flow_map(ftctl_shape shape)
{
    if (shape == FTCTL_SHAPE_4 || flow_fd(shape) >= 0)
        return {};
    const auto *outer = std::ranges::find(kOuterFlows, shape, &std::pair<ftctl_shape, MapId>::first);
    auto made = make_map(*map_spec(outer->second).inner, flow_map_entries(shape));
    if (!made)
        return tl::unexpected(made.error());
    const std::uint32_t first = 0;
    const int inner = made->get();
    if (bpf_map_update_elem(fd(outer->second), &first, &inner, BPF_ANY) != 0)
        return fail_errno(fmt::format("put map {} into {}", map_spec(outer->second).inner->name,
                                      map_spec(outer->second).name),
                          errno);
    return take_flow_map(shape, std::move(*made));
}

Status Maps::map_memory()
{
    const std::array<std::pair<MapId, Mapping *>, 5> mapped = {{{MapId::config, &config_},
                                                                {MapId::paths, &paths_},
                                                                {MapId::slots, &slots_},
                                                                {MapId::flow4, &flow4_},
                                                                {MapId::flow_bloom, &bloom_}}};
    for (const auto &[id, mapping] : mapped) {
        const MapSpec &spec = map_spec(id);
        const std::size_t entries = spec.max_entries != 0 ? spec.max_entries : entries_of(id, flow_entries_);
        auto made = Mapping::map(fd(id), spec.value_size * entries, spec.name);
        if (!made)
            return tl::unexpected(made.error());
        *mapping = std::move(*made);
    }
    tables_.at(FTCTL_SHAPE_4) = std::make_unique<FlowTableOf<ftctl_flow4>>(
        static_cast<ftctl_flow4 *>(flow4_.data()), flow4_entries());
    return {};
}

Status Maps::pin(const std::string &dir) const
{
    for (std::size_t i = kMapCount; i > 0; --i) {
        const std::string path = fmt::format("{}/{}", dir, kSpecs[i - 1].name);
        if (bpf_obj_pin(fds_[i - 1].get(), path.c_str()) != 0)
            return fail_errno(fmt::format("pin map at {}", path), errno);
    }
    return {};
}

Status Maps::reuse(bpf_object *object, bool dry) const
{
    bpf_map *map = nullptr;
    bpf_object__for_each_map(map, object)
    {
        const std::string_view name = shared_name(map);
        const auto *spec = std::ranges::find_if(kSpecs, [&](const MapSpec &s) { return name == s.name; });
        if (spec == kSpecs.end())
            continue; // read-only data: one for each program instance
        // Both definitions are built from the same tree; this catches a build that mixes two.
        if (bpf_map__type(map) != spec->type || bpf_map__key_size(map) != spec->key_size ||
            bpf_map__value_size(map) != spec->value_size)
            return fail("load the datapath",
                        fmt::format("map {} is defined otherwise in the BPF object", spec->name),
                        "this is a fault of the build; build ftctl again from a clean tree");
        const auto index = static_cast<std::size_t>(spec - kSpecs.begin());
        if (dry && index == static_cast<std::size_t>(MapId::scratch))
            continue;
        if (const int err = bpf_map__reuse_fd(map, fds_[index].get()); err != 0)
            return fail_errno(fmt::format("load the datapath: use map {}", spec->name), -err);
    }
    return {};
}

std::uint64_t netns_cookie()
{
    // SO_NETNS_COOKIE is Linux 5.14; the headers may be older.
    constexpr int kNetnsCookie = 71;
    const Fd sock(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    std::uint64_t cookie = 0;
    socklen_t len = sizeof(cookie);
    if (!sock || getsockopt(sock.get(), SOL_SOCKET, kNetnsCookie, &cookie, &len) != 0)
        return 0;
    return cookie;
}

} // namespace ftctl::bpf
