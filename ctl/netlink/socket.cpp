// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/socket.h"

#include <chrono>
#include <sys/socket.h>

#include <fmt/format.h>

namespace ftctl::nl {
namespace {

// The kernel answers requests while send(2) runs; a wait this long means that it never will.
constexpr int answer_timeout_s = 5;
constexpr int dump_attempts = 6;

void set_option(int fd, int option, int value)
{
    // Each of these options only makes answers better; kernels without one work all the same.
    (void)setsockopt(fd, SOL_NETLINK, option, &value, sizeof(value));
}

std::string hint_for(int err)
{
    if (err == EPERM || err == EACCES)
        return "run it as root, or with CAP_NET_ADMIN";
    if (err == EPROTONOSUPPORT)
        return "this kernel has no such netlink family; load or build the module";
    return {};
}

/// What a datagram brought: 0 and its bytes, none when it was to be ignored.
int check_datagram(const msghdr &msg, const sockaddr_nl &from, const std::byte *data, std::size_t len,
                   Bytes &out)
{
    out = {};
    // Anybody may send to a netlink port; only the kernel's is 0.
    if (msg.msg_namelen != sizeof(from) || from.nl_pid != 0)
        return 0;
    if (msg.msg_flags & MSG_TRUNC)
        return EMSGSIZE;
    out = bytes_of(data, len);
    return 0;
}

/// One datagram from the kernel. 0 with out empty: it was to be ignored.
int receive_one(int fd, std::array<std::byte, 65536> &buf, int flags, Bytes &out)
{
    sockaddr_nl from{};
    iovec iov{buf.data(), buf.size()};
    msghdr msg{};
    msg.msg_name = &from;
    msg.msg_namelen = sizeof(from);
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    out = {};
    const ssize_t n = recvmsg(fd, &msg, flags);
    if (n < 0)
        return errno;
    return check_datagram(msg, from, buf.data(), static_cast<std::size_t>(n), out);
}

} // namespace

Request::Request(std::uint16_t type, std::uint16_t flags) : hdr_(mnl_nlmsg_put_header(buf_.data()))
{
    hdr_->nlmsg_type = type;
    hdr_->nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST);
}

void Request::put(std::uint16_t type, const void *data, std::size_t len)
{
    if (!mnl_attr_put_check(hdr_, buf_.size(), type, len, data))
        overflown_ = true;
}

nlattr *Request::nest(std::uint16_t type)
{
    nlattr *nested = mnl_attr_nest_start_check(hdr_, buf_.size(), type);
    if (!nested)
        overflown_ = true;
    return nested;
}

void Request::end(nlattr *nested)
{
    if (nested)
        mnl_attr_nest_end(hdr_, nested);
}

Result<Socket> Socket::open(int bus)
{
    Socket s;
    s.bus_ = bus;
    s.buf_ = std::make_unique<std::array<std::byte, 65536>>();
    if (const int err = s.connect())
        return fail_errno("open a netlink socket", err, hint_for(err));
    return s;
}

int Socket::connect()
{
    Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, bus_));
    if (!fd)
        return errno;
    sockaddr_nl self{};
    self.nl_family = AF_NETLINK;
    if (bind(fd.get(), reinterpret_cast<sockaddr *>(&self), sizeof(self)) < 0)
        return errno;
    set_option(fd.get(), NETLINK_EXT_ACK, 1);
    set_option(fd.get(), NETLINK_CAP_ACK, 1);
    if (bus_ == NETLINK_ROUTE)
        set_option(fd.get(), NETLINK_GET_STRICT_CHK, 1); // filters in dump requests are obeyed
    const timeval wait{answer_timeout_s, 0};
    if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0)
        return errno;
    fd_ = std::move(fd);
    return 0;
}

int Socket::send(const Request &request)
{
    if (request.overflown())
        return EMSGSIZE;
    if (!fd_)
        if (const int err = connect())
            return err;
    nlmsghdr *h = request.header();
    h->nlmsg_seq = ++seq_;
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    ssize_t n = 0;
    do {
        n = sendto(fd_.get(), h, h->nlmsg_len, 0, reinterpret_cast<sockaddr *>(&kernel), sizeof(kernel));
    } while (n < 0 && errno == EINTR);
    return n < 0 ? errno : 0;
}

