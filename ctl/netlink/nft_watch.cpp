// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/policy.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "netlink/socket.h"

namespace ftctl {
namespace {

class Watch final : public NftWatch {
  public:
    explicit Watch(nl::EventSocket events) : events_(std::move(events)) {}
    [[nodiscard]] int fd() const override { return events_.fd(); }

    Result<bool> read() override
    {
        // nf_tables_commit() ends every transaction with a NEWGEN; the tables, chains and rules
        // before it do not matter here, and a set element that times out has none.
        bool changed = false;
        const auto state = events_.read(
            [&changed](const nl::Message &m) {
                changed |= m.type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN);
            },
            max_messages);
        if (!state)
            return tl::unexpected(state.error());
        return changed || *state == nl::EventSocket::State::overrun;
    }

  private:
    // A reload of a large ruleset is one message per rule and set element.
    static constexpr unsigned max_messages = 65536;
    nl::EventSocket events_;
};

} // namespace

Result<std::unique_ptr<NftWatch>> NftWatch::open()
{
    // A small buffer will do: an overrun means "changed", which is all that is asked.
    auto events = nl::EventSocket::open(NETLINK_NETFILTER, {NFNLGRP_NFTABLES}, 256U << 10);
    if (!events)
        return tl::unexpected(events.error());
    return std::make_unique<Watch>(std::move(*events));
}

} // namespace ftctl
