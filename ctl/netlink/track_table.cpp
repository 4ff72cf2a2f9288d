// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/policy.h"

#include <sys/socket.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <nftables/libnftables.h>

#include "netlink/nft_ruleset.h"

namespace ftctl {
namespace {

constexpr std::string_view table_name = "ftctl";

// Adding before deleting makes the delete succeed whether or not the table is there; all of it is
// one transaction, so conntrack is held without a gap when a table is replaced.
constexpr const char *add_commands = R"(
add table inet ftctl
delete table inet ftctl
table inet ftctl {
    comment "keeps conntrack on for ftctl"
    chain track {
        type filter hook prerouting priority 0; policy accept;
        ct state new
    }
}
)";
constexpr const char *remove_commands = R"(
add table inet ftctl
delete table inet ftctl
)";

struct FreeContext {
    void operator()(nft_ctx *ctx) const { nft_ctx_free(ctx); }
};
using Context = std::unique_ptr<nft_ctx, FreeContext>;

bool is_ours(const nl::NftUser &u)
{
    return u.family == NFPROTO_INET && u.table == table_name;
}

class Table final : public TrackTable {
  public:
    explicit Table(nl::Socket socket) : socket_(std::move(socket)) {}

    Result<bool> tracked_by_others(std::uint8_t family) override
    {
        const std::uint8_t proto = family == AF_INET6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
        auto ours = table_exists();
        if (!ours)
            return ours;
        // Our own table makes the hook, too: it only tells about others while ours is absent.
        if (!*ours) {
            const auto hooked = nl::conntrack_hooked(socket_, proto);
            if (hooked)
                return *hooked;
        }
        // A bridge table with ct switches tracking on for both families as well. What iptables-legacy,
        // Open vSwitch or IPVS hold is not seen here; then our table is made needlessly, no harm done.
        return nl::ruleset_any(socket_, [proto](const nl::NftUser &u) {
            return !is_ours(u) &&
                   (u.family == proto || u.family == NFPROTO_INET || u.family == NFPROTO_BRIDGE);
        });
    }

    Result<bool> exists() override { return nl::ruleset_any(socket_, is_ours); }

    Status add() override
    {
        const auto there = exists();
        if (!there)
            return tl::unexpected(there.error());
        if (*there)
            return {}; // no transaction without need: each one sends flows back to their witness
        return run(add_commands, "add nftables table inet ftctl");
    }

    Status remove() override
    {
        const auto there = table_exists();
        if (!there)
            return tl::unexpected(there.error());
        if (!*there)
            return {};
        return run(remove_commands, "remove nftables table inet ftctl");
    }

  private:
    /// Also when its rule has been flushed.
    Result<bool> table_exists()
    {
        nl::Request r(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE, 0);
        auto &head = r.head<nfgenmsg>();
        head.nfgen_family = NFPROTO_INET;
        head.version = NFNETLINK_V0;
        r.put_text(NFTA_TABLE_NAME, std::string(table_name));
        const int err = socket_.ask(r);
        if (err && err != ENOENT)
            return socket_.error("look for nftables table inet ftctl", err);
        return err == 0;
    }

    /// A context per call: it is seldom, and a fresh one has no cache that could be old.
    static Status run(const char *commands, const char *what)
    {
        const Context ctx(nft_ctx_new(NFT_CTX_DEFAULT));
        if (!ctx || nft_ctx_buffer_output(ctx.get()) || nft_ctx_buffer_error(ctx.get()))
            return fail_errno(what, ENOMEM);
        if (nft_run_cmd_from_buffer(ctx.get(), commands) == 0)
            return {};
        std::string why = nft_ctx_get_error_buffer(ctx.get());
        // The first line says what is wrong; the rest points into the commands.
        why.resize(std::min(why.find('\n'), why.size()));
        return fail(what, why.empty() ? "libnftables refused it" : why,
                    "check that nf_tables, nft_ct and nf_conntrack are available, or attach with --no-track");
    }

    nl::Socket socket_;
};

} // namespace

Result<std::unique_ptr<TrackTable>> TrackTable::open()
{
    // libnftables ends the process when it cannot open its socket; this one fails first, and tells.
    auto socket = nl::Socket::open(NETLINK_NETFILTER);
    if (!socket)
        return tl::unexpected(socket.error());
    return std::make_unique<Table>(std::move(*socket));
}

} // namespace ftctl
