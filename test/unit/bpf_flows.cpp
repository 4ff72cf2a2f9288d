// SPDX-License-Identifier: GPL-2.0-only
// The flow maps through the Datapath, on the running kernel.
#include <map>
#include <set>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <unistd.h>

#include "bpf/datapath_impl.h"
#include "bpf/flow_walk.h"
#include "bpf_live.h"

using namespace ftctl;
using namespace ftctl::test;

namespace {

constexpr ftctl_shape kShapes[] = {FTCTL_SHAPE_4, FTCTL_SHAPE_4T, FTCTL_SHAPE_6, FTCTL_SHAPE_X};

FlowEntry entry(std::uint32_t number, ftctl_shape shape = FTCTL_SHAPE_4)
{
    FlowEntry e;
    const bool v6 = shape == FTCTL_SHAPE_6 || shape == FTCTL_SHAPE_X;
    e.key.family = v6 ? 6 : 4;
    e.key.src.w[0] = htonl(0x0a000000U + number);
    e.key.dst.w[0] = htonl(0xc6336401U);
    e.key.sport = htons(4000);
    e.key.dport = htons(80);
    e.key.iif_proto = ftctl_iif_proto(3, IPPROTO_TCP);
    if (v6) {
        e.key.src.w[3] = number;
        e.new_src.w[2] = number;
        e.new_dst.w[1] = number;
    }
    if (shape == FTCTL_SHAPE_4T) {
        e.key.tunnel = FTCTL_TUNNEL_IPV4;
        e.key.outer_src.w[0] = htonl(0xcb007101U);
        e.key.outer_dst.w[0] = htonl(0xcb007102U);
    } else if (shape == FTCTL_SHAPE_X) {
        e.key.tunnel = FTCTL_TUNNEL_IPV6;
        e.key.outer_src.w[3] = 1;
        e.key.outer_dst.w[3] = 2;
        e.key.vlan[0] = {htons(0x8100), htons(10)};
    }
    e.flow.id = number;
    e.flow.path = 5;
    return e;
}

std::unique_ptr<Datapath> private_maps(std::uint32_t flows)
{
    auto datapath = Datapath::create_private({flows});
    INFO((datapath ? std::string() : datapath.error().what + ": " + datapath.error().why));
    REQUIRE(datapath);
    return std::move(*datapath);
}

} // namespace

TEST_CASE("a flow is inserted, found, changed in place and removed", "[live][bpf]")
{
    const ScratchNamespace netns;
    const auto datapath = private_maps(64);
    CHECK(datapath->max_flows() == 64);
    CHECK(datapath->config().abi == FTCTL_ABI);
    CHECK(datapath->config().instance != 0);
    for (const ftctl_shape shape : kShapes) {
        const FlowEntry e = entry(1, shape);
        CHECK(ftctl_shape_of(&e.key) == shape);
        REQUIRE(datapath->flow_insert(e));
        const auto again = datapath->flow_insert(e);
        REQUIRE_FALSE(again);
        CHECK(again.error().err == EEXIST);

        ftctl_flow_edit edit{};
        edit.key = e.key;
        edit.what = FTCTL_EDIT_STATE | FTCTL_EDIT_PATH | FTCTL_EDIT_TRICKLE;
        edit.state = FTCTL_FLOW_CLOSING;
        edit.path = 9;
        edit.trickle_s = 10;
        REQUIRE(datapath->flow_edit(edit));
        auto found = datapath->flow_lookup(e.key);
        REQUIRE(found);
        REQUIRE(*found);
        CHECK((*found)->flow.state == FTCTL_FLOW_CLOSING);
        CHECK((*found)->flow.path == 9);
        CHECK((*found)->flow.trickle_s == 10);
        CHECK((*found)->flow.id == 1); // FTCTL_EDIT_ID was not set
        CHECK(std::memcmp(&(*found)->new_src, &e.new_src, sizeof(e.new_src)) == 0);
        CHECK(std::memcmp(&(*found)->new_dst, &e.new_dst, sizeof(e.new_dst)) == 0);

        auto removed = datapath->flow_delete(e.key);
        REQUIRE(removed);
        REQUIRE(*removed);
        CHECK((*removed)->flow.path == 9);
        removed = datapath->flow_delete(e.key);
        REQUIRE(removed);
        CHECK_FALSE(*removed);
        found = datapath->flow_lookup(e.key);
        REQUIRE(found);
        CHECK_FALSE(*found);
        const auto edited = datapath->flow_edit(edit);
        REQUIRE_FALSE(edited);
        CHECK(edited.error().err == ENOENT);
    }
}

