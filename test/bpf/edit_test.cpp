// SPDX-License-Identifier: GPL-2.0-only
// flow_edit: changes in place, and only what was asked for.
#include <cerrno>
#include <cstring>

#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

ftctl_flow_edit everything(const Scenario &s)
{
    ftctl_flow_edit edit{};
    edit.key = s.key();
    edit.state = FTCTL_FLOW_PENDING;
    edit.path = 1234;
    edit.id = 99;
    edit.trickle_s = 77;
    return edit;
}

} // namespace

TEST_CASE("flow_edit sets what its flags say and nothing else", "[edit]")
{
    for (const Scenario &s : scenarios({kTcp, kUdp}, {Nat::both}, true)) {
        for (unsigned what = 0; what < 16; ++what) {
            s.install();
            s.change_flow([](ftctl_flow &f) {
                f.carried = count_of(5, 555);
                f.trickle_s = 10;
                f.last_seen = 42;
            });
            ftctl_flow want = Rig::get().flow(s.key()).value();
            const ftctl_flow other = Rig::get().flow(s.other_direction().key()).value();
            ftctl_flow_edit edit = everything(s);
            edit.what = what;
            REQUIRE(Rig::get().edit(edit) == 0);
            if ((what & FTCTL_EDIT_STATE) != 0)
                want.state = edit.state;
            if ((what & FTCTL_EDIT_PATH) != 0)
                want.path = edit.path;
            if ((what & FTCTL_EDIT_ID) != 0)
                want.id = edit.id;
            if ((what & FTCTL_EDIT_TRICKLE) != 0)
                want.trickle_s = static_cast<std::uint8_t>(edit.trickle_s);
            INFO(s.describe() << " what " << what);
            const ftctl_flow got = Rig::get().flow(s.key()).value();
            CHECK(std::memcmp(&got, &want, sizeof got) == 0);
            const ftctl_flow other_now = Rig::get().flow(s.other_direction().key()).value();
            CHECK(std::memcmp(&other_now, &other, sizeof other) == 0);
        }
    }
}

TEST_CASE("flow_edit leads out of CLOSING and DIFFERS", "[edit]")
{
    for (const std::uint32_t state : {FTCTL_FLOW_CLOSING, FTCTL_FLOW_DIFFERS, FTCTL_FLOW_LIVE}) {
        Scenario s;
        s.install();
        s.change_flow([&](ftctl_flow &f) { f.state = state; });
        ftctl_flow_edit edit = everything(s);
        edit.what = FTCTL_EDIT_STATE;
        REQUIRE(Rig::get().edit(edit) == 0);
        CHECK(Rig::get().flow(s.key())->state == FTCTL_FLOW_PENDING);
        expect_pass(s, s.packet(), {FTCTL_R_PENDING});
    }
}

TEST_CASE("flow_edit of what is not there", "[edit]")
{
    Scenario s;
    s.install();
    ftctl_flow_edit edit = everything(s);
    edit.what = FTCTL_EDIT_STATE;
    edit.key.sport ^= 0xffff;
    CHECK(Rig::get().edit(edit) == -ENOENT);
    edit = everything(s);
    edit.what = FTCTL_EDIT_STATE;
    edit.key.tunnel = FTCTL_TUNNEL_IPV4;
    CHECK(Rig::get().edit(edit) == -ENOENT);
    CHECK(Rig::get().flow(s.key())->state == FTCTL_FLOW_LIVE);
}
