// SPDX-License-Identifier: GPL-2.0-only
// One forwarded connection, what its flows and paths look like, and what the slow path would send.
//
//   client 192.0.2.2:40000 -- a [router] b -- server 198.51.100.2:80
//
// Tunnel a: the client's packets arrive inside IPIP (remote -> local); answers leave the same way.
// Tunnel b: the same on the server's side.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "bpf_run.h"

namespace ftctl::test {

enum class Nat { none, snat_addr, snat, dnat_addr, dnat, both };
inline constexpr Nat kNats[] = {Nat::none, Nat::snat_addr, Nat::snat, Nat::dnat_addr, Nat::dnat, Nat::both};

struct Tuple {
    std::uint32_t src = 0;
    std::uint32_t dst = 0;
    std::uint16_t sport = 0;
    std::uint16_t dport = 0;
};

/// The direction under test is the original one, or with `reply` the other.
struct Scenario {
    Hook hook = Hook::xdp;
    Proto proto = kTcp;
    Nat nat = Nat::none;
    bool reply = false;
    bool tunnel_a = false;
    bool tunnel_b = false;
    bool v6 = false;       ///< the (inner) packets are IPv6
    bool outer6_a = false; ///< the tunnel's outer header is IPv6
    bool outer6_b = false;
    std::vector<std::uint16_t> vlans_a; ///< VIDs, outermost first; 802.1ad outside where there are two
    std::vector<std::uint16_t> vlans_b;
    std::uint16_t pppoe_a = 0; ///< session, 0: none
    std::uint16_t pppoe_b = 0;
    bool all_words = false; ///< deltas over unchanged words as well (equal in one's complement)

    // the way out of the direction under test
    std::uint16_t mtu = 1480;
    bool tun_df = true;
    bool tos_inherit = false;
    std::uint8_t tun_tos = 0;
    std::uint8_t tun_ttl = 64;
    std::optional<std::uint8_t> tun_limit; ///< outer IPv6: encapsulation limit
    std::uint32_t tun_label = 0;           ///< outer IPv6
    bool label_inherit = false;

    [[nodiscard]] Device in_device() const { return reply ? kDevB : kDevA; }
    [[nodiscard]] Device out_device() const { return reply ? kDevA : kDevB; }
    [[nodiscard]] bool in_tunnel() const { return reply ? tunnel_b : tunnel_a; }
    [[nodiscard]] bool out_tunnel() const { return reply ? tunnel_a : tunnel_b; }
    /// Bytes of the inner IP header.
    [[nodiscard]] std::size_t ip_len() const { return v6 ? 40 : 20; }
    /// The first IP header in the frame is one of IPv6.
    [[nodiscard]] bool first_v6() const { return in_tunnel() ? in_outer6() : v6; }
    [[nodiscard]] bool in_outer6() const { return reply ? outer6_b : outer6_a; }
    [[nodiscard]] bool out_outer6() const { return reply ? outer6_a : outer6_b; }
    [[nodiscard]] const std::vector<std::uint16_t> &in_vlans() const { return reply ? vlans_b : vlans_a; }
    [[nodiscard]] const std::vector<std::uint16_t> &out_vlans() const { return reply ? vlans_a : vlans_b; }
    [[nodiscard]] std::uint16_t in_pppoe() const { return reply ? pppoe_b : pppoe_a; }
    [[nodiscard]] std::uint16_t out_pppoe() const { return reply ? pppoe_a : pppoe_b; }
    [[nodiscard]] Scenario other_direction() const;

    [[nodiscard]] Tuple arrives() const; ///< as the direction's packets come in
    [[nodiscard]] Tuple leaves() const;  ///< ... and go out

    [[nodiscard]] ftctl_tuple key() const;
    [[nodiscard]] ftctl_sample_key sample_key() const;
    [[nodiscard]] ftctl_flow6 flow() const; ///< live, generation 1
    [[nodiscard]] ftctl_path path() const;
    [[nodiscard]] std::uint32_t path_index() const { return reply ? 9 : 8; }

    /// Resets the rig, then installs slots, both paths and both flows.
    void install() const;
    /// Changes the installed flow of this direction.
    template <typename Change>
    void change_flow(Change &&change) const
    {
        ftctl_flow6 now = Rig::get().flow6(key()).value();
        change(now.flow);
        Rig::get().set_flow(key(), now);
    }
    template <typename Change>
    void change_path(Change &&change) const
    {
        ftctl_path now = path();
        change(now.body[now.active]);
        Rig::get().set_path(path_index(), now);
    }

    /// A packet of the direction as it arrives.
    [[nodiscard]] Packet packet(std::size_t payload = 100) const;
    /// What the slow path sends for it. Only for packets that it forwards.
    [[nodiscard]] Packet forwarded(const Packet &in) const;

    /// Before 6.3, TC cannot take off a tunnel whose outer header is of the other family: the packet is the
    /// stack's.
    [[nodiscard]] bool changes_family_in_vain() const;

    [[nodiscard]] std::string describe() const;
};

/// The IPv6 address that stands for an IPv4 address in IPv6 scenarios; NAT addresses differ in every word.
Addr6 addr6(std::uint32_t v4);
ftctl_addr abi(const Addr6 &addr);

/// Features without a probe come by version.
bool kernel_at_least(unsigned major, unsigned minor);

/// Every combination of hook, direction and tunnel.
std::vector<Scenario> scenarios(std::initializer_list<Proto> protos, std::initializer_list<Nat> nats,
                                bool tunnels);

/// What came of one packet. The rules for every packet are checked on the way: one packet counted, as fast
/// or under one reason; verdict and counter agree; passed means untouched.
struct Outcome {
    Run run;
    bool fast = false;
    unsigned reason = 0;
    std::uint64_t fast_bytes = 0;
};
Outcome observe(const Scenario &scenario, const Bytes &frame, Gso gso = {});

/// The packet is taken and leaves as the slow path would have sent it; the flow counts it.
void expect_fast(const Scenario &scenario, const Packet &in, Gso gso = {});
/// The packet goes to the stack for one of these reasons.
void expect_pass(const Scenario &scenario, const Bytes &frame, std::initializer_list<unsigned> reasons,
                 Gso gso = {});
inline void expect_pass(const Scenario &scenario, const Packet &in, std::initializer_list<unsigned> reasons,
                        Gso gso = {})
{
    expect_pass(scenario, in.bytes(), reasons, gso);
}
/// Taken or not, but when taken then right.
Outcome expect_exact(const Scenario &scenario, const Packet &in);
/// Fails when the frame is not what the slow path would have sent (the outer ID aside).
void check_frame(Packet want, const Bytes &got);

} // namespace ftctl::test