TEST_CASE("the map of a shape is made with its first flow", "[live][bpf]")
{
    const ScratchNamespace netns;
    const auto room = [](int fd) {
        bpf_map_info info{};
        std::uint32_t len = sizeof(info);
        REQUIRE(bpf_obj_get_info_by_fd(fd, &info, &len) == 0);
        return info.max_entries;
    };
    auto made = bpf::Maps::create({64});
    REQUIRE(made);
    CHECK(made->fd(bpf::MapId::flow4) >= 0);
    CHECK(made->flow_fd(FTCTL_SHAPE_4) == -1);
    CHECK(made->flow_entries() == 128);
    CHECK(room(made->fd(bpf::MapId::flow4)) == 128 / 2 * 3 + 7);
    for (const ftctl_shape shape : {FTCTL_SHAPE_4T, FTCTL_SHAPE_6, FTCTL_SHAPE_X}) {
        CHECK(made->flow_fd(shape) == -1);
        REQUIRE(made->need_flow_map(shape));
        const int fd = made->flow_fd(shape);
        CHECK(fd >= 0);
        CHECK(room(fd) == (shape == FTCTL_SHAPE_4T ? 64 / 2 * 3 + 7 : 129)); // for twice the buckets
        REQUIRE(made->need_flow_map(shape));
        CHECK(made->flow_fd(shape) == fd);
    }

    const auto datapath = private_maps(64);
    const auto count = [&] {
        std::size_t flows = 0;
        REQUIRE(datapath->flow_each([&](const FlowEntry &) { return ++flows != 0; }));
        return flows;
    };
    CHECK(count() == 0);
    std::size_t flows = 0;
    for (const ftctl_shape shape : kShapes) {
        const FlowEntry e = entry(1, shape);
        auto none = datapath->flow_lookup(e.key);
        REQUIRE(none);
        CHECK_FALSE(*none);
        none = datapath->flow_delete(e.key);
        REQUIRE(none);
        CHECK_FALSE(*none);
        ftctl_flow_edit edit{};
        edit.key = e.key;
        const auto edited = datapath->flow_edit(edit);
        REQUIRE_FALSE(edited);
        CHECK(edited.error().err == ENOENT);
        REQUIRE(datapath->flow_insert(e));
        CHECK(count() == ++flows);
    }
}

TEST_CASE("tuples that differ a little have digests of their own", "[bpf]")
{
    std::set<std::uint64_t> seen;
    std::size_t tuples = 0;
    for (std::uint32_t client = 0; client < 64; ++client) {
        for (std::uint32_t port = 0; port < 64; ++port) {
            for (std::uint32_t server = 0; server < 32; ++server) {
                FlowEntry e = entry(client, FTCTL_SHAPE_X);
                e.key.sport = htons(static_cast<std::uint16_t>(4000 + port));
                e.key.dst.w[3] = htonl(server);
                seen.insert(ftctl_tuple_digest(&e.key));
                std::swap(e.key.src, e.key.dst); // the same words in other places
                seen.insert(ftctl_tuple_digest(&e.key));
                tuples += 2;
            }
        }
    }
    CHECK(seen.size() == tuples);
}

