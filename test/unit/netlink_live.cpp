// SPDX-License-Identifier: GPL-2.0-only
// Conntrack, nftables, IPsec and device features against the running kernel.
#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tcp.h>

#include "netlink/conntrack.h"
#include "netlink/policy.h"
#include "netlink/route.h"
#include "netlink_live.h"

using namespace ftctl;
using namespace netlink_live;

namespace {

constexpr std::size_t rcvbuf = 1U << 20;

/// A connected TCP pair over lo, of the family of addr.
struct TcpPair {
    Fd listener, client, server;
    Tuple orig;

    explicit TcpPair(const char *addr)
    {
        const bool v4 = ip(addr).family == AF_INET;
        sockaddr_storage ss{};
        socklen_t len = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (v4)
            reinterpret_cast<sockaddr_in *>(&ss)->sin_addr.s_addr = ip(addr).v4();
        else
            std::memcpy(&reinterpret_cast<sockaddr_in6 *>(&ss)->sin6_addr, ip(addr).bytes.data(), 16);
        ss.ss_family = v4 ? AF_INET : AF_INET6;
        auto *sa = reinterpret_cast<sockaddr *>(&ss);
        listener = Fd(socket(ss.ss_family, SOCK_STREAM, 0));
        REQUIRE(bind(listener.get(), sa, len) == 0);
        REQUIRE(listen(listener.get(), 1) == 0);
        REQUIRE(getsockname(listener.get(), sa, &len) == 0);
        client = Fd(socket(ss.ss_family, SOCK_STREAM, 0));
        REQUIRE(connect(client.get(), sa, len) == 0);
        server = Fd(accept(listener.get(), nullptr, nullptr));
        REQUIRE(server);
        const auto port = [&] {
            return ntohs(v4 ? reinterpret_cast<sockaddr_in *>(&ss)->sin_port
                            : reinterpret_cast<sockaddr_in6 *>(&ss)->sin6_port);
        };
        orig.dport = port();
        REQUIRE(getsockname(client.get(), sa, &len) == 0);
        orig.sport = port();
        orig.src = orig.dst = ip(addr);
        orig.proto = IPPROTO_TCP;
    }
};

} // namespace

TEST_CASE("live: the track table switches both families on", "[.][live]")
{
    const Scratch ns;
    const auto table = must(TrackTable::open());
    const auto nft = must(NftWatch::open());
    const auto changed = [&] {
        bool yes = false;
        return wait_for(
            nft->fd(), [&] { yes |= must(nft->read()); }, [&] { return yes; });
    };
    CHECK_FALSE(must(table->exists()));
    CHECK_FALSE(must(table->tracked_by_others(AF_INET)));
    must(table->remove()); // idempotent, and no transaction
    CHECK_FALSE(must(nft->read()));

    must(table->add());
    CHECK(changed());
    CHECK(must(table->exists()));
    CHECK_FALSE(must(table->tracked_by_others(AF_INET)));
    must(table->add());
    CHECK_FALSE(must(nft->read()));
    const auto ct = must(CtControl::open());
    for (const char *addr : {"127.0.0.1", "::1"}) {
        const TcpPair pair(addr);
        const auto entry = must(ct->get(pair.orig));
        CHECK(entry.tcp_state == TCP_CONNTRACK_ESTABLISHED);
    }

    sh("nft flush table inet ftctl");
    CHECK_FALSE(must(table->exists()));
    must(table->add()); // repairs it
    CHECK(must(table->exists()));
    must(table->remove());
    CHECK_FALSE(must(table->exists()));
    CHECK(changed());
    const TcpPair pair("127.0.0.1");
    CHECK(ct->get(pair.orig).error().err == ENOENT);
}

