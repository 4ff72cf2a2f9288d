// SPDX-License-Identifier: GPL-2.0-only
// Against the running kernel, in a network namespace of its own. Hidden from a plain run of
// unit_tests (they need root and iproute2): unit_tests "[live]".
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <linux/neighbour.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/rtnetlink.h>

#include "netlink/conntrack.h"
#include "netlink/policy.h"
#include "netlink/route.h"
#include "util/fd.h"

using namespace ftctl;

namespace {

constexpr std::size_t rcvbuf = 1U << 20;

void sh(const std::string &command)
{
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0); // NOLINT: tests set up with the tools of the trade
}

void set_sysctl(const std::string &name, const std::string &value)
{
    std::ofstream f("/proc/sys/" + name);
    f << value << std::flush;
    INFO(name);
    REQUIRE(f.good());
}

/// This thread in a new namespace, and back.
class Scratch {
  public:
    Scratch() : home_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC))
    {
        if (!home_ || unshare(CLONE_NEWNET) != 0)
            FAIL("needs root: cannot make a network namespace: " << strerror(errno));
        sh("ip link set lo up");
    }
    ~Scratch()
    {
        if (home_)
            (void)setns(home_.get(), CLONE_NEWNET);
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

  private:
    Fd home_;
};

template <typename T>
T must(Result<T> r)
{
    if (!r)
        FAIL(r.error().what << ": " << r.error().why);
    return std::move(*r);
}
void must(const Status &s)
{
    if (!s)
        FAIL(s.error().what << ": " << s.error().why);
}

/// Reads whenever fd is readable until done() or five seconds are over.
bool wait_for(int fd, const std::function<void()> &read, const std::function<bool()> &done)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!done()) {
        pollfd p{fd, POLLIN, 0};
        if (std::chrono::steady_clock::now() > end)
            return false;
        if (poll(&p, 1, 100) > 0)
            read();
    }
    return true;
}

IpAddr ip(const char *text)
{
    return IpAddr::parse(text).value();
}

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
            memcpy(&reinterpret_cast<sockaddr_in6 *>(&ss)->sin6_addr, ip(addr).bytes.data(), 16);
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

TEST_CASE("live: routes as the kernel takes them", "[.][live]")
{
    const Scratch ns;
    sh("ip link add ra type veth peer name pa && ip link add rb type veth peer name pb");
    sh("for d in ra pa rb pb; do ip link set $d up; done");
    sh("ip addr add 192.0.2.1/24 dev ra && ip addr add 198.51.100.1/24 dev rb");
    sh("ip addr add 2001:db8:a::1/64 dev ra nodad && ip addr add 2001:db8:b::1/64 dev rb nodad");
    sh("ip route add default via 198.51.100.2 mtu lock 1400 && ip -6 route add default via 2001:db8:b::2");
    set_sysctl("net/ipv4/ip_forward", "1");
    set_sysctl("net/ipv6/conf/all/forwarding", "1");
    for (const char *d : {"all", "ra", "rb"})
        set_sysctl(std::string("net/ipv4/conf/") + d + "/rp_filter", "1");
    CHECK(sysctl_number("net.ipv4.ip_forward") == 1);
    const auto rt = must(RtControl::open());
    const auto ra = must(rt->link("ra")).index;
    const auto rb = must(rt->link("rb")).index;

    RouteQuery q;
    q.dst = ip("203.0.113.9");
    q.src = ip("192.0.2.2");
    q.iif = ra;
    q.proto = IPPROTO_TCP;
    q.sport = 40000;
    q.dport = 80;
    q.tos = 0xb9;
    auto a = must(rt->route(q));
    CHECK(a.type == RTN_UNICAST);
    CHECK(a.oif == rb);
    CHECK(a.gateway == ip("198.51.100.2"));
    CHECK(a.mtu == 1400);
    CHECK(a.mtu_locked);
    CHECK(a.table == RT_TABLE_MAIN);
    q.proto = IPPROTO_GRE; // the kernel refuses to be asked; without, it answers
    CHECK(must(rt->route(q)).oif == rb);

    q.src = ip("198.51.100.9"); // lives behind rb, arrives on ra: strict reverse path
    const auto refused = rt->route(q);
    REQUIRE_FALSE(refused);
    CHECK((refused.error().err == EXDEV || refused.error().err == EINVAL)); // EINVAL since 6.14
    for (const char *d : {"all", "ra"})
        set_sysctl(std::string("net/ipv4/conf/") + d + "/rp_filter", "0");
    CHECK(must(rt->route(q)).oif == rb);
    q.src = ip("192.0.2.2");
    q.dst = ip("192.0.2.1");
    CHECK(must(rt->route(q)).type == RTN_LOCAL);
    sh("ip route add unreachable 203.0.113.128/25 && ip route add prohibit 203.0.113.64/26");
    q.dst = ip("203.0.113.129");
    CHECK(rt->route(q).error().err == EHOSTUNREACH);
    q.dst = ip("203.0.113.65");
    CHECK(rt->route(q).error().err == EACCES);

    RouteQuery q6;
    q6.dst = ip("2001:db8:c::9");
    q6.src = ip("2001:db8:a::2");
    q6.iif = ra;
    q6.proto = IPPROTO_UDP;
    q6.sport = q6.dport = 53;
    a = must(rt->route(q6));
    CHECK(a.oif == rb);
    CHECK(a.gateway == ip("2001:db8:b::2"));
    CHECK(a.table == RT_TABLE_MAIN);
    RouteQuery out;
    out.dst = ip("198.51.100.7");
    a = must(rt->route(out));
    CHECK(a.prefsrc == ip("198.51.100.1"));
    CHECK_FALSE(a.gateway);

    sh("ip route add 203.0.113.32/28 via inet6 fe80::77 dev rb");
    q.dst = ip("203.0.113.33");
    CHECK(must(rt->route(q)).gateway == ip("fe80::77"));

    const auto begin = std::chrono::steady_clock::now();
    constexpr int rounds = 20000;
    q.dst = ip("203.0.113.9");
    for (int i = 0; i < rounds; i++)
        REQUIRE(rt->route(q).has_value());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    WARN("route query: " << took.count() / rounds << " us");
}