int Socket::receive(Bytes &out)
{
    int err = 0;
    do {
        err = receive_one(fd_.get(), *buf_, 0, out);
    } while (err == EINTR);
    return err == EAGAIN ? ETIMEDOUT : err;
}

void Socket::note_text(Attrs attrs)
{
    if (const auto text = attrs.find(NLMSGERR_ATTR_MSG))
        text_ = text->text();
}

/// The errno of NLMSG_ERROR or NLMSG_DONE, 0 for success.
int Socket::finish(const Message &m)
{
    const auto negative = m.head<std::int32_t>();
    if (!negative)
        return m.type == NLMSG_DONE ? 0 : EBADMSG;
    if (*negative == 0)
        return 0;
    if (m.flags & NLM_F_ACK_TLVS) {
        std::size_t skip = sizeof(std::int32_t);
        if (m.type == NLMSG_ERROR) {
            skip = sizeof(nlmsgerr);
            const auto head = m.head<nlmsgerr>();
            if (head && !(m.flags & NLM_F_CAPPED) && head->msg.nlmsg_len >= sizeof(nlmsghdr))
                skip += head->msg.nlmsg_len - sizeof(nlmsghdr);
        }
        note_text(m.attrs(skip));
    }
    // A kernel error is a small negative number; anything else is nonsense.
    return *negative < 0 && *negative > -4096 ? -*negative : EBADMSG;
}

int Socket::exchange(const Request &request, const Handler &handler, bool is_dump)
{
    text_.clear();
    if (const int err = send(request))
        return err;
    const bool until_ack = !is_dump && (request.header()->nlmsg_flags & NLM_F_ACK) != 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(answer_timeout_s);
    bool interrupted = false;
    for (;;) {
        Bytes rest;
        const int err = receive(rest);
        if (err) {
            fd_.reset(); // what may still come belongs to nobody: start over on a new socket
            return err;
        }
        bool ours = false;
        while (const auto m = next_message(rest)) {
            if (m->seq != seq_)
                continue; // a late answer to a request that was given up
            ours = true;
            interrupted |= (m->flags & NLM_F_DUMP_INTR) != 0;
            if (m->type == NLMSG_ERROR || m->type == NLMSG_DONE) {
                const int verdict = finish(*m);
                return verdict == 0 && interrupted ? EINTR : verdict;
            }
            if (m->type < NLMSG_MIN_TYPE)
                continue;
            const bool more = !handler || handler(*m);
            if (is_dump && !more) {
                fd_.reset(); // the rest of the dump goes with the socket
                return 0;
            }
            if (!is_dump && !until_ack)
                return 0;
        }
        if (!ours && std::chrono::steady_clock::now() > deadline) {
            fd_.reset();
            return ETIMEDOUT;
        }
    }
}

int Socket::ask(const Request &request, const Handler &handler)
{
    return exchange(request, handler, false);
}

int Socket::dump(const Request &request, const Handler &handler)
{
    return exchange(request, handler, true);
}

int Socket::dump_consistent(const Request &request, const std::function<void()> &before,
                            const Handler &handler)
{
    int err = 0;
    for (int i = 0; i < dump_attempts; i++) {
        before();
        err = dump(request, handler);
        if (err != EINTR && err != ENOBUFS)
            return err;
    }
    return err;
}

tl::unexpected<Error> Socket::error(std::string what, int err) const
{
    auto e = fail_errno(std::move(what), err, hint_for(err));
    if (!text_.empty())
        e.value().why += fmt::format(" ({})", text_);
    if (err == EINTR)
        e.value().why = "it kept changing while it was read";
    return e;
}

struct EventSocket::Batch {
    static constexpr std::size_t kMost = 32;
    static constexpr std::size_t kBytes = 65536; // only what is written to takes memory

