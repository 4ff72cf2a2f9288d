// SPDX-License-Identifier: GPL-2.0-only
// What the tun driver writes beside packets: ICMP errors, and the headers of the TUN device.
#include <catch2/catch.hpp>

#include "tunnel/icmp_error.h"
#include "tunnel/offload.h"
#include "tunnel_packets.h"

using namespace ftctl;
using namespace tunnel_test;

TEST_CASE("fragmentation needed quotes up to 576 bytes", "[tunnel]")
{
    for (const std::size_t payload : {0, 8, 33, 527, 528, 529, 1480}) {
        CAPTURE(payload);
        Ipv4Fields f;
        f.tos = 46 << 2 | 1;
        f.frag = 0x4000;
        f.payload = Bytes(payload, 0x3c);
        const Bytes p = make_ipv4(f);
        IcmpError e;
        build_frag_needed(p, 1380, e);
        REQUIRE(e.length == 8 + std::min<std::size_t>(p.size(), 548));
        const auto m = std::span(e.bytes).first(e.length);
        CHECK(int{m[0]} == 3);
        CHECK(int{m[1]} == 4);
        CHECK(get16(m, 4) == 0);
        CHECK(get16(m, 6) == 1380);
        CHECK(checksum(m) == 0);
        CHECK(std::equal(m.begin() + 8, m.end(), p.begin()));
        CHECK(e.destination == *IpAddr::parse(f.src));
        CHECK(int{e.tos} == (0xc0 | ((46 << 2) & 0x1e)));
    }
}

TEST_CASE("no ICMP error about what may not have one", "[tunnel]")
{
    IcmpError e;
    const auto sent = [&](const Ipv4Fields &f) {
        build_frag_needed(make_ipv4(f), 1380, e);
        return e.length != 0;
    };
    CHECK(sent({}));
    Ipv4Fields f;
    f.frag = 0x2000; // first fragment
    CHECK(sent(f));
    f.frag = 0x2001;
    CHECK_FALSE(sent(f));
    for (const char *bad : {"0.0.0.0", "224.0.0.1", "255.255.255.255"}) {
        f = {};
        f.src = bad;
        CHECK_FALSE(sent(f));
        f = {};
        f.dst = bad;
        CHECK_FALSE(sent(f));
    }
    f = {};
    f.protocol = IPPROTO_ICMP;
    for (int type = 0; type < 256; ++type) {
        CAPTURE(type);
        f.payload = Bytes(16);
        f.payload[0] = static_cast<std::uint8_t>(type);
        const bool query = type == 0 || type == 8 || (type >= 13 && type <= 18);
        CHECK(sent(f) == query);
    }
    f.payload.clear();
    CHECK_FALSE(sent(f));
    const Bytes p = make_ipv4({});
    for (std::size_t n = 0; n < p.size(); ++n) {
        build_frag_needed(std::span(p).first(n), 1380, e);
        CHECK(e.length == 0);
    }
}

TEST_CASE("a finished packet gets an empty device header", "[tunnel]")
{
    for (const Bytes &p : {make_udp({}, 1, 2, Bytes(40, 7)), make_tcp({}, 0x10, Bytes(40, 7)), make_ipv4({}),
                           make_udp({}, 1, 2, Bytes(2000, 7))}) {
        VnetHeader h{
            .flags = 9, .gso_type = 9, .hdr_len = 9, .gso_size = 9, .csum_start = 9, .csum_offset = 9};
        REQUIRE(fill_vnet_header(p, 1480, h));
        CHECK(int{h.flags} == 0);
        CHECK(int{h.gso_type} == 0);
        CHECK(h.csum_start == 0);
    }
}

TEST_CASE("an unfinished checksum is left to the kernel", "[tunnel]")
{
    Ipv4Fields f;
    f.options = 4;
    VnetHeader h;
    REQUIRE(fill_vnet_header(make_udp(f, 1, 2, Bytes(40, 7), true), 1480, h));
    CHECK(h.flags == kVnetNeedsCsum);
    CHECK(int{h.gso_type} == 0);
    CHECK(h.csum_start == 24);
    CHECK(h.csum_offset == 6);
    REQUIRE(fill_vnet_header(make_tcp(f, 0x10, Bytes(41, 7), true), 1480, h));
    CHECK(h.csum_start == 24);
    CHECK(h.csum_offset == 16);
    CHECK(int{h.gso_type} == 0);

    // A fragment's payload is no header.
    f.frag = 0x2000;
    REQUIRE(fill_vnet_header(make_udp(f, 1, 2, Bytes(40, 7), true), 1480, h));
    CHECK(int{h.flags} == 0);
}

TEST_CASE("a TCP aggregate is cut to the tunnel's size, a UDP one refused", "[tunnel]")
{
    VnetHeader h;
    REQUIRE(fill_vnet_header(make_tcp({}, 0x10, Bytes(1440, 7), true), 1480, h));
    CHECK(int{h.gso_type} == 0); // fits
    REQUIRE(fill_vnet_header(make_tcp({}, 0x10, Bytes(1441, 7), true), 1480, h));
    CHECK(h.gso_type == kVnetGsoTcp4);
    CHECK(h.gso_size == 1440);
    CHECK(h.hdr_len == 40);
    CHECK(h.flags == kVnetNeedsCsum);
    REQUIRE(fill_vnet_header(make_tcp({}, 0x90, Bytes(60000, 7), true), 1480, h));
    CHECK(h.gso_type == (kVnetGsoTcp4 | kVnetGsoEcn)); // CWR only in the first segment
    CHECK_FALSE(fill_vnet_header(make_udp({}, 1, 2, Bytes(3000, 7), true), 1480, h));

    // Lengths that make no sense: no segment size comes of them.
    Bytes p = make_tcp({}, 0x10, Bytes(3000, 7), true);
    p[32] = 0x40;
    CHECK_FALSE(fill_vnet_header(p, 1480, h));
    p[32] = 0xf0;
    CHECK_FALSE(fill_vnet_header(p, 80, h));
    CHECK_FALSE(fill_vnet_header(std::span(p).first(19), 1480, h));
}
