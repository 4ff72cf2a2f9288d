// SPDX-License-Identifier: GPL-2.0-only
// Netlink sockets: requests that are answered before the call returns, and subscriptions.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include <libmnl/libmnl.h>

#include "netlink/attr.h"
#include "util/fd.h"
#include "util/result.h"

namespace ftctl::nl {

/// A request under construction: header, family header, attributes. Sizes are bounded; what does
/// not fit sets a flag that Socket refuses to send.
class Request {
  public:
    Request(std::uint16_t type, std::uint16_t flags);
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;

    /// Appends a zeroed family header. Call once, before any attribute.
    template <typename T>
    T &head()
    {
        static_assert(sizeof(T) <= 128);
        return *static_cast<T *>(mnl_nlmsg_put_extra_header(hdr_, sizeof(T)));
    }
    void put(std::uint16_t type, const void *data, std::size_t len);
    void put(std::uint16_t type, const IpAddr &addr) { put(type, addr.bytes.data(), addr.size()); }
    void put_u8(std::uint16_t type, std::uint8_t v) { put(type, &v, sizeof(v)); }
    void put_u16(std::uint16_t type, std::uint16_t v) { put(type, &v, sizeof(v)); }
    void put_u32(std::uint16_t type, std::uint32_t v) { put(type, &v, sizeof(v)); }
    void put_be16(std::uint16_t type, std::uint16_t host) // host order in, network order out
    {
        const std::uint16_t v = htobe16(host);
        put(type, &v, sizeof(v));
    }
    void put_be32(std::uint16_t type, std::uint32_t host)
    {
        const std::uint32_t v = htobe32(host);
        put(type, &v, sizeof(v));
    }
    void put_text(std::uint16_t type, const std::string &text) { put(type, text.c_str(), text.size() + 1); }
    nlattr *nest(std::uint16_t type);
    void end(nlattr *nested);

    [[nodiscard]] nlmsghdr *header() const { return hdr_; }
    [[nodiscard]] bool overflown() const { return overflown_; }

  private:
    alignas(nlmsghdr) std::array<char, 1024> buf_; // left uninitialised: cleared as it is used
    nlmsghdr *hdr_;
    bool overflown_ = false;
};

/// Requests over one socket. Not for use from several threads.
class Socket {
  public:
    using Handler = std::function<bool(const Message &)>; ///< false: enough

    /// bus: NETLINK_ROUTE, ... Opens in the namespace of the calling thread.
    static Result<Socket> open(int bus);

    /// Sends the request and waits. With NLM_F_ACK in its flags: until the acknowledgement, handing
    /// over messages that come before it. Without: for one message, which is handed over.
    /// Returns 0 or a positive errno.
    int ask(const Request &request, const Handler &handler = {});

    /// Sends a dump request and hands over each message. EINTR: the kernel says that what it dumped
    /// changed meanwhile (NLM_F_DUMP_INTR); some entries may be missing. Returns 0 or positive errno.
    int dump(const Request &request, const Handler &handler);

    /// The same, again from the start (before is called each time) until it was not interrupted.
    int dump_consistent(const Request &request, const std::function<void()> &before, const Handler &handler);

    /// An Error for what a call returned, with the kernel's explanation when it gave one.
    [[nodiscard]] tl::unexpected<Error> error(std::string what, int err) const;

  private:
    Socket() = default;
    int connect();
    int send(const Request &request);
    int receive(Bytes &out);
    int exchange(const Request &request, const Handler &handler, bool is_dump);
    int finish(const Message &m);
    void note_text(Attrs attrs);

    int bus_ = 0;
    Fd fd_;
    std::uint32_t seq_ = 0;
    std::unique_ptr<std::array<std::byte, 65536>> buf_;
    std::string text_; ///< the kernel's explanation of the last error
};

/// A subscription to multicast groups; never blocks.
class EventSocket {
  public:
    /// Groups that this kernel does not know are left out when listed in optional.
    static Result<EventSocket> open(int bus, std::initializer_list<unsigned> groups, std::size_t rcvbuf_bytes,
                                    std::initializer_list<unsigned> optional = {});
    EventSocket(EventSocket &&) noexcept;
    EventSocket &operator=(EventSocket &&) noexcept;
    ~EventSocket();
    [[nodiscard]] int fd() const { return fd_.get(); }

    enum class State { drained, more, overrun };
    /// Hands over what waits, at most about max_messages. overrun: the kernel dropped events; what
    /// was still queued has been thrown away too, since whoever reads everything again must not
    /// see older news afterwards.
    Result<State> read(const std::function<void(const Message &)> &handler, unsigned max_messages);

  private:
    /// Where datagrams are received, several with one system call.
    struct Batch;

    EventSocket();
    void discard();

    Fd fd_;
    std::unique_ptr<Batch> batch_;
};

} // namespace ftctl::nl
