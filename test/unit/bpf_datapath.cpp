// SPDX-License-Identifier: GPL-2.0-only
// Attach, detach, pins and adoption, on the running kernel. Needs root, ip, tc and bpftool.
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <sys/wait.h>

#include "bpf/clsact.h"
#include "bpf/links.h"
#include "bpf/pins.h"
#include "bpf_live.h"
#include "ftctl/bloom.h"

using namespace ftctl;
using namespace ftctl::test;

namespace {

Attachment attached(Datapath &datapath, std::uint32_t ifindex, const std::string &name, ftctl_hook hook)
{
    auto attachment = datapath.attach(ifindex, name, hook);
    INFO((attachment ? std::string() : attachment.error().what + ": " + attachment.error().why));
    REQUIRE(attachment);
    CHECK(attachment->ifindex == ifindex);
    CHECK(attachment->hook == hook);
    CHECK(attachment->ingress_prog_id != 0);
    CHECK(attachment->egress_prog_id != 0);
    CHECK(datapath.slot(attachment->slot).ifindex == ifindex);
    CHECK(datapath.slot(attachment->slot).hook == static_cast<std::uint32_t>(hook));
    CHECK(datapath.slot(attachment->slot).mac == ~0ULL);
    return *attachment;
}

/// Would the programs look for that flow?
bool may_be(const Instance &instance, const ftctl_config &config, const ftctl_tuple &flow)
{
    const Fd map(bpf_obj_get((instance.dir() + "/maps/flow_bloom").c_str()));
    const std::uint32_t bit = ftctl_bloom_bit(ftctl_bloom_hash(&flow), config.bloom_level);
    const std::uint32_t index = bit / 64;
    std::uint64_t bits = 0;
    REQUIRE(bpf_map_lookup_elem(map.get(), &index, &bits) == 0);
    return (bits >> bit % 64 & 1) != 0;
}

bool contains(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

/// Kernels without tcx, and the order of filters, on one that has it.
struct WithoutTcx {
    WithoutTcx() { bpf::forget_tcx(true); }
    ~WithoutTcx() { bpf::forget_tcx(false); }
};

// A filter of somebody else, that lets everything through.
std::string foreign_filter(const std::string &device, const std::string &direction, int priority)
{
    return "tc filter add dev " + device + " " + direction + " prio " + std::to_string(priority) +
           " protocol ip u32 match u32 0 0";
}

/// Runs `body` in a child that is then killed, as a daemon may be.
template <typename Body>
void in_killed_child(Body &&body)
{
    int pipe_fds[2];
    REQUIRE(pipe(pipe_fds) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const char ok = body() ? 'y' : 'n';
        static_cast<void>(!write(pipe_fds[1], &ok, 1));
        for (;;)
            pause();
    }
    close(pipe_fds[1]);
    char ok = '?';
    const ssize_t got = read(pipe_fds[0], &ok, 1);
    close(pipe_fds[0]);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    REQUIRE(got == 1);
    REQUIRE(ok == 'y');
}

// The pins of one attached device, in the order of instance.links(). Before Linux 6.6 there is no tcx.
std::vector<std::string> pin_names(std::uint32_t ifindex, ftctl_hook hook)
{
    const std::string device = std::to_string(ifindex) + "-";
    const std::string tc = device + (bpf::have_tcx() ? "" : "clsact-");
    std::vector<std::string> names = {tc + "egress",
                                      hook == FTCTL_HOOK_XDP ? device + "xdp" : tc + "ingress"};
    if (!bpf::have_tcx())
        names.push_back(tc + "qdisc");
    std::sort(names.begin(), names.end());
    return names;
}

} // namespace

TEST_CASE("attach and detach leave the device as it was", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::string before = device_state("va");
    const Instance instance;
    {
        const auto datapath = instance.open();
        CHECK_FALSE(datapath->adopted());
        for (const ftctl_hook hook : {FTCTL_HOOK_TC, FTCTL_HOOK_XDP}) {
            attached(*datapath, va, "va", hook);
            CHECK(datapath->attachments().size() == 1);
            const std::vector<std::string> pins = pin_names(va, hook);
            auto links = instance.links();
            const auto tracepoints = std::erase_if(
                links, [](const std::string &pin) { return pin.starts_with(bpf::kTracepointPin); });
            CHECK(links == pins);
            CHECK((tracepoints != 0) == (hook == FTCTL_HOOK_XDP));
            CHECK(device_state("va") != before);
            REQUIRE(datapath->detach(va));
            CHECK(device_state("va") == before);
            CHECK(instance.links().empty());
            CHECK(datapath->attachments().empty());
            const auto again = datapath->detach(va);
            REQUIRE_FALSE(again);
            CHECK(again.error().code == Code::not_running);
        }
        REQUIRE(datapath->remove_pins());
    }
    CHECK_FALSE(std::filesystem::exists(instance.dir()));
    const auto gone = Datapath::open_existing(instance.name());
    REQUIRE_FALSE(gone);
    CHECK(gone.error().code == Code::not_running);
}

TEST_CASE("a second attach replaces programs in place", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::string before = device_state("va");
    const Instance instance;
    const auto datapath = instance.open();
    for (const ftctl_hook hook : {FTCTL_HOOK_TC, FTCTL_HOOK_XDP}) {
        const Attachment first = attached(*datapath, va, "va", hook);
        datapath->slot(first.slot).mac = 42;
        const auto second = datapath->attach(va, "va", hook);
        REQUIRE(second);
        CHECK(second->slot == first.slot);
        CHECK(second->ingress_prog_id != first.ingress_prog_id);
        CHECK(second->egress_prog_id != first.egress_prog_id);
        CHECK(datapath->slot(first.slot).mac == 42);
        CHECK(datapath->attachments().size() == 1);
    }
    // From TC to XDP happened above; now back.
    const Attachment back = attached(*datapath, va, "va", FTCTL_HOOK_TC);
    CHECK(back.tcx == bpf::have_tcx());
    CHECK(instance.links() == pin_names(va, FTCTL_HOOK_TC));
    CHECK_FALSE(contains(device_state("va"), "prog/xdp"));
    REQUIRE(datapath->detach(va));
    CHECK(device_state("va") == before);
    for (std::uint32_t i = 1; i < FTCTL_MAX_SLOTS; ++i)
        REQUIRE(datapath->slot(i).ifindex == 0);
}

TEST_CASE("a killed daemon's attachments are adopted", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::uint32_t vb = veth("vb");
    const std::string before = device_state("va") + device_state("vb");
    const Instance instance;
    FlowEntry entry;
    entry.key.family = 4;
    entry.key.src.w[0] = 7;
    entry.key.iif_proto = ftctl_iif_proto(3, IPPROTO_UDP);
    FlowEntry entry6 = entry; // in a map of its own, made with it
    entry6.key.family = 6;
    entry6.key.src.w[1] = 1;
    FlowEntry tunnelled = entry; // ... and with the same bit in the Bloom filter
    tunnelled.key.tunnel = FTCTL_TUNNEL_IPV4;
    in_killed_child([&] {
        auto datapath = Datapath::open_or_create(instance.name(), {1024});
        if (!datapath)
            return false;
        (*datapath)->config().gen = 1234;
        return (*datapath)->attach(va, "va", FTCTL_HOOK_XDP) &&
               (*datapath)->attach(vb, "vb", FTCTL_HOOK_TC) && (*datapath)->flow_insert(entry) &&
               (*datapath)->flow_insert(entry6) && (*datapath)->flow_insert(tunnelled);
    });
    std::vector<Attachment> read_only;
    {
        auto existing = Datapath::open_existing(instance.name());
        REQUIRE(existing);
        CHECK((*existing)->events_fd() == -1);
        read_only = (*existing)->attachments();
    }
    const auto datapath = instance.open(5); // limits count only when maps are made
    CHECK(datapath->adopted());
    CHECK(datapath->max_flows() == 1024);
    CHECK(datapath->config().gen == 1234);
    for (const FlowEntry &each : {entry, entry6}) {
        const auto flow = datapath->flow_lookup(each.key);
        REQUIRE(flow);
        CHECK(*flow);
    }
    for (const FlowEntry &each : {tunnelled, entry}) {
        CHECK(may_be(instance, datapath->config(), each.key));
        REQUIRE(datapath->flow_delete(each.key));
        CHECK(may_be(instance, datapath->config(), each.key) == (each.key.tunnel != FTCTL_TUNNEL_NONE));
    }
    const auto all = datapath->attachments();
    REQUIRE(all.size() == 2);
    REQUIRE(read_only.size() == 2);
    for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(all[i].hook == (all[i].ifindex == va ? FTCTL_HOOK_XDP : FTCTL_HOOK_TC));
        CHECK(all[i].ingress_prog_id != 0);
        CHECK(all[i].ingress_prog_id == read_only[i].ingress_prog_id);
        CHECK(all[i].egress_prog_id == read_only[i].egress_prog_id);
    }
    // Now the new daemon's programs, in the same slots.
    const auto renewed = datapath->attach(va, "va", FTCTL_HOOK_XDP);
    REQUIRE(renewed);
    CHECK(renewed->slot == all[0].slot);
    CHECK(renewed->ingress_prog_id != all[0].ingress_prog_id);
    REQUIRE(datapath->remove_pins());
    CHECK(device_state("va") + device_state("vb") == before);
    CHECK_FALSE(std::filesystem::exists(instance.dir()));
}