TEST_CASE("live: others that hold conntrack on", "[.][live]")
{
    const Scratch ns;
    const auto table = must(TrackTable::open());
    sh("nft add table ip t '{ chain c { type filter hook forward priority 0; counter; }; }'");
    CHECK_FALSE(must(table->tracked_by_others(AF_INET)));
    sh("nft add rule ip t c ct state established accept");
    CHECK(must(table->tracked_by_others(AF_INET)));
    CHECK_FALSE(must(table->tracked_by_others(AF_INET6)));
    must(table->add());
    CHECK(must(table->tracked_by_others(AF_INET)));
    CHECK_FALSE(must(table->tracked_by_others(AF_INET6)));
    sh("nft delete table ip t");
    CHECK_FALSE(must(table->tracked_by_others(AF_INET)));
    sh("nft add table inet n '{ chain p { type nat hook postrouting priority 100; oifname \"x\" masquerade; "
       "}; }'");
    CHECK(must(table->tracked_by_others(AF_INET)));
    CHECK(must(table->tracked_by_others(AF_INET6)));
}

TEST_CASE("live: conntrack entries are seen, read and changed", "[.][live]")
{
    const Scratch ns;
    const auto table = must(TrackTable::open());
    must(table->add());
    const auto events = must(CtEvents::open(rcvbuf));
    const auto ct = must(CtControl::open());
    const char *addr = GENERATE("127.0.0.1", "::1");

    std::vector<std::pair<CtEventType, CtEntry>> seen;
    const auto read = [&] {
        CHECK(must(events->read([&](CtEventType t, const CtEntry &e) { seen.emplace_back(t, e); }, 100)));
    };
    const auto has = [&](const Tuple &t, CtEventType type, std::uint32_t status) {
        return [&seen, t, type, status] {
            for (const auto &[what, e] : seen)
                if (what == type && e.orig == t && (e.status & status) == status)
                    return true;
            return false;
        };
    };
    const TcpPair pair(addr);
    CHECK(wait_for(events->fd(), read, has(pair.orig, CtEventType::created, 0)));
    CHECK(wait_for(events->fd(), read, has(pair.orig, CtEventType::updated, IPS_ASSURED)));

    auto e = must(ct->get(pair.orig));
    CHECK(e.reply == pair.orig.reversed());
    CHECK(e.tcp_state == TCP_CONNTRACK_ESTABLISHED);
    CHECK((*e.tcp_flags_orig & IP_CT_TCP_FLAG_MAXACK_SET) != 0);
    CHECK(ct->get(pair.orig.reversed()).error().err == ENOENT);

    must(ct->set_liberal(pair.orig));
    e = must(ct->get(pair.orig));
    for (const auto flags : {e.tcp_flags_orig, e.tcp_flags_reply}) {
        CHECK((flags.value() & IP_CT_TCP_FLAG_BE_LIBERAL) != 0);
        CHECK((flags.value() & IP_CT_TCP_FLAG_MAXACK_SET) == 0);
    }
    must(ct->set_timeout(pair.orig, 1000));
    CHECK(must(ct->get(pair.orig)).timeout_s.value() <= 1000);
    CHECK(must(ct->get(pair.orig)).timeout_s.value() > 900);
    must(ct->set_tcp_state(pair.orig, TCP_CONNTRACK_CLOSE, 10));
    e = must(ct->get(pair.orig));
    CHECK(e.tcp_state == TCP_CONNTRACK_CLOSE);
    CHECK(e.timeout_s.value() <= 10);
    CHECK((e.tcp_flags_orig.value() & IP_CT_TCP_FLAG_BE_LIBERAL) != 0);

    Tuple absent = pair.orig;
    absent.sport = 1;
    CHECK(ct->set_timeout(absent, 10).error().err == ENOENT);
    CHECK(ct->set_liberal(absent).error().err == ENOENT);

    unsigned count = 0;
    const TcpPair second(addr);
    must(ct->dump([&](const CtEntry &) { return ++count < 1; })); // stopped early ...
    CHECK(count == 1);
    bool found = false;
    must(ct->dump([&](const CtEntry &d) {
        found |= d.orig == pair.orig;
        return true;
    })); // ... and the next one is whole
    CHECK(found);
    unsigned changed = 0;
    must(ct->dump([&](const CtEntry &d) { // what the daemon does: admit while the dump goes on
        if (d.orig.proto == IPPROTO_TCP && d.orig.src == pair.orig.src && ct->set_liberal(d.orig))
            changed += ct->get(d.orig).has_value() ? 1 : 0;
        return true;
    }));
    CHECK(changed >= 2);
    sh("conntrack -F >/dev/null 2>&1");
    CHECK(wait_for(events->fd(), read, has(pair.orig, CtEventType::destroyed, 0)));
}