TEST_CASE("live: rules and route traits", "[.][live]")
{
    const Scratch ns;
    const auto rt = must(RtControl::open());
    sh("ip link add ra type veth peer name pa && ip link set ra up && ip link set pa up");
    sh("ip addr add 192.0.2.1/24 dev ra && ip addr add 2001:db8:a::1/64 dev ra nodad");
    for (const std::uint8_t family : {AF_INET, AF_INET6}) {
        const auto s = must(rt->rules(family));
        CHECK_FALSE((s.fwmark || s.tos || s.other));
        const auto t = must(rt->route_traits(family));
        CHECK_FALSE((t.tos || t.multipath));
    }
    sh("ip rule add fwmark 1 lookup 100 && ip -6 rule add tos 0x10 lookup 100");
    CHECK(must(rt->rules(AF_INET)).fwmark);
    CHECK_FALSE(must(rt->rules(AF_INET)).tos);
    CHECK_FALSE(must(rt->rules(AF_INET6)).fwmark);
    CHECK(must(rt->rules(AF_INET6)).tos);
    sh("ip rule add uidrange 0-10 lookup 100");
    CHECK(must(rt->rules(AF_INET)).other);

    sh("ip route add 203.0.113.0/24 tos 0x10 via 192.0.2.9");
    CHECK(must(rt->route_traits(AF_INET)).tos);
    CHECK_FALSE(must(rt->route_traits(AF_INET)).multipath);
    sh("ip route add 198.18.0.0/24 table 77 nexthop via 192.0.2.8 nexthop via 192.0.2.9");
    CHECK(must(rt->route_traits(AF_INET)).multipath);
    sh("ip -6 route add 2001:db8:c::/64 nexthop via 2001:db8:a::8 nexthop via 2001:db8:a::9");
    CHECK(must(rt->route_traits(AF_INET6)).multipath);
    CHECK_FALSE(must(rt->route_traits(AF_INET6)).tos);

    sh("ip route del 198.18.0.0/24 table 77");
    set_sysctl("net/ipv4/nexthop_compat_mode", "0"); // only ids are told now
    sh("ip nexthop add id 1 via 192.0.2.8 dev ra && ip nexthop add id 2 via 192.0.2.9 dev ra");
    sh("ip route add 198.18.0.0/24 nhid 1");
    CHECK_FALSE(must(rt->route_traits(AF_INET)).multipath);
    sh("ip nexthop add id 3 group 1/2 && ip route add 198.18.1.0/24 nhid 3");
    CHECK(must(rt->route_traits(AF_INET)).multipath);
}