TEST_CASE("with no daemon, pins are enough to detach", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::string before = device_state("va");
    const Instance instance;
    in_killed_child([&] {
        auto datapath = Datapath::open_or_create(instance.name(), {1024});
        return datapath && (*datapath)->attach(va, "va", FTCTL_HOOK_XDP);
    });
    auto existing = Datapath::open_existing(instance.name());
    REQUIRE(existing);
    REQUIRE((*existing)->detach(va));
    CHECK(device_state("va") == before);
    CHECK(instance.links().empty());
}

TEST_CASE("what a process left half done is cleaned up", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::string before = device_state("va");
    const Instance instance;
    {
        const auto datapath = instance.open();
        attached(*datapath, va, "va", FTCTL_HOOK_TC);
        // as if killed before the witness was pinned
        bpf::PinDir(instance.name()).unpin_link(pin_names(va, FTCTL_HOOK_TC).front());
    }
    {
        const auto datapath = instance.open();
        CHECK(datapath->adopted());
        CHECK(datapath->attachments().empty());
        CHECK(device_state("va") == before);
        CHECK(instance.links().empty());
        // as if killed after the slot was taken: the slot is free again, and leftover pins of no slot go
        const Attachment a = attached(*datapath, va, "va", FTCTL_HOOK_XDP);
        datapath->slot(a.slot).ifindex = 0;
    }
    const auto datapath = instance.open();
    CHECK(datapath->attachments().empty());
    CHECK(device_state("va") == before);
    CHECK(instance.links().empty());
}