TEST_CASE("live: lost conntrack events are told", "[.][live]")
{
    const Scratch ns;
    must(must(TrackTable::open())->add());
    const auto events = must(CtEvents::open(4096));
    const Fd udp(socket(AF_INET, SOCK_DGRAM, 0));
    for (std::uint16_t port = 1000; port < 2000; port++) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = ip("127.0.0.1").v4();
        (void)sendto(udp.get(), "x", 1, 0, reinterpret_cast<sockaddr *>(&to), sizeof(to));
    }
    bool lost = false;
    const auto read = [&] { lost |= !must(events->read([](CtEventType, const CtEntry &) {}, 10)); };
    CHECK(wait_for(events->fd(), read, [&] { return lost; }));
    CHECK(must(events->read([](CtEventType, const CtEntry &) {}, 10))); // and it goes on
}

TEST_CASE("live: IPsec policies", "[.][live]")
{
    const Scratch ns;
    const auto xfrm = must(XfrmWatch::open());
    if (xfrm->fd() < 0)
        FAIL("this kernel has no XFRM");
    const Tuple t{ip("192.0.2.2"), ip("198.51.100.2"), 40000, 80, IPPROTO_TCP};
    const auto changed = [&] {
        bool yes = false;
        return wait_for(
            xfrm->fd(), [&] { yes |= must(xfrm->read()); }, [&] { return yes; });
    };
    CHECK_FALSE(must(xfrm->policies()).touches(t));
    sh("ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir in action block");
    CHECK(changed());
    CHECK_FALSE(must(xfrm->policies()).touches(t));
    sh("ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir out action block");
    CHECK(changed());
    auto p = must(xfrm->policies());
    CHECK(p.touches(t));
    CHECK(p.touches(t.reversed()));
    sh("ip xfrm policy flush");
    CHECK(changed());
    CHECK_FALSE(must(xfrm->policies()).touches(t));
    sh("ip xfrm policy add src 192.0.2.0/24 dst 0.0.0.0/0 proto tcp dport 80 dir out "
       "tmpl src 1.1.1.1 dst 2.2.2.2 proto esp mode tunnel");
    CHECK(must(xfrm->policies()).touches(t));
    sh("ip xfrm policy flush && ip xfrm policy setdefault fwd block");
    p = must(xfrm->policies());
    CHECK(p.default_block);
    CHECK(p.selectors.empty());
    CHECK(must(xfrm->read()));
}

TEST_CASE("live: device features", "[.][live]")
{
    const Scratch ns;
    sh("ip link add ra type veth peer name pa");
    const auto rt = must(RtControl::open());
    const auto f = must(device_features("ra"));
    CHECK(f.driver == "veth");
    CHECK_FALSE(f.lro);
    sh("ethtool -K ra gro on >/dev/null");
    CHECK(must(device_features("ra")).gro);
    sh("ethtool -K ra gro off >/dev/null");
    CHECK_FALSE(must(device_features("ra")).gro);
    CHECK(device_features("nope").error().err == ENODEV);
    const auto xdp = xdp_features(must(rt->link("ra")).index);
    WARN("veth XDP features: " << (xdp ? std::to_string(*xdp) : "not told (kernel before 6.3)"));
    if (xdp)
        CHECK((*xdp & 1U) != 0); // NETDEV_XDP_ACT_BASIC
    CHECK_FALSE(xdp_features(9999));
}
