// SPDX-License-Identifier: GPL-2.0-only
// `ftctl explain`: the real program on a made packet, and what the daemon decided.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <netinet/in.h>

#include "daemon/engine.h"

namespace ftctl {

namespace {

using nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

void put16(Bytes &out, std::uint32_t value)
{
    out.push_back(static_cast<std::uint8_t>(value >> 8));
    out.push_back(static_cast<std::uint8_t>(value));
}

void put_addr(Bytes &out, std::uint32_t be)
{
    std::array<std::uint8_t, 4> bytes{};
    std::memcpy(bytes.data(), &be, 4);
    out.insert(out.end(), bytes.begin(), bytes.end());
}

/// An IPv4 header with a right checksum for `payload` bytes after it.
void put_ipv4(Bytes &out, std::uint8_t proto, std::uint32_t src, std::uint32_t dst, std::size_t payload)
{
    const std::size_t at = out.size();
    put16(out, 0x4500);
    put16(out, static_cast<std::uint32_t>(20 + payload));
    put16(out, 1);               // id
    put16(out, 0x4000);          // DF
    put16(out, 0x4000U | proto); // TTL 64
    put16(out, 0);
    put_addr(out, src);
    put_addr(out, dst);
    std::uint32_t sum = 0;
    for (std::size_t i = at; i < at + 20; i += 2)
        sum += static_cast<std::uint32_t>(out[i] << 8 | out[i + 1]);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    out[at + 10] = static_cast<std::uint8_t>(~sum >> 8);
    out[at + 11] = static_cast<std::uint8_t>(~sum);
}

/// A data packet of this tuple as it would arrive, inside IPIP when the outer addresses are given.
/// The L4 checksum is left zero: the fast path does not verify it.
Bytes make_packet(std::uint64_t mac, const Tuple &tuple, std::uint32_t outer_src, std::uint32_t outer_dst)
{
    Bytes out;
    for (int i = 0; i < 6; i++)
        out.push_back(static_cast<std::uint8_t>(mac >> (8 * i)));
    for (const int b : {2, 0, 0, 0, 0, 1})
        out.push_back(static_cast<std::uint8_t>(b));
    put16(out, 0x0800);
    const bool tcp = tuple.proto == IPPROTO_TCP;
    const std::size_t l4 = tcp ? 20 : 8;
    if (outer_dst)
        put_ipv4(out, IPPROTO_IPIP, outer_src, outer_dst, 20 + l4);
    put_ipv4(out, tuple.proto, tuple.src.v4(), tuple.dst.v4(), l4);
    put16(out, tuple.sport);
    put16(out, tuple.dport);
    if (tcp) {
        out.insert(out.end(), 8, 0); // sequence numbers
        put16(out, 0x5010);          // 20 bytes, ACK
        out.insert(out.end(), {0xff, 0xff, 0, 0, 0, 0});
    } else {
        put16(out, 8);
        put16(out, 0);
    }
    return out;
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
        if (!proto || (*proto != IPPROTO_TCP && *proto != IPPROTO_UDP))
            return bad("the protocol must be tcp or udp");
        const auto src = IpAddr::parse(request.at("src").get<std::string>());
        const auto dst = IpAddr::parse(request.at("dst").get<std::string>());
        if (!src || !dst)
            return bad("not an address");
        if (src->family != AF_INET || dst->family != AF_INET)
            return fail("explain",
                        std::string(reason_name(FTCTL_R_FAMILY)) + ": " + reason_help(FTCTL_R_FAMILY));
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
    const Connection::Direction *dir = nullptr;
    bool back = false;
    if (conn) {
        back = conn->ct.orig != tuple;
        dir = &conn->dir[back];
        std::array<std::optional<FlowEntry>, 2> entries;
        for (std::size_t i = 0; i < 2; i++)
            if (const auto flow = datapath_->flow_lookup(conn->dir[i].key, conn->dir[i].tunneled);
                flow && *flow)
                entries.at(i) = FlowEntry{conn->dir[i].key, conn->dir[i].tunneled, **flow};
        connection = connection_json(*conn, entries[0] ? &*entries[0] : nullptr,
                                     entries[1] ? &*entries[1] : nullptr, context);
        text.push_back(fmt::format("connection {}: {} direction, {}", conn->id, back ? "reply" : "original",
                                   connection.value("state", "?")));
    } else {
        auto refused = connections_->refused().find(tuple);
        if (refused == connections_->refused().end())
            refused = std::find_if(connections_->refused().begin(), connections_->refused().end(),
                                   [&](const auto &item) { return item.second.ct.reply == tuple; });
        if (refused != connections_->refused().end()) {
            connection = refused_connection_json(refused->second, context.now_ns);
            const Refusal &why = refused->second.refusal;
            text.push_back(
                fmt::format("refused: {}: {}", reason_text(why.reason, why.detail), reason_help(why.reason)));
        } else {
            text.emplace_back("conntrack has announced no such connection");
        }
    }

    // The device it would come in by.
    std::uint32_t ifindex = dir ? ftctl_key4_iif(&dir->key.in) : 0;
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
        if (const auto route = kernel_->route(query))
            ifindex = route->oif;
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
        text.push_back(fmt::format("goes to the stack: {}: {}", reason_name(reason), reason_help(reason)));
    };
    if (!device) {
        text.push_back(fmt::format("{} is not attached", context.ifname(ifindex)));
        conclude(FTCTL_R_DEVICE);
    } else {
        const bool in_tunnel = dir && dir->tunneled;
        const Bytes packet =
            make_packet(datapath_->slot(device->slot).mac, tuple, in_tunnel ? dir->key.outer_src : 0,
                        in_tunnel ? dir->key.outer_dst : 0);
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
            }
        } else {
            conclude(run->reason);
        }
    }
    reply.data["text"] = text;
    return reply;
}

} // namespace ftctl