TEST_CASE("a device that vanishes takes its attachment along", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::uint32_t vb = veth("vb");
    const Instance instance;
    {
        const auto datapath = instance.open();
        attached(*datapath, va, "va", FTCTL_HOOK_XDP);
        attached(*datapath, vb, "vb", FTCTL_HOOK_TC);
        run("ip link del va");
        REQUIRE(datapath->detach(va));
        CHECK(instance.links() == pin_names(vb, FTCTL_HOOK_TC));
        run("ip link del vb");
        CHECK(datapath->attachments().front().ingress_prog_id == 0);
    }
    const auto datapath = instance.open();
    CHECK(datapath->attachments().empty());
    CHECK(instance.links().empty());
    const auto gone = datapath->attach(vb, "vb", FTCTL_HOOK_XDP);
    REQUIRE_FALSE(gone);
    CHECK(gone.error().err == ENODEV);
    CHECK(instance.links().empty());
}

TEST_CASE("pins of another layout are removed, never read", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::string before = device_state("va");
    const Instance instance;
    std::uint64_t number = 0;
    {
        const auto datapath = instance.open();
        attached(*datapath, va, "va", FTCTL_HOOK_TC);
        number = datapath->config().instance;
    }
    SECTION("another ABI")
    {
        auto existing = Datapath::open_existing(instance.name());
        REQUIRE(existing);
        (*existing)->config().abi = FTCTL_ABI + 1;
    }
    SECTION("another size of a value")
    {
        const std::string path = instance.dir() + "/maps/stats";
        run("rm " + path);
        run("bpftool map create " + path + " type percpu_array key 4 value 8 entries 256 name stats");
    }
    SECTION("a map is missing")
    {
        run("rm " + instance.dir() + "/maps/samples");
    }
    SECTION("config, which is pinned last, is missing")
    {
        run("rm " + instance.dir() + "/maps/config");
    }
    CHECK_FALSE(Datapath::open_existing(instance.name()));
    const auto datapath = instance.open();
    CHECK_FALSE(datapath->adopted());
    CHECK(datapath->config().instance != number);
    CHECK(datapath->attachments().empty());
    CHECK(instance.links().empty());
    CHECK(device_state("va") == before);
}

