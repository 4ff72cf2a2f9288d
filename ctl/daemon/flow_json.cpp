// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/flow_json.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <linux/if_ether.h>

#include "util/abi_addr.h"
#include "util/clock.h"

namespace ftctl {

namespace {

using nlohmann::json;

json tuple_json(const IpAddr &src, std::uint16_t sport, const IpAddr &dst, std::uint16_t dport)
{
    return {{"src", src.str()}, {"sport", ntohs(sport)}, {"dst", dst.str()}, {"dport", ntohs(dport)}};
}

json mac_json(const ftctl_u8 *bytes)
{
    Mac mac;
    std::copy_n(bytes, mac.bytes.size(), mac.bytes.begin());
    return mac.str();
}

/// What stands before the inner packet, in "match" and "push".
struct Encaps {
    json vlan = json::array(); ///< outermost first
    json pppoe;
    json tunnel;

    void put(json &into) &&
    {
        into["vlan"] = std::move(vlan);
        into["pppoe"] = std::move(pppoe);
        into["tunnel"] = std::move(tunnel);
    }
};

json tunnel_json(std::uint8_t outside, std::uint8_t inside, const IpAddr &src, const IpAddr &dst)
{
    const char *type =
        outside == FTCTL_TUNNEL_IPV4 ? (inside == 4 ? "ipip" : "6in4") : (inside == 4 ? "4in6" : "ip6ip6");
    return {{"type", type}, {"src", src.str()}, {"dst", dst.str()}};
}

json vlan_json(std::uint16_t proto, std::uint16_t vid)
{
    return {{"proto", proto == ETH_P_8021AD ? "802.1ad" : "802.1Q"}, {"id", vid}};
}

/// `mac`: of the other end.
json pppoe_json(std::uint16_t session, const ftctl_u8 *mac)
{
    return {{"session", session}, {"mac", mac_json(mac)}};
}

/// Of packets as they arrive; `turned`: as the other direction's leave.
Encaps encaps_of(const ftctl_tuple &key, bool turned)
{
    Encaps out;
    for (const ftctl_vlan &vlan : key.vlan)
        if (vlan.proto != 0)
            out.vlan.push_back(vlan_json(ntohs(vlan.proto), ntohs(vlan.vid)));
    if (key.pppoe != 0)
        out.pppoe = pppoe_json(ntohs(key.pppoe), key.peer);
    if (key.tunnel != FTCTL_TUNNEL_NONE) {
        const IpAddr src = from_abi(key.outer_src, key.tunnel);
        const IpAddr dst = from_abi(key.outer_dst, key.tunnel);
        out.tunnel = tunnel_json(key.tunnel, key.family, turned ? dst : src, turned ? src : dst);
    }
    return out;
}

/// The same of what a path pushes.
Encaps encaps_of(const ftctl_path_body *path, bool turned)
{
    Encaps out;
    if (!path)
        return out;
    for (std::size_t i = 0; i < path->vlans && i < 2; i++) {
        const ftctl_u8 *tag = path->l2 + 12 + 4 * i;
        out.vlan.push_back(vlan_json(static_cast<std::uint16_t>(tag[0] << 8 | tag[1]),
                                     static_cast<std::uint16_t>((tag[2] & 0xf) << 8 | tag[3])));
    }
    if (path->pppoe != 0)
        out.pppoe = pppoe_json(ntohs(path->pppoe), path->l2);
    if (path->tunnel != FTCTL_TUNNEL_NONE) {
        const bool v6 = path->tunnel == FTCTL_TUNNEL_IPV6;
        const std::uint8_t family = v6 ? AF_INET6 : AF_INET;
        const std::size_t size = v6 ? 16 : 4;
        const std::uint8_t *addrs = path->outer + (v6 ? 8 : 12); // source, destination
        const IpAddr src = IpAddr::from_bytes(family, addrs, size);
        const IpAddr dst = IpAddr::from_bytes(family, addrs + size, size);
        out.tunnel = tunnel_json(path->tunnel, path->family, turned ? dst : src, turned ? src : dst);
    }
    return out;
}

json match_json(json tuple, Encaps encaps)
{
    std::move(encaps).put(tuple);
    return tuple;
}

json push_json(Encaps encaps)
{
    json out = json::object();
    std::move(encaps).put(out);
    return out;
}

IpAddr new_src(const FlowEntry &e)
{
    return e.key.family == 6 ? from_abi(e.new_src, 6) : IpAddr::from_v4(e.flow.new_src);
}

IpAddr new_dst(const FlowEntry &e)
{
    return e.key.family == 6 ? from_abi(e.new_dst, 6) : IpAddr::from_v4(e.flow.new_dst);
}

void put_device(json &dir, const char *key, std::uint32_t ifindex, const FlowJsonContext &context)
{
    dir[key] = ifindex != 0 && context.ifname ? context.ifname(ifindex) : std::string();
    dir[std::string(key) + "_index"] = ifindex;
}

void put_ingress(json &dir, std::uint32_t ifindex, const FlowJsonContext &context)
{
    put_device(dir, "iif", ifindex, context);
    dir["hook"] = hook_name(context.hook ? context.hook(ifindex) : FTCTL_HOOK_NONE);
}

bool is_live(const ftctl_flow &flow, std::uint32_t gen)
{
    return flow.state == FTCTL_FLOW_LIVE && flow.gen == gen;
}

const ftctl_path_body *path_of(const FlowEntry &e, const FlowJsonContext &context)
{
    return context.path ? context.path(e.flow.path) : nullptr;
}

json direction_json(const FlowEntry &e, const FlowJsonContext &context, const IpAddr &next_hop)
{
    json dir;
    const auto &in = e.key;
    const auto &f = e.flow;
    dir["live"] = is_live(f, context.gen);
    put_ingress(dir, ftctl_iif(&in), context);
    dir["match"] =
        match_json(tuple_json(from_abi(in.src, in.family), in.sport, from_abi(in.dst, in.family), in.dport),
                   encaps_of(in, false));
    dir["rewrite"] = tuple_json(new_src(e), f.new_sport, new_dst(e), f.new_dport);
    const auto *path = path_of(e, context);
    put_device(dir, "oif", path ? path->oif : 0, context);
    dir["next_hop"] = next_hop ? json(next_hop.str()) : json();
    const bool valid = path && (path->flags & FTCTL_P_VALID) != 0;
    dir["dst_mac"] = valid ? mac_json(path->l2) : json();
    dir["mtu"] = path ? path->mtu : 0;
    dir["push"] = push_json(encaps_of(path, false));
    dir["packets"] = ftctl_count_packets(&f.carried);
    dir["bytes"] = ftctl_count_bytes(&f.carried);
    dir["idle_s"] = idle_seconds(f.last_seen, context.now_ns);
    return dir;
}

/// The direction that has no entry, as the mirror image of the one that has.
json mirrored_json(const FlowEntry &other, const FlowJsonContext &context, const IpAddr &next_hop)
{
    json dir;
    const auto &in = other.key;
    const auto &f = other.flow;
    const auto *path = path_of(other, context);
    dir["live"] = false;
    put_ingress(dir, path ? path->oif : 0, context);
    dir["match"] = match_json(tuple_json(new_dst(other), f.new_dport, new_src(other), f.new_sport),
                              encaps_of(path, true));
    dir["rewrite"] = tuple_json(from_abi(in.dst, in.family), in.dport, from_abi(in.src, in.family), in.sport);
    put_device(dir, "oif", ftctl_iif(&in), context);
    dir["next_hop"] = next_hop ? json(next_hop.str()) : json();
    dir["dst_mac"] = nullptr;
    dir["mtu"] = 0;
    dir["push"] = push_json(encaps_of(in, true));
    dir["packets"] = 0U;
    dir["bytes"] = 0U;
    dir["idle_s"] = 0.0;
    return dir;
}

/// A direction of which only the packets before and after NAT are known.
json tuples_json(const Tuple &in, const Tuple &out)
{
    const auto tuple = [](const Tuple &t) {
        return json{{"src", t.src.str()}, {"sport", t.sport}, {"dst", t.dst.str()}, {"dport", t.dport}};
    };
    return {{"live", false},
            {"iif", ""},
            {"iif_index", 0U},
            {"hook", "none"},
            {"oif", ""},
            {"oif_index", 0U},
            {"mtu", 0U},
            {"match", match_json(tuple(in), {})},
            {"packets", 0U},
            {"bytes", 0U},
            {"idle_s", 0.0},
            {"rewrite", tuple(out)},
            {"next_hop", json()},
            {"dst_mac", json()},
            {"push", push_json({})}};
}

} // namespace

json refused_json(std::uint32_t id, const Tuple &orig, const Tuple &reply, const FlowExtras &extras)
{
    return {{"id", id},
            {"family", orig.src.family == AF_INET6 ? "ipv6" : "ipv4"},
            {"l4proto", proto_name(orig.proto)},
            {"state", "refused"},
            {"reason", extras.reason},
            {"zone", extras.zone},
            {"mark", extras.mark ? json(*extras.mark) : json()},
            {"age_s", extras.age_s ? json(*extras.age_s) : json()},
            {"orig", tuples_json(orig, reply.reversed())},
            {"reply", tuples_json(reply, orig.reversed())}};
}

std::string flow_state_name(const FlowEntry *orig, const FlowEntry *reply, std::uint32_t gen)
{
    const std::array<const FlowEntry *, 2> both{orig, reply};
    const auto any = [&](auto &&holds) {
        return std::any_of(both.begin(), both.end(), [&](const auto *e) { return e && holds(e->flow); });
    };
    if (any([](const auto &f) { return f.state == FTCTL_FLOW_DIFFERS; }))
        return "refused";
    if (any([](const auto &f) { return f.state == FTCTL_FLOW_CLOSING; }))
        return "closing";
    if (any([gen](const auto &f) { return is_live(f, gen); }))
        return "live";
    // It was live once: what it waits for is to be witnessed again.
    if (any([](const auto &f) { return f.state == FTCTL_FLOW_LIVE || ftctl_count_packets(&f.carried) > 0; }))
        return "stale";
    return "pending";
}

double idle_seconds(std::uint32_t ticks, std::uint64_t now_ns)
{
    if (ticks == 0)
        return 0;
    const double seconds = tick_seconds(to_ticks(now_ns), ticks);
    if (seconds <= 0)
        return 0; // a packet since `now` was read
    return std::round(seconds * 1000) / 1000;
}

const char *hook_name(ftctl_hook hook)
{
    switch (hook) {
    case FTCTL_HOOK_XDP:
        return "xdp";
    case FTCTL_HOOK_TC:
        return "tc";
    default:
        return "none";
    }
}

json flow_json(const FlowEntry *orig, const FlowEntry *reply, const FlowJsonContext &context,
               const FlowExtras &extras)
{
    const FlowEntry &known = orig ? *orig : *reply;
    json out;
    out["id"] = known.flow.id;
    out["family"] = known.key.family == 6 ? "ipv6" : "ipv4";
    out["l4proto"] = proto_name(ftctl_proto(&known.key));
    out["state"] = extras.state ? *extras.state : flow_state_name(orig, reply, context.gen);
    out["zone"] = extras.zone;
    out["mark"] = extras.mark ? json(*extras.mark) : json();
    out["age_s"] = extras.age_s ? json(*extras.age_s) : json();
    out["orig"] = orig ? direction_json(*orig, context, extras.orig_next_hop)
                       : mirrored_json(*reply, context, extras.orig_next_hop);
    out["reply"] = reply ? direction_json(*reply, context, extras.reply_next_hop)
                         : mirrored_json(*orig, context, extras.reply_next_hop);
    if (out["state"] == "refused") {
        std::string reason = extras.reason;
        for (const auto *e : {orig, reply})
            if (reason.empty() && e && e->flow.state == FTCTL_FLOW_DIFFERS)
                reason = reason_text(e->flow.reason, detail_name(e->flow.detail));
        out["reason"] = reason;
    }
    return out;
}

json device_stats_json(const SlotStats &stats, const std::string &name)
{
    json reasons = json::object();
    for (const unsigned id : packet_reasons())
        if (id < FTCTL_PACKET_REASONS)
            reasons[reason_name(id)] = stats.stats.reasons[id];
    return {{"name", name},
            {"index", stats.attachment.ifindex},
            {"hook", hook_name(stats.attachment.hook)},
            {"rx_packets", stats.stats.rx_packets},
            {"fast_packets", stats.stats.fast_packets},
            {"fast_bytes", stats.stats.fast_bytes},
            {"tx_failed", stats.stats.tx_failed},
            {"reasons", reasons}};
}

} // namespace ftctl
