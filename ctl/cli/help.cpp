// SPDX-License-Identifier: GPL-2.0-only
#include "cli/help.h"

#include <map>

namespace ftctl {

std::string filter_help()
{
    return "proto P, src A[/n], dst A[/n], sport N, dport N, dev D, state S, tunnel T; all must hold";
}

std::string help_examples(const std::string &command)
{
    static const std::map<std::string, std::string> texts{
        {"", R"(Examples:
  ftctl doctor                            can this machine do it?
  ftctl attach eth0 eth1                  forward established connections between them
  ftctl status                            what is attached, and is it working
  ftctl flows dst 198.51.100.2 dport 443  who talks to this server
  ftctl stats                             why did packets take the slow path

Exit codes: 0 done, 1 usage, 2 refused, 3 not running or not attached, 4 done in part.)"},
        {"attach", R"(Attach all devices that flows pass through, the way in and the way out.

Examples:
  ftctl attach eth0 eth1                  the hook that suits each device
  ftctl attach br0 ppp0                   the bridge's ports, and the device below ppp0
  ftctl attach --mode tc eth0             TC: keeps aggregated packets whole, obeys qdiscs
  ftctl attach --dry-run eth0 eth1        say what would be done)"},
        {"detach", R"(Connections go on through the stack. Works without a daemon as well.

Examples:
  ftctl detach eth0
  ftctl detach --all                      leave the machine as it was found)"},
        {"status", R"(Examples:
  ftctl status
  ftctl -j status | jq .daemon)"},
        {"flows", R"(Two lines a connection, one for each direction. LEAVES AS is shown where NAT
changes something; ENCAP: - is taken off, + is put on.

States: pending (not yet seen to be forwarded as predicted), live, closing,
stale (being checked again), refused (only shown when asked for).

Examples:
  ftctl flows
  ftctl flows proto tcp dst 198.51.100.0/24 dport 443
  ftctl flows state refused               and the reasons
  ftctl flows dev eth0 --count
  ftctl -j flows src 192.0.2.2 | jq '.[].orig.bytes')"},
        {"flush", R"(The connections live on in the stack and come back when they qualify again.

Examples:
  ftctl flush src 192.0.2.2
  ftctl flush                             all)"},
        {"stats", R"(For each device: rx = fast + the sum of the reasons.

Examples:
  ftctl stats
  ftctl -j stats | jq '.devices[0].reasons')"},
        {"explain", R"(Runs the real program on a packet made from these words.

Examples:
  ftctl explain tcp 192.0.2.2:40000 198.51.100.2:80
  ftctl explain udp 192.0.2.2:5000 198.51.100.2:53 dev eth0
  ftctl explain tcp [2001:db8::2]:40000 [2001:db8:1::2]:80)"},
        {"monitor", R"(Examples:
  ftctl monitor
  ftctl monitor | jq 'select(.event == "refused")')"},
        {"top", R"(q or ctrl-C leaves. Where output is no terminal: once, with the rates of a second.)"},
        {"tunnel", R"(Without a word: list.)"},
        {"rpf", R"(strict: the route back to the source uses this device; loose: there is one.
With ",log" packets are only counted; log alone is strict,log.

Examples:
  ftctl rpf eth1 strict,log
  ftctl -j stats | jq '.devices[] | .reasons["rpf-log"]'
  ftctl rpf eth1 strict)"},
        {"filter", R"(Without a word: list. The rule with the lowest id that matches decides; without
one the packet is accepted.)"},
        {"filter add", R"(Examples:
  ftctl filter add src 198.51.100.0/24 drop
  ftctl filter add dev eth1 proto udp dport 11211 drop comment "memcached"
  ftctl filter add src 192.0.2.7 accept id 1
  ftctl filter add inner dst 10.0.0.0/8 drop       what is inside of tunnels)"},
        {"filter load", R"(One rule a line with the words of `filter add` ('#' begins a comment), or JSON as
`ftctl -j filter list` prints it. Rules that stay the same keep their counters.

Examples:
  ftctl filter load /etc/ftctl/blocklist
  sed 's/.*/src & drop/' prefixes.txt | ftctl filter load -)"},
        {"tunnel add", R"(Examples:
  ftctl tunnel add tun0 mode ipip local 203.0.113.1 remote 203.0.113.2
  ftctl tunnel add tun0 mode ipip local 203.0.113.1 remote 203.0.113.2 ttl 64 tos inherit dev eth1
  ftctl tunnel add ds0 mode 4in6 local 2001:db8::1 remote 2001:db8::2 tos 0xb8 encaplimit none
Then: ip address add ... dev tun0; ip link set tun0 up; ip route add ... dev tun0)"},
        {"doctor", R"(FAIL: ftctl does not work here without it (exit code 2). WARN: it works, less well.)"},
        {"config check", R"(Examples:
  ftctl config check /etc/ftctl/ftctl.json)"},
    };
    const auto it = texts.find(command);
    return it == texts.end() ? std::string() : it->second;
}

} // namespace ftctl