TEST_CASE("a tuple whose digest another one has has no flow, and leaves the other's alone", "[live][bpf]")
{
    const ScratchNamespace netns;
    auto maps = bpf::Maps::create({64});
    REQUIRE(maps);
    REQUIRE(maps->need_flow_map(FTCTL_SHAPE_X));
    const int fd = maps->flow_fd(FTCTL_SHAPE_X);
    bpf::DatapathImpl datapath(std::move(*maps), bpf::PinDir());
    const FlowEntry mine = entry(1, FTCTL_SHAPE_X), other = entry(2, FTCTL_SHAPE_X);
    const ftctl_keyx key{ftctl_tuple_digest(&mine.key)};
    const ftctl_flowx value{{other.flow, other.new_src, other.new_dst}, other.key, 0};
    REQUIRE(bpf_map_update_elem(fd, &key, &value, BPF_NOEXIST) == 0);

    auto found = datapath.flow_lookup(mine.key);
    REQUIRE(found);
    CHECK_FALSE(*found);
    const auto inserted = datapath.flow_insert(mine);
    REQUIRE_FALSE(inserted);
    CHECK(inserted.error().err == EEXIST);
    found = datapath.flow_delete(mine.key);
    REQUIRE(found);
    CHECK_FALSE(*found);
    std::size_t flows = 0;
    REQUIRE(datapath.flow_each([&](const FlowEntry &e) {
        CHECK(std::memcmp(&e.key, &other.key, sizeof(e.key)) == 0);
        return ++flows != 0;
    }));
    CHECK(flows == 1);
}

TEST_CASE("flows that find no room where their hash says stand in flowx", "[live][bpf]")
{
    const ScratchNamespace netns;
    const Instance instance;
    const ftctl_shape shape = GENERATE(FTCTL_SHAPE_4, FTCTL_SHAPE_4T);
    std::vector<FlowEntry> flows;
    for (std::uint8_t proto = 1; proto <= 20; ++proto) { // of one home
        FlowEntry e = entry(1, shape);
        e.key.iif_proto = ftctl_iif_proto(3, proto);
        e.flow.id = proto;
        flows.push_back(e);
    }
    const auto all_there = [&](Datapath &datapath, std::size_t first) {
        std::set<std::uint32_t> ids;
        REQUIRE(datapath.flow_each([&](const FlowEntry &e) { return ids.insert(e.flow.id).second; }));
        CHECK(ids.size() == flows.size() - first);
        for (std::size_t i = 0; i < flows.size(); ++i) {
            const auto found = datapath.flow_lookup(flows[i].key);
            REQUIRE(found);
            CHECK(found->has_value() == (i >= first));
            ftctl_flow_edit edit{};
            edit.key = flows[i].key;
            edit.what = FTCTL_EDIT_PATH;
            edit.path = 9;
            CHECK(datapath.flow_edit(edit).has_value() == (i >= first)); // as packets find it
        }
    };
    {
        const auto datapath = instance.open(64);
        for (const FlowEntry &e : flows) {
            REQUIRE(datapath->flow_insert(e));
            const auto again = datapath->flow_insert(e);
            REQUIRE_FALSE(again);
            CHECK(again.error().err == EEXIST);
        }
        all_there(*datapath, 0);
    }
    const auto datapath = instance.open(64); // the next daemon
    CHECK(datapath->adopted());
    all_there(*datapath, 0);
    // Those in flow4 go first. The others are found still, also when the places of the first have had time to
    // become free.
    for (std::size_t i = 0; i < 8; ++i) {
        const auto removed = datapath->flow_delete(flows[i].key);
        REQUIRE(removed);
        REQUIRE(*removed);
        CHECK((*removed)->flow.id == flows[i].flow.id);
        CHECK((*removed)->flow.path == 9);
    }
    usleep(200 * 1000);
    REQUIRE(datapath->flow_insert(entry(5000, shape)));
    REQUIRE(datapath->flow_delete(entry(5000, shape).key));
    all_there(*datapath, 8);
    const auto again = datapath->flow_insert(flows.back());
    REQUIRE_FALSE(again);
    CHECK(again.error().err == EEXIST);
    for (std::size_t i = 8; i < flows.size(); ++i) {
        const auto removed = datapath->flow_delete(flows[i].key);
        REQUIRE(removed);
        CHECK(*removed);
    }
    all_there(*datapath, flows.size());
    FlowEntry nobody = entry(1, shape);
    nobody.key.iif_proto = 0;
    const auto refused = datapath->flow_insert(nobody);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().err == EINVAL);
    REQUIRE(datapath->remove_pins());
}

