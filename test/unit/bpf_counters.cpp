// SPDX-License-Identifier: GPL-2.0-only
// Counters, events, explain and the probes, with real packets over veth.
#include <array>
#include <cstring>
#include <ctime>

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "bpf_live.h"

using namespace ftctl;
using namespace ftctl::test;

namespace {

using Bytes = std::vector<std::uint8_t>;
using MacBytes = std::array<std::uint8_t, 6>;

MacBytes mac_of(const std::string &name)
{
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    const Fd sock(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    REQUIRE(ioctl(sock.get(), SIOCGIFHWADDR, &request) == 0);
    MacBytes mac{};
    std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
    return mac;
}

std::uint64_t slot_mac(const MacBytes &mac)
{
    std::uint64_t value = 0;
    std::memcpy(&value, mac.data(), mac.size());
    return value;
}

std::uint64_t now_ns()
{
    timespec ts{};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<std::uint64_t>(ts.tv_sec) * FTCTL_NSEC_PER_SEC +
           static_cast<std::uint64_t>(ts.tv_nsec);
}

std::uint16_t checksum(const void *data, std::size_t len)
{
    const auto *bytes = static_cast<const std::uint8_t *>(data);
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i + 1 < len; i += 2)
        sum += static_cast<std::uint32_t>(bytes[i]) << 8 | bytes[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons(static_cast<std::uint16_t>(~sum));
}

constexpr std::uint8_t kFlagsAck = 0x10;
constexpr std::uint8_t kFlagsFinAck = 0x11;

// Ethernet, IPv4, TCP, 20 bytes of payload; 192.0.2.2:4000 -> 198.51.100.2:80.
Bytes tcp_frame(const MacBytes &to, std::uint8_t flags)
{
    Bytes frame(sizeof(ethhdr) + sizeof(iphdr) + sizeof(tcphdr) + 20);
    ethhdr eth{};
    std::memcpy(eth.h_dest, to.data(), to.size());
    eth.h_source[0] = 2;
    eth.h_proto = htons(ETH_P_IP);
    iphdr ip{};
    ip.version = 4;
    ip.ihl = 5;
    ip.tot_len = htons(static_cast<std::uint16_t>(frame.size() - sizeof(eth)));
    ip.ttl = 64;
    ip.protocol = IPPROTO_TCP;
    ip.saddr = inet_addr("192.0.2.2");
    ip.daddr = inet_addr("198.51.100.2");
    ip.check = checksum(&ip, sizeof(ip));
    tcphdr tcp{};
    tcp.source = htons(4000);
    tcp.dest = htons(80);
    tcp.doff = 5;
    std::memcpy(frame.data(), &eth, sizeof(eth));
    std::memcpy(frame.data() + sizeof(eth), &ip, sizeof(ip));
    std::memcpy(frame.data() + sizeof(eth) + sizeof(ip), &tcp, sizeof(tcp));
    frame[sizeof(eth) + sizeof(ip) + 13] = flags;
    return frame;
}

void send_frame(const std::string &device, const Bytes &frame)
{
    const Fd sock(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    REQUIRE(sock);
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = static_cast<int>(if_nametoindex(device.c_str()));
    REQUIRE(sendto(sock.get(), frame.data(), frame.size(), 0, reinterpret_cast<const sockaddr *>(&to),
                   sizeof(to)) == static_cast<ssize_t>(frame.size()));
}

// A live flow va -> vb for tcp_frame().
FlowEntry live_flow(Datapath &datapath, std::uint32_t in, std::uint32_t out)
{
    ftctl_path &path = datapath.path(1);
    path = {};
    path.body[0].l2[0] = 2;
    path.body[0].l2[5] = 9;
    path.body[0].l2[6] = 2;
    path.body[0].l2[12] = ETH_P_IP >> 8;
    path.body[0].l2_len = ETH_HLEN;
    path.body[0].family = 4;
    path.body[0].mtu = 1500;
    path.body[0].oif = out;
    path.body[0].flags = FTCTL_P_VALID | FTCTL_P_XDP;
    FlowEntry e;
    e.key.family = 4;
    e.key.src.w[0] = inet_addr("192.0.2.2");
    e.key.dst.w[0] = inet_addr("198.51.100.2");
    e.key.sport = htons(4000);
    e.key.dport = htons(80);
    e.key.iif_proto = ftctl_iif_proto(in, IPPROTO_TCP);
    e.flow.gen = datapath.config().gen;
    e.flow.state = FTCTL_FLOW_LIVE;
    e.flow.path = 1;
    e.flow.id = 77;
    e.flow.new_src = e.key.src.w[0];
    e.flow.new_dst = e.key.dst.w[0];
    e.flow.new_sport = e.key.sport;
    e.flow.new_dport = e.key.dport;
    REQUIRE(datapath.flow_insert(e));
    return e;
}

ftctl_stats stats_of(Datapath &datapath, std::uint32_t ifindex)
{
    const auto all = datapath.stats();
    REQUIRE(all);
    for (const SlotStats &one : *all) {
        if (one.attachment.ifindex == ifindex)
            return one.stats;
    }
    FAIL("no counters of device " << ifindex);
    return {};
}

std::uint32_t attach(Datapath &datapath, std::uint32_t ifindex, const std::string &name, ftctl_hook hook)
{
    const auto attachment = datapath.attach(ifindex, name, hook);
    INFO((attachment ? std::string() : attachment.error().what + ": " + attachment.error().why));
    REQUIRE(attachment);
    datapath.slot(attachment->slot).mac = slot_mac(mac_of(name));
    return attachment->slot;
}

} // namespace

TEST_CASE("explain runs the program without side effects", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::uint32_t vb = veth("vb");
    auto made = Datapath::create_private({64});
    REQUIRE(made);
    Datapath &datapath = **made;
    const auto hook = GENERATE(FTCTL_HOOK_TC, FTCTL_HOOK_XDP);
    const Bytes frame = tcp_frame(mac_of("va"), kFlagsAck);
    const auto unattached = datapath.explain(va, hook, frame);
    REQUIRE_FALSE(unattached);
    CHECK(unattached.error().code == Code::not_running);
    attach(datapath, va, "va", hook);
    REQUIRE(datapath.devmap_set(vb, true));
    const auto reason_of = [&](const Bytes &packet) {
        const auto run = datapath.explain(va, hook, packet);
        REQUIRE(run);
        CHECK(run->packet == packet); // untouched
        CHECK_FALSE(run->taken);
        return std::string(reason_name(run->reason));
    };
    CHECK(reason_of(frame) == "heartbeat");
    datapath.config().heartbeat_ns = now_ns();
    CHECK(reason_of(frame) == "no-flow");
    const FlowEntry flow = live_flow(datapath, va, vb);
    CHECK(reason_of(tcp_frame({2, 0, 0, 0, 0, 77}, kFlagsAck)) == "other-host");
    CHECK(reason_of(tcp_frame(mac_of("va"), kFlagsFinAck)) == "tcp-flags");
    CHECK(reason_of(Bytes(60)) == "not-ip");

    const auto run = datapath.explain(va, hook, frame);
    REQUIRE(run);
    CHECK(run->taken);
    CHECK(run->reason == 0);
    REQUIRE(run->packet.size() == frame.size());
    CHECK(run->packet[5] == 9);                   // next hop's MAC
    CHECK(run->packet[sizeof(ethhdr) + 8] == 63); // TTL

    CHECK_FALSE(datapath.explain(va, hook, Bytes(13)));
    CHECK_FALSE(datapath.explain(va, hook, Bytes(70000)));
    // Nothing of all that is to be seen in the flow, its state and the device's counters.
    const auto after = datapath.flow_lookup(flow.key);
    REQUIRE(after);
    REQUIRE(*after);
    CHECK(std::memcmp(&(*after)->flow, &flow.flow, sizeof(ftctl_flow)) == 0);
    CHECK(stats_of(datapath, va).fast_packets == 0);
    CHECK(stats_of(datapath, va).reasons[FTCTL_R_TCP_FLAGS] == 0);
}

TEST_CASE("counters are those of the device", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::uint32_t vb = veth("vb");
    auto made = Datapath::create_private({64});
    REQUIRE(made);
    Datapath &datapath = **made;
    const auto hook = GENERATE(FTCTL_HOOK_TC, FTCTL_HOOK_XDP);
    const std::uint32_t slot = attach(datapath, va, "va", hook);
    attach(datapath, vb, "vb", hook);
    datapath.config().heartbeat_ns = now_ns();
    const Bytes frame = tcp_frame(mac_of("va"), kFlagsAck);
    const std::uint64_t before = stats_of(datapath, va).reasons[FTCTL_R_NO_FLOW];
    for (int i = 0; i < 10; ++i)
        send_frame("vap", frame);
    CHECK(eventually([&] { return stats_of(datapath, va).reasons[FTCTL_R_NO_FLOW] == before + 10; }));
    CHECK(stats_of(datapath, vb).reasons[FTCTL_R_NO_FLOW] == 0);

    REQUIRE(datapath.devmap_set(vb, true));
    live_flow(datapath, va, vb);
    for (int i = 0; i < 10; ++i)
        send_frame("vap", frame);
    CHECK(eventually([&] { return stats_of(datapath, va).fast_packets == 10; }));
    CHECK(stats_of(datapath, va).fast_bytes == 10 * (frame.size() - sizeof(ethhdr)));
    REQUIRE(datapath.clear_stats(slot));
    CHECK(stats_of(datapath, va).fast_packets == 0);
    CHECK_FALSE(datapath.clear_stats(FTCTL_MAX_SLOTS));
}

TEST_CASE("frames that an XDP egress device does not take are counted there", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::uint32_t vb = veth("vb");
    auto made = Datapath::create_private({64});
    REQUIRE(made);
    Datapath &datapath = **made;
    attach(datapath, va, "va", FTCTL_HOOK_XDP);
    attach(datapath, vb, "vb", FTCTL_HOOK_XDP);
    datapath.config().heartbeat_ns = now_ns();
    REQUIRE(datapath.devmap_set(vb, true));
    live_flow(datapath, va, vb);
    std::uint64_t lost = 10;
    SECTION("the driver refuses them: larger than the peer's MTU (xdp_devmap_xmit)")
    {
        attach(datapath, if_nametoindex("vbp"), "vbp", FTCTL_HOOK_XDP); // NAPI: it takes frames at all
        datapath.config().heartbeat_ns = now_ns(); // loading programs takes seconds on an emulated processor
        run("ip link set vbp mtu 68");
        Bytes large = tcp_frame(mac_of("va"), kFlagsAck);
        large.resize(600); // Ethernet padding would be trimmed: it belongs to the packet
        const std::uint16_t len = htons(static_cast<std::uint16_t>(large.size() - sizeof(ethhdr)));
        std::memcpy(&large[sizeof(ethhdr) + 2], &len, 2);
        std::memset(&large[sizeof(ethhdr) + 10], 0, 2);
        const std::uint16_t sum = checksum(&large[sizeof(ethhdr)], sizeof(iphdr));
        std::memcpy(&large[sizeof(ethhdr) + 10], &sum, 2);
        for (std::uint64_t i = 0; i < lost; ++i)
            send_frame("vap", large);
    }
    SECTION("the device takes none at all: no NAPI at its peer (xdp_redirect_err)")
    {
        for (std::uint64_t i = 0; i < lost; ++i)
            send_frame("vap", tcp_frame(mac_of("va"), kFlagsAck));
    }
    CHECK(eventually([&] { return stats_of(datapath, vb).tx_failed == lost; }));
    CHECK(stats_of(datapath, va).fast_packets == lost);
    CHECK(stats_of(datapath, va).tx_failed == 0);
}

TEST_CASE("events arrive once and wake a poll", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    const std::uint32_t vb = veth("vb");
    auto made = Datapath::create_private({64});
    REQUIRE(made);
    Datapath &datapath = **made;
    attach(datapath, va, "va", FTCTL_HOOK_TC);
    datapath.config().heartbeat_ns = now_ns();
    const FlowEntry flow = live_flow(datapath, va, vb);
    pollfd wake{datapath.events_fd(), POLLIN, 0};
    REQUIRE(wake.fd >= 0);
    CHECK(poll(&wake, 1, 0) == 0);
    std::vector<ftctl_event> events;
    const auto collect = [&](const ftctl_event &event) { events.push_back(event); };
    REQUIRE(datapath.read_events(collect));
    CHECK(events.empty());

    send_frame("vap", tcp_frame(mac_of("va"), kFlagsFinAck));
    REQUIRE(poll(&wake, 1, 2000) == 1);
    REQUIRE(datapath.read_events(collect));
    REQUIRE(events.size() == 1);
    CHECK(events[0].type == FTCTL_EV_CLOSING);
    CHECK(events[0].id == 77);
    CHECK(events[0].tcp_flags == kFlagsFinAck);
    CHECK(events[0].flow_flags == flow.flow.flags);
    CHECK(poll(&wake, 1, 0) == 0);
    REQUIRE(datapath.read_events(collect));
    CHECK(events.size() == 1);
}

TEST_CASE("the devmap takes devices of this namespace", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    auto made = Datapath::create_private({64});
    REQUIRE(made);
    CHECK((*made)->devmap_set(va, true));
    CHECK((*made)->devmap_set(va, true));
    CHECK((*made)->devmap_set(va, false));
    CHECK((*made)->devmap_set(va, false));
    CHECK_FALSE((*made)->devmap_set(999999, true));
}

TEST_CASE("the probes are complete and leave nothing behind", "[live][bpf]")
{
    const ScratchNamespace netns;
    const std::uint32_t va = veth("va");
    REQUIRE(va != 0);
    const std::string before = device_state("va") + device_state("lo");
    const auto probes = probe_kernel();
    CHECK(probes.size() >= 15);
    for (const Probe &probe : probes) {
        INFO(probe.name << ": " << probe.detail);
        CHECK_FALSE(probe.detail.empty());
        CHECK(probe.ok == probe.hint.empty());
        // What the other tests here rely on. The rest is a matter of configuration.
        if (probe.required && probe.name.rfind("conntrack", 0) != 0)
            CHECK(probe.ok);
    }
    CHECK(device_state("va") + device_state("lo") == before);
    auto made = Datapath::create_private({64});
    REQUIRE(made);
    CHECK((*made)->probe_load(FTCTL_HOOK_XDP));
    CHECK((*made)->probe_load(FTCTL_HOOK_TC));
    CHECK_FALSE((*made)->probe_load(FTCTL_HOOK_NONE));
}