    std::array<mmsghdr, kMost> msgs{};
    std::array<iovec, kMost> iovs{};
    std::array<sockaddr_nl, kMost> from{};
    // not cleared: that would be writing to all of it
    std::unique_ptr<std::byte[]> bytes{new std::byte[kMost * kBytes]};

    [[nodiscard]] std::byte *data(std::size_t i) const { return bytes.get() + i * kBytes; }
    int receive(int fd)
    {
        for (std::size_t i = 0; i < kMost; i++) {
            iovs.at(i) = {data(i), kBytes};
            msgs.at(i) = {};
            msgs.at(i).msg_hdr.msg_name = &from.at(i);
            msgs.at(i).msg_hdr.msg_namelen = sizeof(from.at(i));
            msgs.at(i).msg_hdr.msg_iov = &iovs.at(i);
            msgs.at(i).msg_hdr.msg_iovlen = 1;
        }
        return recvmmsg(fd, msgs.data(), kMost, MSG_DONTWAIT, nullptr);
    }
};

EventSocket::EventSocket() : batch_(std::make_unique<Batch>()) {}
EventSocket::EventSocket(EventSocket &&) noexcept = default;
EventSocket &EventSocket::operator=(EventSocket &&) noexcept = default;
EventSocket::~EventSocket() = default;

Result<EventSocket> EventSocket::open(int bus, std::initializer_list<unsigned> groups,
                                      std::size_t rcvbuf_bytes, std::initializer_list<unsigned> optional)
{
    const char *what = "subscribe to kernel events";
    EventSocket s;
    s.fd_ = Fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, bus));
    if (!s.fd_)
        return fail_errno(what, errno, hint_for(errno));
    const int fd = s.fd_.get();
    const int size = static_cast<int>(std::min<std::size_t>(rcvbuf_bytes, 1U << 30));
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) < 0)
        return fail_errno(what, errno);
    sockaddr_nl self{};
    self.nl_family = AF_NETLINK;
    if (bind(fd, reinterpret_cast<sockaddr *>(&self), sizeof(self)) < 0)
        return fail_errno(what, errno, hint_for(errno));
    const auto join = [fd](unsigned group) {
        return setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0 ? errno : 0;
    };
    for (const unsigned group : groups)
        if (const int err = join(group))
            return fail_errno(what, err, hint_for(err));
    for (const unsigned group : optional)
        (void)join(group);
    return s;
}

void EventSocket::discard()
{
    // The queue refills while it is emptied; past this time the rest is left for the next call.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    for (;;) {
        const int n = batch_->receive(fd_.get());
        if (n < 0 && errno != ENOBUFS && errno != EINTR)
            return;
        if (std::chrono::steady_clock::now() > deadline)
            return;
    }
}

Result<EventSocket::State> EventSocket::read(const std::function<void(const Message &)> &handler,
                                             unsigned max_messages)
{
    unsigned seen = 0;
    while (seen < max_messages) {
        const int n = batch_->receive(fd_.get());
        int err = n < 0 ? errno : 0;
        if (err == EINTR)
            continue;
        if (err == EAGAIN)
            return State::drained;
        for (int i = 0; i < n && !err; i++) {
            const auto at = static_cast<std::size_t>(i);
            Bytes rest;
            err = check_datagram(batch_->msgs.at(at).msg_hdr, batch_->from.at(at), batch_->data(at),
                                 batch_->msgs.at(at).msg_len, rest);
            seen++;
            for (unsigned in_datagram = 0; const auto m = next_message(rest); in_datagram++) {
                seen += in_datagram > 0 ? 1 : 0;
                if (m->type >= NLMSG_MIN_TYPE)
                    handler(*m);
            }
        }
        // A datagram larger than the buffer is an event lost, just as one that was never queued.
        if (err == ENOBUFS || err == EMSGSIZE) {
            discard();
            return State::overrun;
        }
        if (err)
            return fail_errno("read kernel events", err);
    }
    return State::more;
}

} // namespace ftctl::nl
