// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/flow_json.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "util/clock.h"

namespace ftctl {

namespace {

using nlohmann::json;

std::string v4(std::uint32_t be)
{
    return IpAddr::from_v4(be).str();
}

json tuple_json(std::uint32_t src, std::uint16_t sport, std::uint32_t dst, std::uint16_t dport)
{
    return {{"src", v4(src)}, {"sport", ntohs(sport)}, {"dst", v4(dst)}, {"dport", ntohs(dport)}};
}

json match_json(json tuple, json tunnel)
{
    tuple["vlan"] = json::array();
    tuple["pppoe"] = nullptr;
    tuple["tunnel"] = std::move(tunnel);
    return tuple;
}

json push_json(json tunnel)
{
    return {{"vlan", json::array()}, {"pppoe", nullptr}, {"tunnel", std::move(tunnel)}};
}

json ipip_json(std::uint32_t src, std::uint32_t dst)
{
    return {{"type", "ipip"}, {"src", v4(src)}, {"dst", v4(dst)}};
}

json mac_json(const ftctl_u8 (&bytes)[6])
{
    Mac mac;
    std::copy(std::begin(bytes), std::end(bytes), mac.bytes.begin());
    return mac.str();
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
    const auto &in = e.key.in;
    const auto &f = e.flow;
    dir["live"] = is_live(f, context.gen);
    put_ingress(dir, ftctl_key4_iif(&in), context);
    dir["match"] = match_json(tuple_json(in.src, in.sport, in.dst, in.dport),
                              e.tunneled ? ipip_json(e.key.outer_src, e.key.outer_dst) : json());
    dir["rewrite"] = tuple_json(f.new_src, f.new_sport, f.new_dst, f.new_dport);
    const auto *path = path_of(e, context);
    put_device(dir, "oif", path ? path->oif : 0, context);
    dir["next_hop"] = next_hop ? json(next_hop.str()) : json();
    const bool valid = path && (path->flags & FTCTL_P_VALID) != 0;
    dir["dst_mac"] = valid ? mac_json(path->dmac) : json();
    dir["mtu"] = path ? path->mtu : 0;
    const bool ipip = path && (path->flags & FTCTL_P_IPIP) != 0;
    dir["push"] = push_json(ipip ? ipip_json(path->tun_src, path->tun_dst) : json());
    dir["packets"] = f.packets;
    dir["bytes"] = f.bytes;
    dir["idle_s"] = idle_seconds(f.last_seen, context.now_ns);
    return dir;
}

/// The direction that has no entry, as the mirror image of the one that has.
json mirrored_json(const FlowEntry &other, const FlowJsonContext &context, const IpAddr &next_hop)
{
    json dir;
    const auto &in = other.key.in;
    const auto &f = other.flow;
    const auto *path = path_of(other, context);
    const bool ipip = path && (path->flags & FTCTL_P_IPIP) != 0;
    dir["live"] = false;
    put_ingress(dir, path ? path->oif : 0, context);
    dir["match"] = match_json(tuple_json(f.new_dst, f.new_dport, f.new_src, f.new_sport),
                              ipip ? ipip_json(path->tun_dst, path->tun_src) : json());
    dir["rewrite"] = tuple_json(in.dst, in.dport, in.src, in.sport);
    put_device(dir, "oif", ftctl_key4_iif(&in), context);
    dir["next_hop"] = next_hop ? json(next_hop.str()) : json();
    dir["dst_mac"] = nullptr;
    dir["mtu"] = 0;
    dir["push"] = push_json(other.tunneled ? ipip_json(other.key.outer_dst, other.key.outer_src) : json());
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
            {"match", match_json(tuple(in), json())},
            {"packets", 0U},
            {"bytes", 0U},
            {"idle_s", 0.0},
            {"rewrite", tuple(out)},
            {"next_hop", json()},
            {"dst_mac", json()},
            {"push", push_json(json())}};
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
    if (any([](const auto &f) { return f.state == FTCTL_FLOW_LIVE || f.packets > 0; }))
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
    out["family"] = "ipv4";
    out["l4proto"] = proto_name(ftctl_key4_proto(&known.key.in));
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