TEST_CASE("live: links, neighbours, and their events", "[.][live]")
{
    const Scratch ns;
    const auto events = must(RtEvents::open());
    const auto rt = must(RtControl::open());
    std::vector<RtEvent> seen;
    const auto read = [&] { must(events->read([&](const RtEvent &e) { seen.push_back(e); })); };
    const auto until = [&](const std::function<bool(const RtEvent &)> &match) {
        const bool ok = wait_for(events->fd(), read, [&] {
            for (const auto &e : seen)
                if (match(e))
                    return true;
            return false;
        });
        seen.clear();
        return ok;
    };
    sh("ip link add ra address 02:00:00:00:00:0a mtu 1400 type veth peer name pa");
    CHECK(until([](const RtEvent &e) {
        const auto *l = std::get_if<LinkChanged>(&e);
        return l && l->link.name == "ra" && l->link.kind == "veth";
    }));
    sh("ip link add br0 type bridge && ip link set ra master br0 && ip link set ra up && ip link set pa up");
    CHECK(until([](const RtEvent &e) {
        const auto *l = std::get_if<LinkChanged>(&e);
        return l && l->link.name == "ra" && l->link.master != 0;
    }));
    auto ra = must(rt->link("ra"));
    CHECK(ra.mac.str() == "02:00:00:00:00:0a");
    CHECK(ra.mtu == 1400);
    CHECK(ra.master_kind == "bridge");
    CHECK(ra.lower == must(rt->link("pa")).index);
    CHECK(must(rt->link(ra.master)).kind == "bridge");
    CHECK(rt->link("nope").error().err == ENODEV);
    CHECK(rt->link(9999).error().err == ENODEV);
    CHECK(must(rt->links()).size() == 4);
    sh("ip link set ra nomaster && ip link set br0 up && ip link del br0");
    CHECK(until([](const RtEvent &e) {
        const auto *l = std::get_if<LinkGone>(&e);
        return l && l->name == "br0";
    }));

    sh("ip addr add 192.0.2.1/24 dev ra && ip addr add 2001:db8:a::1/64 dev ra nodad");
    CHECK(until([](const RtEvent &e) {
        const auto *a = std::get_if<AddrChanged>(&e);
        return a && a->addr == ip("2001:db8:a::1") && !a->gone;
    }));
    for (const char *text : {"192.0.2.77", "2001:db8:a::77"}) {
        const IpAddr peer = ip(text);
        CHECK_FALSE(must(rt->neighbour(ra.index, peer)));
        must(rt->probe_neighbour(ra.index, peer));
        CHECK(until([&](const RtEvent &e) { // nobody answers: resolving, then failed
            const auto *n = std::get_if<NeighChanged>(&e);
            return n && n->neigh.addr == peer && !n->neigh.valid();
        }));
        CHECK(must(rt->neighbour(ra.index, peer)));
        sh(std::string("ip neigh replace ") + text + " lladdr 02:00:00:00:00:77 dev ra nud stale");
        CHECK(until([&](const RtEvent &e) {
            const auto *n = std::get_if<NeighChanged>(&e);
            return n && n->neigh.addr == peer && n->neigh.mac.str() == "02:00:00:00:00:77";
        }));
        must(rt->probe_neighbour(ra.index, peer)); // stale: checks it, keeps the address
        const auto n = must(rt->neighbour(ra.index, peer));
        REQUIRE(n);
        CHECK(n->mac.str() == "02:00:00:00:00:77");
        CHECK((n->state & (NUD_DELAY | NUD_PROBE)) != 0);
        CHECK_FALSE(must(rt->neighbours()).empty());
        sh(std::string("ip neigh del ") + text + " dev ra");
        CHECK(until([&](const RtEvent &e) {
            const auto *g = std::get_if<NeighChanged>(&e);
            return g && g->neigh.addr == peer && (g->gone || !g->neigh.valid());
        }));
    }
    sh("ip route add 203.0.113.0/24 via 192.0.2.9 table 500");
    CHECK(until([](const RtEvent &e) {
        const auto *r = std::get_if<RouteChanged>(&e);
        return r && r->dst.str() == "203.0.113.0/24" && r->table == 500;
    }));
    sh("ip rule add fwmark 1 lookup 500");
    CHECK(until([](const RtEvent &e) { return std::holds_alternative<RuleChanged>(e); }));
    set_sysctl("net/ipv4/conf/ra/rp_filter", "2");
    CHECK(until([](const RtEvent &e) { return std::holds_alternative<NetconfChanged>(e); }));
    sh("ip nexthop add id 1 via 192.0.2.8 dev ra");
    CHECK(until([](const RtEvent &e) { return std::holds_alternative<NexthopChanged>(e); }));
    sh("for i in $(seq 1 200); do for j in $(seq 1 200); do echo route replace 10.$i.$j.0/24 via 192.0.2.9; "
       "done; done | ip -batch -"); // more than the receive buffer holds
    CHECK(until([](const RtEvent &e) { return std::holds_alternative<Overrun>(e); }));
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