TEST_CASE("pins of another network namespace are not adopted", "[live][bpf]")
{
    const Instance instance;
    {
        const ScratchNamespace first;
        const std::uint32_t va = veth("va");
        {
            const auto datapath = instance.open();
            attached(*datapath, va, "va", FTCTL_HOOK_TC);
        }
        {
            const ScratchNamespace second;
            if (!bpf::have_tcx()) {
                // A filter cannot be seen from another namespace: such pins count as left over.
                WARN("not checked: clsact filters do not tell their network namespace");
                return;
            }
            const auto refused = Datapath::open_or_create(instance.name(), {1024});
            REQUIRE_FALSE(refused);
            CHECK(contains(refused.error().why, "another network namespace"));
            CHECK(contains(refused.error().hint, "-i"));
        }
    }
    // The namespace goes, its devices with it (in a work queue), and the name is free again.
    const ScratchNamespace third;
    std::unique_ptr<Datapath> datapath;
    CHECK(eventually([&] {
        if (auto opened = Datapath::open_or_create(instance.name(), {1024}))
            datapath = std::move(*opened);
        return datapath != nullptr;
    }));
    REQUIRE(datapath);
    CHECK_FALSE(datapath->adopted());
}

TEST_CASE("a foreign XDP program is never replaced", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const Instance instance;
    // Any XDP program will do for the foreign one: that of an instance which the kernel knows nothing of.
    const auto foreign = Datapath::create_private({64});
    REQUIRE(foreign);
    const Attachment theirs = attached(**foreign, va, "va", FTCTL_HOOK_XDP);
    if (!bpf::have_tcx()) // any ftctl's filter has the one handle: leave the XDP program alone there
        REQUIRE(bpf::clsact_detach(va, true));
    const std::string before = device_state("va");
    const auto datapath = instance.open();
    const auto refused = datapath->attach(va, "va", FTCTL_HOOK_XDP);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().err == EBUSY);
    CHECK(contains(refused.error().why, "id " + std::to_string(theirs.ingress_prog_id)));
    CHECK(contains(refused.error().why, "xdp_ingress"));
    CHECK(contains(refused.error().hint, "--mode tc"));
    CHECK(instance.links().empty());
    CHECK(datapath->slot(1).ifindex == 0);
    CHECK(device_state("va") == before);
    // TC goes beside it.
    attached(*datapath, va, "va", FTCTL_HOOK_TC);
    const auto switched = datapath->attach(va, "va", FTCTL_HOOK_XDP);
    CHECK_FALSE(switched);
    REQUIRE(datapath->attachments().size() == 1);
    CHECK(datapath->attachments().front().hook == FTCTL_HOOK_TC);
    CHECK(datapath->attachments().front().egress_prog_id != 0);
    REQUIRE(datapath->detach(va));
    CHECK(device_state("va") == before);
}

TEST_CASE("a refused device leaves no trace, and the kernel's words are passed on", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::uint32_t vb = veth("vb", 9000);
    const std::string before = device_state("vb");
    const Instance instance;
    const auto datapath = instance.open();
    attached(*datapath, va, "va", FTCTL_HOOK_XDP);
    const auto pins = instance.links();
    // xdp.frags programs take large MTUs on new kernels: then there is nothing to refuse.
    const auto result = datapath->attach(vb, "vb", FTCTL_HOOK_XDP);
    if (result) {
        WARN("this kernel takes XDP on a veth with MTU 9000");
    } else {
        INFO(result.error().why);
        CHECK(result.error().err == ERANGE);
        CHECK(contains(result.error().why, "MTU"));
        CHECK(contains(result.error().hint, "tc"));
        CHECK(device_state("vb") == before);
        CHECK(instance.links() == pins);
        CHECK(datapath->attachments().size() == 1);
    }
    // A bridge has no native XDP at all.
    run("ip link add br0 type bridge");
    const std::uint32_t br = if_nametoindex("br0");
    const std::string bridge_before = device_state("br0");
    const auto bridge = datapath->attach(br, "br0", FTCTL_HOOK_XDP);
    REQUIRE_FALSE(bridge);
    CHECK(bridge.error().err == EOPNOTSUPP);
    CHECK(contains(bridge.error().why, "driver"));
    CHECK(device_state("br0") == bridge_before);
    CHECK_FALSE(datapath->attach(0, "none", FTCTL_HOOK_TC));
    CHECK_FALSE(datapath->attach(1U << 24, "huge", FTCTL_HOOK_TC));
    CHECK_FALSE(datapath->attach(va, "va", FTCTL_HOOK_NONE));
}

