// SPDX-License-Identifier: GPL-2.0-only
// What the daemon's view says about IPv6 settings and rules of a namespace.
#include <catch2/catch.hpp>

#include "daemon/kernel_view.h"
#include "netlink_live.h"

using namespace ftctl;
using namespace netlink_live;

TEST_CASE("live: IPv6 settings are read, polled and told apart from IPv4's", "[.][live]")
{
    const Scratch ns;
    sh("ip link add ra type veth peer name pa && ip link set ra up && ip link set pa up");
    sh("ip addr add 2001:db8:a::1/64 dev ra nodad && ip addr add 2001:db8:b::1/64 dev pa nodad");
    const auto view = must(KernelView::open());
    const auto ra = view->link_by_name("ra")->index;
    const auto pa = view->link_by_name("pa")->index;
    view->set_attached(ra, true);

    CHECK(view->ipv6_mtu(ra) == 1500);
    CHECK(view->ipv6_mtu(pa) == 1500); // not attached: polled since asked about
    CHECK_FALSE(view->poll_sysctls()); // a question changes nothing
    for (const char *dev : {"ra", "pa"}) {
        CAPTURE(dev);
        set_sysctl(std::string("net/ipv6/conf/") + dev + "/mtu", "1400");
        CHECK(view->poll_sysctls());
        CHECK(view->ipv6_mtu(dev == std::string("ra") ? ra : pa) == 1400);
    }
    set_sysctl("net/ipv6/conf/all/forwarding", "1");
    CHECK(view->poll_sysctls());
    CHECK_FALSE(view->poll_sysctls());

    for (const int value : {0, 1, 3}) {
        set_sysctl("net/ipv6/auto_flowlabels", std::to_string(value));
        (void)view->poll_sysctls();
        CHECK(view->auto_flow_labels() == value);
    }
}

TEST_CASE("live: answers about routes are kept until something changed", "[.][live]")
{
    const Scratch ns;
    sh("ip link add ra type veth peer name pa && ip link set ra up && ip link set pa up");
    sh("ip addr add 192.0.2.1/24 dev ra && ip route add 203.0.113.0/24 via 192.0.2.8");
    const auto view = must(KernelView::open());
    RouteQuery query;
    query.dst = *IpAddr::parse("203.0.113.7");
    const auto gateway = [&] { return must(view->route(query)).gateway.str(); };
    CHECK(gateway() == "192.0.2.8");
    sh("ip route replace 203.0.113.0/24 via 192.0.2.9");
    CHECK(gateway() == "192.0.2.8"); // nobody has told the view yet
    view->forget_routes();
    CHECK(gateway() == "192.0.2.9");

    view->suspect_routes(); // a route has changed: nothing is kept until all are known again
    CHECK(gateway() == "192.0.2.9");
    sh("ip route replace 203.0.113.0/24 via 192.0.2.8");
    CHECK(gateway() == "192.0.2.8");
    REQUIRE(view->refresh_rules());
    CHECK(gateway() == "192.0.2.8");
    sh("ip route replace 203.0.113.0/24 via 192.0.2.9");
    CHECK(gateway() == "192.0.2.8");

    // Where ports, or a hash, or a setting have a say, the kernel is always asked.
    for (const char *change : {"ip rule add dport 53 table 100", "ip rule del dport 53 table 100",
                               "ip route add 198.18.0.0/24 nexthop via 192.0.2.8 nexthop via 192.0.2.9"}) {
        CAPTURE(change);
        sh(change);
        REQUIRE(view->refresh_rules());
        const bool kept = std::string(change).find(" del ") != std::string::npos;
        sh("ip route replace 203.0.113.0/24 via 192.0.2.8");
        CHECK(gateway() == "192.0.2.8");
        sh("ip route replace 203.0.113.0/24 via 192.0.2.9");
        CHECK(gateway() == (kept ? "192.0.2.8" : "192.0.2.9"));
    }
    sh("ip route del 198.18.0.0/24");
    set_sysctl("net/ipv4/ip_forward_use_pmtu", "1");
    CHECK(view->poll_sysctls());
    REQUIRE(view->refresh_rules());
    CHECK(gateway() == "192.0.2.9");
    sh("ip route replace 203.0.113.0/24 via 192.0.2.8");
    CHECK(gateway() == "192.0.2.8");
}

TEST_CASE("live: rules and next hops of one family are no obstacle to the other", "[.][live]")
{
    const Scratch ns;
    sh("ip link add ra type veth peer name pa && ip link set ra up && ip link set pa up");
    sh("ip addr add 2001:db8:a::1/64 dev ra nodad && ip addr add 2001:db8:b::1/64 dev pa nodad");
    const auto view = must(KernelView::open());
    CHECK_FALSE(view->policy_routed(AF_INET));
    CHECK_FALSE(view->policy_routed(AF_INET6));
    CHECK_FALSE(view->flow_label_routed());

    sh("ip -6 rule add fwmark 1 table 100");
    REQUIRE(view->refresh_rules());
    CHECK(view->policy_routed(AF_INET6));
    CHECK_FALSE(view->policy_routed(AF_INET));
    view->marks_are_known(true);
    CHECK_FALSE(view->policy_routed(AF_INET6));
    sh("ip -6 rule add tos 0x10 table 100");
    REQUIRE(view->refresh_rules());
    CHECK(view->policy_routed(AF_INET6));
    sh("ip rule add tos 0x10 table 100 && ip -6 rule del tos 0x10");
    REQUIRE(view->refresh_rules());
    CHECK(view->policy_routed(AF_INET));
    CHECK_FALSE(view->policy_routed(AF_INET6));

    sh("ip -6 route add 2001:db8:9::/64 nexthop via 2001:db8:a::2 nexthop via 2001:db8:b::2");
    REQUIRE(view->refresh_rules());
    CHECK(view->flow_label_routed());
    set_sysctl("net/ipv6/fib_multipath_hash_policy", "1"); // ports in place of the label
    (void)view->poll_sysctls();
    CHECK_FALSE(view->flow_label_routed());
}
