// SPDX-License-Identifier: GPL-2.0-only
// Conntrack over ctnetlink: events, dumps, and the few changes a flow needs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "util/addr.h"
#include "util/result.h"

namespace ftctl {

/// A conntrack entry as far as a message told it. Kernel: ctnetlink_fill_info().
struct CtEntry {
    std::uint32_t id = 0;
    Tuple orig;
    Tuple reply;
    std::uint32_t status = 0; ///< IPS_* bits
    std::uint32_t mark = 0;
    std::uint16_t zone = 0;
    std::optional<std::uint8_t> tcp_state;  ///< enum tcp_conntrack; none for other protocols
    std::optional<std::uint32_t> timeout_s; ///< remaining; the kernel leaves it out for offloaded entries
    bool helper = false;                    ///< CTA_HELP present
    bool seqadj = false;                    ///< CTA_SEQ_ADJ_* present
    bool synproxy = false;                  ///< CTA_SYNPROXY present
    /// IP_CT_TCP_FLAG_* of each direction, where the message had them (answers and dumps do).
    std::optional<std::uint8_t> tcp_flags_orig;
    std::optional<std::uint8_t> tcp_flags_reply;
};

enum class CtEventType { created, updated, destroyed };

/// The event subscription (groups NEW, UPDATE, DESTROY) of the namespace the daemon runs in.
/// Subscribe first, dump second: an entry made before the subscription has no event.
class CtEvents {
  public:
    using Handler = std::function<void(CtEventType, const CtEntry &)>;

    /// Opens and subscribes. rcvbuf_bytes: asked for with SO_RCVBUFFORCE, then SO_RCVBUF.
    static Result<std::unique_ptr<CtEvents>> open(std::size_t rcvbuf_bytes);
    virtual ~CtEvents() = default;

    /// Readable when events wait; level-triggered.
    [[nodiscard]] virtual int fd() const = 0;

    /// Reads what waits, at most max_messages, and calls the handler for each entry.
    /// Returns false when the kernel dropped events (ENOBUFS): resync.
    virtual Result<bool> read(const Handler &handler, unsigned max_messages) = 0;
};

/// Requests about conntrack entries; each call is answered before it returns.
class CtControl {
  public:
    static Result<std::unique_ptr<CtControl>> open();
    virtual ~CtControl() = default;

    /// Calls the handler for every entry of both families. Stops early when it returns false. The
    /// handler may use this object's other calls.
    virtual Status dump(const std::function<bool(const CtEntry &)> &handler) = 0;

    /// The entry of this original tuple; ENOENT in Error::err when there is none.
    virtual Result<CtEntry> get(const Tuple &orig) = 0;

    /// TCP: be liberal about windows in both directions and forget the last seen ACK, so that
    /// packets are not INVALID after a time on the fast path (flags 0x08 of mask 0x28).
    virtual Status set_liberal(const Tuple &orig) = 0;

    /// Remaining lifetime. EPERM/ETIME/ENOENT come back as errors.
    virtual Status set_timeout(const Tuple &orig, std::uint32_t seconds) = 0;

    /// TCP state (enum tcp_conntrack) and remaining lifetime, for a connection that was reset.
    virtual Status set_tcp_state(const Tuple &orig, std::uint8_t state, std::uint32_t seconds) = 0;
};

/// One message, parsed. For tests and for fuzzing: never reads past len. None when it is no
/// conntrack message or makes no sense.
struct CtMessage {
    CtEventType type;
    CtEntry entry;
};
std::optional<CtMessage> parse_ct_message(const void *nlmsg, std::size_t len);

} // namespace ftctl
