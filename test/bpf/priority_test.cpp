// SPDX-License-Identifier: GPL-2.0-only
// VLAN priorities: the PCP of a tag by the priority that ip_forward() gives a packet for its TOS.
#include <vector>

#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

struct Priority {
    std::uint8_t tos;
    unsigned priority; ///< ip_tos2prio[] of the kernel, read there, not computed here
};
const std::vector<Priority> kPriorities = {{0x00, 0}, {0x02, 0}, {0x08, 2}, {0x0a, 2}, {0x10, 6},
                                           {0x18, 4}, {0xb8, 4}, {0xc0, 0}, {0x28, 2}, {0xb9, 4}};
/// By priority: of the outer and of the inner tag.
constexpr unsigned kOuter[8] = {1, 2, 3, 4, 5, 6, 7, 0};
constexpr unsigned kInner[8] = {7, 0, 6, 5, 4, 3, 2, 1};

std::uint32_t packed(const unsigned (&by_priority)[8])
{
    std::uint32_t map = 0;
    for (unsigned i = 0; i < 8; ++i)
        map |= by_priority[i] << (4 * i);
    return map;
}

Scenario tagged(Hook hook, std::vector<std::uint16_t> vlans, bool tunnel)
{
    Scenario s;
    s.hook = hook;
    s.vlans_b = std::move(vlans);
    s.tunnel_b = tunnel;
    s.mtu = 1400;
    return s;
}

void install(const Scenario &s)
{
    s.install();
    s.change_path([](ftctl_path_body &body) {
        body.pcp[0] = packed(kOuter);
        body.pcp[1] = packed(kInner);
    });
}

/// As the kernel's VLAN devices would send it.
Packet with_priorities(const Scenario &s, const Packet &in, unsigned priority)
{
    Packet out = s.forwarded(in);
    out.tags[2] |= static_cast<std::uint8_t>(kOuter[priority] << 5);
    if (out.tags.size() > 4)
        out.tags[6] |= static_cast<std::uint8_t>(kInner[priority] << 5);
    return out;
}

} // namespace

TEST_CASE("tags leave with the priority of the packet's TOS", "[priority]")
{
    for (const Hook hook : {Hook::xdp, Hook::tc})
        for (const bool tunnel : {false, true})
            for (const std::vector<std::uint16_t> &vlans : {std::vector<std::uint16_t>{10}, {100, 20}})
                for (const Priority &p : kPriorities) {
                    const Scenario s = tagged(hook, vlans, tunnel);
                    install(s);
                    CAPTURE(s.describe(), int{p.tos});
                    Packet in = s.packet();
                    in.ip.tos = p.tos;
                    const Outcome out = observe(s, in.bytes());
                    REQUIRE(out.fast);
                    Packet want = with_priorities(s, in, p.priority);
                    if (hook == Hook::tc) // the outermost tag is beside the frame, not in it
                        want.tags.erase(want.tags.begin(), want.tags.begin() + 4);
                    check_frame(want, out.run.bytes);
                }
}

TEST_CASE("the witness expects each tag's priority", "[priority]")
{
    for (const std::vector<std::uint16_t> &vlans : {std::vector<std::uint16_t>{10}, {100, 20}})
        for (const Priority &p : kPriorities)
            for (const std::size_t wrong : {0, 2, 6}) { // the byte of the tags that has another PCP; 0: none
                if (wrong >= vlans.size() * 4)
                    continue;
                const Scenario s = tagged(Hook::tc, vlans, false);
                install(s);
                s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_PENDING; });
                Packet in = s.packet();
                in.ip.tos = p.tos;
                expect_pass(s, in, {FTCTL_R_PENDING});
                Packet sent = with_priorities(s, in, p.priority);
                if (wrong)
                    sent.tags[wrong] ^= 0x20;
                (void)Rig::get().egress(s.out_device(), sent.bytes());
                const ftctl_flow flow = Rig::get().flow(s.key()).value();
                CAPTURE(s.describe(), int{p.tos}, wrong);
                CHECK(flow.state == (wrong ? FTCTL_FLOW_DIFFERS : FTCTL_FLOW_LIVE));
                if (wrong)
                    CHECK(flow.detail == FTCTL_D_VLAN);
            }
}
