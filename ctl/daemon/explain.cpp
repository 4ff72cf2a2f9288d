// SPDX-License-Identifier: GPL-2.0-only
// `ftctl explain`: the real program on a made packet, and what the daemon decided.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <netinet/in.h>

#include "daemon/engine.h"
#include "daemon/synthetic_packet.h"
#include "flow/plan.h"
#include "flow/ways.h"
#include "util/abi_addr.h"

namespace ftctl {

namespace {

using nlohmann::json;

/// The tuple of a packet without encapsulation.
ftctl_tuple plain_tuple(const Tuple &tuple, std::uint32_t ifindex)
{
    ftctl_tuple out{};
    out.src = to_abi(tuple.src);
    out.dst = to_abi(tuple.dst);
    out.sport = htons(tuple.sport);
    out.dport = htons(tuple.dport);
    out.iif_proto = ftctl_iif_proto(ifindex, tuple.proto);
    out.family = abi_family(tuple.src.family);
    return out;
}

/// The tuple under which packets of a connection nobody knows would arrive: by the way back to their source.
std::optional<ftctl_tuple> arrival(const Tuple &tuple, const RouteAnswer &back, Fib &fib)
{
    const auto way = resolve_way(back, tuple.src, fib);
    if (!way)
        return std::nullopt;
    CtEntry entry;
    entry.orig = tuple;
    entry.reply = tuple.reversed();
    return plan_flow(entry, Ways{*way, *way}, false).key;
}

/// What is around the IP packet of a "match" or a "push", outermost first; empty when nothing is.
std::string around(const json &side)
{
    std::string text;
    const auto add = [&](const std::string &part) { text += (text.empty() ? "" : ", ") + part; };
    for (const auto &tag : side.value("vlan", json::array()))
        add(fmt::format("{} tag {}", tag.value("proto", "?"), tag.value("id", 0)));
    if (const auto it = side.find("pppoe"); it != side.end() && it->is_object())
        add(fmt::format("PPPoE session {}", it->value("session", 0)));
    if (const auto it = side.find("tunnel"); it != side.end() && it->is_object())
        add(fmt::format("{} tunnel {} -> {}", it->value("type", "?"), it->value("src", "?"),
                        it->value("dst", "?")));
    return text;
}

struct Question {
    Tuple tuple;
    std::string dev;
};

Result<Question> parse_question(const json &request)
{
    const auto bad = [](const std::string &why) {
        return fail("explain", why, "ftctl explain tcp 192.0.2.2:40000 198.51.100.2:80", Code::usage);
    };
    Question q;
    try {
        const auto proto = parse_proto(request.at("proto").get<std::string>());
        if (!proto || (*proto != IPPROTO_TCP && *proto != IPPROTO_UDP && *proto != IPPROTO_GRE))
            return bad("the protocol must be tcp, udp or gre");
        const auto src = IpAddr::parse(request.at("src").get<std::string>());
        const auto dst = IpAddr::parse(request.at("dst").get<std::string>());
        if (!src || !dst)
            return bad("not an address");
        if (src->family != dst->family)
            return bad("one address is IPv4, the other IPv6");
        q.tuple = {*src, *dst, request.value("sport", std::uint16_t{0}),
                   request.value("dport", std::uint16_t{0}), *proto};
        if (request.contains("dev") && request["dev"].is_string())
            q.dev = request["dev"].get<std::string>();
    } catch (const json::exception &) {
        return bad("proto, src, dst (and ports) are needed");
    }
    return q;
}

} // namespace

Reply Engine::cmd_explain(const json &request)
{
    Reply reply;
    const auto question = parse_question(request);
    if (!question) {
        reply.error = question.error();
        return reply;
    }
    const Tuple &tuple = question->tuple;
    std::vector<std::string> text;
    const FlowJsonContext context = json_context();

    // What the daemon knows of the connection.
    const Connection *conn = connections_->find(tuple);
    json connection = nullptr;
    std::optional<ftctl_tuple> key; // of the flow
    bool back = false;
    bool upper = false;
    if (conn) {
        back = conn->orig != tuple;
        key = connections_->key(*conn, back);
        std::array<std::optional<FlowEntry>, 2> entries;
        for (std::size_t i = 0; i < 2; i++)
            if (const auto flow = datapath_->flow_lookup(connections_->key(*conn, i == 1)); flow && *flow)
                entries.at(i) = **flow;
        upper = entries.at(back) && (entries.at(back)->flow.flags & FTCTL_F_UPPER);
        connection = connection_json(*conn, entries[0] ? &*entries[0] : nullptr,
                                     entries[1] ? &*entries[1] : nullptr, context);
        text.push_back(fmt::format("connection {}: {} direction, {}", conn->id, back ? "reply" : "original",
                                   connection.value("state", "?")));
    } else {
        auto refused = connections_->refused().find(tuple);
        if (refused == connections_->refused().end())
            refused = std::find_if(connections_->refused().begin(), connections_->refused().end(),
                                   [&](const auto &item) { return item.second.reply == tuple; });
        if (refused != connections_->refused().end()) {
            connection = refused_connection_json(refused->first, refused->second, context.now_ns);
            const Refusal &why = refused->second.refusal;
            text.push_back(
                fmt::format("refused: {}: {}", reason_text(why.reason, why.detail), reason_help(why.reason)));
        } else {
            text.emplace_back("conntrack has announced no such connection");
        }
    }

    // The device it would come in by, and what is around it there.
    std::uint32_t ifindex = key ? ftctl_iif(&*key) : 0;
    if (!question->dev.empty()) {
        const Link *link = kernel_->link_by_name(question->dev);
        if (!link) {
            reply.error = Error{"explain", "no such device: " + question->dev, "", Code::usage, 0};
            return reply;
        }
        ifindex = link->index;
    } else if (ifindex == 0) {
        RouteQuery query;
        query.dst = tuple.src;
        if (const auto route = kernel_->route(query)) {
            key = arrival(tuple, *route, *kernel_);
            ifindex = key ? ftctl_iif(&*key) : route->oif;
        }
    }
    const Device *device = devices_->find(ifindex);
    reply.data = {{"verdict", "stack"},
                  {"reason", nullptr},
                  {"help", nullptr},
                  {"hook", "none"},
                  {"dev", context.ifname(ifindex)},
                  {"rewrite", nullptr},
                  {"connection", connection}};
    const auto conclude = [&](ftctl_reason reason) {
        reply.data["reason"] = reason_name(reason);
        reply.data["help"] = reason_help(reason);
        text.push_back(fmt::format("{}: {}: {}",
                                   reply.data["verdict"] == "drop" ? "is dropped" : "goes to the stack",
                                   reason_name(reason), reason_help(reason)));
    };
    if (!device) {
        text.push_back(fmt::format("{} is not attached", context.ifname(ifindex)));
        conclude(FTCTL_R_DEVICE);
    } else {
        const ftctl_slot &slot = datapath_->slot(device->slot);
        const auto packet =
            synthetic_packet(upper ? slot.upper : slot.mac, key ? *key : plain_tuple(tuple, ifindex));
        const auto run = datapath_->explain(ifindex, device->hook, packet);
        if (!run) {
            reply.error = run.error();
            return reply;
        }
        reply.data["hook"] = hook_name(device->hook);
        if (run->taken) {
            reply.data["verdict"] = "fast";
            if (conn) {
                const json &way = connection.at(back ? "reply" : "orig");
                reply.data["rewrite"] = way.at("rewrite");
                text.push_back(fmt::format("taken at {} on {}: leaves by {} as {} -> {}",
                                           hook_name(device->hook), device->name, way.value("oif", "?"),
                                           way["rewrite"].value("src", "?"),
                                           way["rewrite"].value("dst", "?")));
                if (const auto coat = around(way.at("match")); !coat.empty())
                    text.push_back("arrives in: " + coat);
                if (const auto coat = around(way.at("push")); !coat.empty())
                    text.push_back("leaves in: " + coat);
            }
        } else {
            if (run->dropped)
                reply.data["verdict"] = "drop";
            conclude(run->reason);
        }
    }
    reply.data["text"] = text;
    return reply;
}

} // namespace ftctl
