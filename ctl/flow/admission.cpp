// SPDX-License-Identifier: GPL-2.0-only
#include "flow/admission.h"

#include <algorithm>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <netinet/in.h>

namespace ftctl {

namespace {

/// ip6_rcv_core() and ip6_forward(): `::`, `::1` and multicast are dropped, link-local scope is not
/// forwarded, and ::ffff:0:0/96 is refused on the wire.
bool forwardable6(const IpAddr &addr)
{
    const auto &b = addr.bytes;
    if (b[0] == 0xff || (b[0] == 0xfe && (b[1] & 0xc0) == 0x80))
        return false;
    const bool zeros = std::all_of(b.begin(), b.begin() + 10, [](std::uint8_t v) { return v == 0; });
    if (!zeros)
        return true;
    if (b[10] == 0xff && b[11] == 0xff)
        return false;
    IpAddr loopback = addr;
    loopback.bytes = {};
    if (addr == loopback)
        return false;
    loopback.bytes[15] = 1;
    return addr != loopback;
}

} // namespace

bool forwardable(const IpAddr &addr)
{
    if (addr.family == AF_INET6)
        return forwardable6(addr);
    if (addr.family != AF_INET)
        return false;
    const std::uint32_t a = ntohl(addr.v4());
    const std::uint32_t top = a >> 24;
    if (top == 0 || top == 127)
        return false;
    return top < 224; // multicast, reserved and limited broadcast
}

bool entry_closed(const CtEntry &entry)
{
    if (entry.status & IPS_DYING)
        return true;
    return entry.orig.proto == IPPROTO_TCP && entry.tcp_state &&
           *entry.tcp_state != TCP_CONNTRACK_ESTABLISHED;
}

namespace {

std::optional<Refusal> refuse_status(const CtEntry &entry)
{
    const auto refusal = [](ftctl_reason reason) { return Refusal{reason, {}}; };
    const std::uint32_t status = entry.status;

    if (entry.helper || (status & IPS_HELPER))
        return refusal(FTCTL_R_HELPER);
    if (entry.seqadj || (status & IPS_SEQ_ADJUST))
        return refusal(FTCTL_R_SEQADJ);
    if (entry.synproxy)
        return refusal(FTCTL_R_SYNPROXY);
    if (status & (IPS_UNTRACKED | IPS_TEMPLATE)) // bit 12 is IPS_NAT_CLASH inside the kernel
        return refusal(FTCTL_R_NAT_CLASH);
    if (status & (IPS_OFFLOAD | IPS_HW_OFFLOAD))
        return refusal(FTCTL_R_KERNEL_OFFLOAD);
    if (status & IPS_DYING)
        return refusal(FTCTL_R_CLOSED);
    return std::nullopt;
}

/// As nf_flow_table: version 0, which has no key in its tuple, and no NAT.
std::optional<Refusal> refuse_gre(const CtEntry &entry)
{
    for (const Tuple *tuple : {&entry.orig, &entry.reply})
        if (tuple->sport != 0 || tuple->dport != 0)
            return Refusal{FTCTL_R_NOT_TCP_UDP, "gre version 1"};
    if (entry.reply != entry.orig.reversed())
        return Refusal{FTCTL_R_NOT_TCP_UDP, "gre with NAT"};
    return std::nullopt;
}

} // namespace

std::optional<Refusal> refuse_entry(const CtEntry &entry, const MarkRule &mark)
{
    const auto refusal = [](ftctl_reason reason) { return Refusal{reason, {}}; };

    if (entry.orig.proto == IPPROTO_GRE) {
        if (auto by_gre = refuse_gre(entry))
            return by_gre;
    } else if (entry.orig.proto != IPPROTO_TCP && entry.orig.proto != IPPROTO_UDP) {
        return refusal(FTCTL_R_NOT_TCP_UDP);
    }
    const std::uint8_t family = entry.orig.src.family;
    if (family != AF_INET && family != AF_INET6)
        return refusal(FTCTL_R_FAMILY);
    for (const IpAddr *addr : {&entry.orig.dst, &entry.reply.src, &entry.reply.dst})
        if (addr->family != family)
            return refusal(FTCTL_R_FAMILY);
    if (auto by_status = refuse_status(entry))
        return by_status;
    if (entry.zone != 0)
        return refusal(FTCTL_R_ZONE);
    if (mark.mask != 0 && (entry.mark & mark.mask) == mark.value)
        return refusal(FTCTL_R_MARK);
    for (const IpAddr *addr : {&entry.orig.src, &entry.orig.dst, &entry.reply.src, &entry.reply.dst})
        if (!forwardable(*addr))
            return Refusal{FTCTL_R_ADDRESS, addr->str()};

    constexpr std::uint32_t kSettled = IPS_CONFIRMED | IPS_SEEN_REPLY | IPS_ASSURED;
    if ((entry.status & kSettled) != kSettled)
        return refusal(FTCTL_R_NOT_ASSURED);
    if (entry.orig.proto == IPPROTO_TCP) {
        if (!entry.tcp_state)
            return refusal(FTCTL_R_NOT_ASSURED);
        if (*entry.tcp_state != TCP_CONNTRACK_ESTABLISHED)
            return refusal(*entry.tcp_state < TCP_CONNTRACK_ESTABLISHED ? FTCTL_R_NOT_ASSURED
                                                                        : FTCTL_R_CLOSED);
    }
    return std::nullopt;
}

} // namespace ftctl