TEST_CASE("a full map says so", "[live][bpf]")
{
    const ScratchNamespace netns;
    const auto datapath = private_maps(4);
    std::uint32_t inserted = 0;
    Status status;
    while (inserted < 1000 && (status = datapath->flow_insert(entry(inserted))))
        ++inserted;
    REQUIRE_FALSE(status);
    CHECK(status.error().err == E2BIG);
    CHECK_FALSE(status.error().hint.empty());
    CHECK(inserted == 8);
    CHECK_FALSE(Datapath::create_private({0}));
    CHECK_FALSE(Datapath::create_private({0xffffffffU}));
}

TEST_CASE("the walk sees every flow once, while others come and go", "[live][bpf]")
{
    const ScratchNamespace netns;
    constexpr std::uint32_t kStay = 5000;
    const auto datapath = private_maps(20000);
    for (std::uint32_t i = 0; i < kStay; ++i) {
        REQUIRE(datapath->flow_insert(entry(i)));
        if (i % 5 == 0)
            for (const ftctl_shape shape : {FTCTL_SHAPE_4T, FTCTL_SHAPE_6, FTCTL_SHAPE_X})
                REQUIRE(datapath->flow_insert(entry(i, shape)));
    }
    std::map<std::pair<std::uint32_t, ftctl_shape>, int> seen;
    std::uint32_t calls = 0;
    const auto status = datapath->flow_each([&](const FlowEntry &e) {
        if (e.flow.id < kStay)
            ++seen[{e.flow.id, ftctl_shape_of(&e.key)}];
        // churn of flows that are not counted
        const FlowEntry extra = entry(100000 + calls);
        CHECK(datapath->flow_insert(extra));
        if (calls % 2 == 0)
            CHECK(datapath->flow_delete(extra.key));
        return ++calls < 100000;
    });
    REQUIRE(status);
    CHECK(seen.size() == kStay + 3 * (kStay / 5));
    for (const auto &[id, times] : seen)
        CHECK(times == 1);

    calls = 0;
    REQUIRE(datapath->flow_each([&](const FlowEntry &) { return ++calls < 10; }));
    CHECK(calls == 10);
}

TEST_CASE("the walk may remove what it sees", "[live][bpf]")
{
    const ScratchNamespace netns;
    const auto datapath = private_maps(5000);
    for (std::uint32_t i = 0; i < 3000; ++i)
        REQUIRE(datapath->flow_insert(entry(i)));
    REQUIRE(datapath->flow_each([&](const FlowEntry &e) {
        CHECK(datapath->flow_delete(e.key));
        return true;
    }));
    std::uint32_t left = 0;
    REQUIRE(datapath->flow_each([&](const FlowEntry &) { return ++left != 0; }));
    CHECK(left == 0);
}

TEST_CASE("the walk by keys, for kernels without batches", "[live][bpf]")
{
    const ScratchNamespace netns;
    auto maps = bpf::Maps::create({3000});
    REQUIRE(maps);
    REQUIRE(maps->need_flow_map(FTCTL_SHAPE_6));
    const int fd = maps->flow_fd(FTCTL_SHAPE_6);
    bpf::DatapathImpl datapath(std::move(*maps), bpf::PinDir());
    std::set<std::uint32_t> seen;
    const auto see = [&](const FlowEntry &e) {
        seen.insert(e.flow.id);
        return true;
    };
    REQUIRE(bpf::walk_flows_by_key(fd, FTCTL_SHAPE_6, 6000, see));
    CHECK(seen.empty());
    for (std::uint32_t i = 0; i < 2000; ++i)
        REQUIRE(datapath.flow_insert(entry(i, FTCTL_SHAPE_6)));
    REQUIRE(bpf::walk_flows_by_key(fd, FTCTL_SHAPE_6, 6000, see));
    CHECK(seen.size() == 2000);
    // It ends although each step removes the key it stands on.
    REQUIRE(bpf::walk_flows_by_key(fd, FTCTL_SHAPE_6, 6000, [&](const FlowEntry &e) {
        static_cast<void>(datapath.flow_delete(e.key));
        return true;
    }));
}