TEST_CASE("clsact: our filters only, our qdisc only", "[live][bpf]")
{
    const WithoutTcx old_kernel;
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const Instance instance;
    const auto links = std::to_string(va);
    SECTION("the qdisc is ours, and goes")
    {
        const std::string before = device_state("va");
        const auto datapath = instance.open();
        const Attachment a = attached(*datapath, va, "va", FTCTL_HOOK_TC);
        CHECK_FALSE(a.tcx);
        CHECK(instance.links() == std::vector<std::string>{links + "-clsact-egress",
                                                           links + "-clsact-ingress",
                                                           links + "-clsact-qdisc"});
        const auto again = datapath->attach(va, "va", FTCTL_HOOK_TC);
        REQUIRE(again);
        CHECK(again->ingress_prog_id != a.ingress_prog_id);
        // to XDP and back: the witness stays a filter
        attached(*datapath, va, "va", FTCTL_HOOK_XDP);
        CHECK(contains(device_state("va"), "clsact"));
        attached(*datapath, va, "va", FTCTL_HOOK_TC);
        REQUIRE(datapath->detach(va));
        CHECK(device_state("va") == before);
        CHECK(instance.links().empty());
    }
    SECTION("the qdisc was there, with filters of others")
    {
        run("tc qdisc add dev va clsact");
        run(foreign_filter("va", "ingress", 1));
        run(foreign_filter("va", "ingress", 50000));
        run(foreign_filter("va", "egress", 50000));
        const std::string before = device_state("va");
        const auto datapath = instance.open();
        attached(*datapath, va, "va", FTCTL_HOOK_TC);
        REQUIRE(datapath->detach(va));
        CHECK(device_state("va") == before);
        CHECK(instance.links().empty());
    }
    SECTION("the qdisc is ours, but somebody uses it now")
    {
        const auto datapath = instance.open();
        attached(*datapath, va, "va", FTCTL_HOOK_TC);
        run(foreign_filter("va", "egress", 7));
        const std::string theirs = output("tc filter show dev va egress pref 7");
        REQUIRE(datapath->detach(va));
        CHECK(contains(device_state("va"), "clsact"));
        CHECK(output("tc filter show dev va egress pref 7") == theirs);
        CHECK(output("tc filter show dev va ingress").empty());
        CHECK(instance.links().empty());
    }
    SECTION("an ingress qdisc has no egress hook")
    {
        run("tc qdisc add dev va ingress");
        run(foreign_filter("va", "ingress", 1));
        const std::string before = device_state("va");
        const auto datapath = instance.open();
        for (const ftctl_hook hook : {FTCTL_HOOK_TC, FTCTL_HOOK_XDP}) {
            const auto refused = datapath->attach(va, "va", hook);
            REQUIRE_FALSE(refused);
            CHECK(contains(refused.error().why, "ingress"));
            CHECK(contains(refused.error().hint, "clsact"));
            CHECK(device_state("va") == before);
            CHECK(instance.links().empty());
        }
    }
    SECTION("the daemon is killed, the next one adopts, remove_pins cleans up")
    {
        const std::string before = device_state("va");
        in_killed_child([&] {
            auto datapath = Datapath::open_or_create(instance.name(), {1024});
            return datapath && (*datapath)->attach(va, "va", FTCTL_HOOK_TC);
        });
        const auto datapath = instance.open();
        REQUIRE(datapath->attachments().size() == 1);
        CHECK(datapath->attachments().front().ingress_prog_id != 0);
        REQUIRE(datapath->remove_pins());
        CHECK(device_state("va") == before);
    }
}

TEST_CASE("filters of others at clsact ingress come first", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const Instance instance;
    const auto datapath = instance.open();
    if (!bpf::have_tcx())
        WARN("this kernel has no tcx: clsact is what is used anyway");
    std::string qdisc = "clsact";
    SECTION("clsact") {}
    SECTION("ingress qdisc, which has no egress hook")
    {
        if (!bpf::have_tcx())
            return;
        qdisc = "ingress";
    }
    run("tc qdisc add dev va " + qdisc);
    CHECK(attached(*datapath, va, "va", FTCTL_HOOK_TC).tcx == bpf::have_tcx());
    run(foreign_filter("va", "ingress", 50000));
    const std::string theirs = output("tc filter show dev va ingress pref 50000");
    CHECK_FALSE(attached(*datapath, va, "va", FTCTL_HOOK_TC).tcx); // the second attach moves it
    const auto state = bpf::clsact_state(va);
    REQUIRE(state);
    CHECK(state->ours);
    CHECK(state->foreign_ingress);
    CHECK(contains(output("tc filter show dev va ingress"), "tc_ingress"));
    REQUIRE(datapath->detach(va));
    CHECK(output("tc filter show dev va ingress pref 50000") == theirs);
    CHECK_FALSE(contains(output("tc filter show dev va ingress"), "tc_ingress"));
    CHECK(contains(output("tc qdisc show dev va"), qdisc));
    CHECK(instance.links().empty());
}
