// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/control_server.h"

#include <array>
#include <unordered_map>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "daemon/control_listen.h"
#include "daemon/control_protocol.h"
#include "util/fd.h"

namespace ftctl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEventsPerDispatch = 64;
constexpr int kAcceptsPerDispatch = 16;
constexpr std::size_t kReadChunk = 16384;

struct Client {
    Fd fd;
    std::string in;  ///< bytes of a request not yet complete
    std::string out; ///< bytes not yet taken by the kernel, from `sent` on
    std::size_t sent = 0;
    std::function<bool(std::string &)> elements; ///< of an answer under way: see Reply
    bool first_element = false;                  ///< none was sent yet
    bool monitor = false;
    bool closing = false; ///< close as soon as `out` is written
    std::uint32_t wants = 0;
    Clock::time_point progress = Clock::now();

    [[nodiscard]] std::size_t pending() const { return out.size() - sent; }
};

class Server final : public ControlServer {
  public:
    Server(ListeningSocket socket, Fd epoll, Fd timer, Handler handler, const Options &options)
        : socket_(std::move(socket)), epoll_(std::move(epoll)), timer_(std::move(timer)),
          handler_(std::move(handler)), options_(options)
    {
    }
    ~Server() override { socket_.remove_file(); }
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
    Server(Server &&) = delete;
    Server &operator=(Server &&) = delete;

    [[nodiscard]] int fd() const override { return epoll_.get(); }
    [[nodiscard]] std::size_t clients() const override { return clients_.size(); }
    [[nodiscard]] std::size_t monitors() const override
    {
        std::size_t n = 0;
        for (const auto &[fd, c] : clients_)
            n += c.monitor ? 1 : 0;
        return n;
    }
    Status dispatch() override;
    void publish(const nlohmann::json &event) override;

    [[nodiscard]] bool watch(int fd, std::uint32_t events, int op) const
    {
        epoll_event ev{};
        ev.events = events;
        ev.data.fd = fd;
        return epoll_ctl(epoll_.get(), op, fd, &ev) == 0;
    }

  private:
    void accept_clients();
    void read_client(Client &c);
    void serve_lines(Client &c);
    void write_client(Client &c);
    static void next_elements(Client &c);
    void answer(Client &c, const nlohmann::json &json) const;
    void refuse(Client &c, const Error &error) const;
    void expire();
    void arm_timer();
    void settle(int fd);

    ListeningSocket socket_;
    Fd epoll_;
    Fd timer_;
    Handler handler_;
    Options options_;
    std::unordered_map<int, Client> clients_;
    bool timer_armed_ = false;
};

Status Server::dispatch()
{
    std::array<epoll_event, kEventsPerDispatch> events{};
    const int n = epoll_wait(epoll_.get(), events.data(), kEventsPerDispatch, 0);
    if (n < 0 && errno != EINTR)
        return fail_errno("wait for control clients", errno);
    bool accept = false;
    for (int i = 0; i < n; i++) {
        const int fd = events.at(static_cast<std::size_t>(i)).data.fd;
        const std::uint32_t what = events.at(static_cast<std::size_t>(i)).events;
        if (fd == socket_.fd.get()) {
            accept = true;
            continue;
        }
        if (fd == timer_.get()) {
            expire();
            continue;
        }
        const auto it = clients_.find(fd);
        if (it == clients_.end())
            continue;
        Client &c = it->second;
        if ((what & (EPOLLERR | EPOLLHUP)) != 0 && (what & EPOLLIN) == 0) {
            clients_.erase(it);
            continue;
        }
        if ((what & EPOLLIN) != 0)
            read_client(c);
        settle(fd);
    }
    // Last, so that no event of a client just closed is taken for one of a new client's descriptor.
    if (accept)
        accept_clients();
    arm_timer();
    return {};
}

void Server::accept_clients()
{
    for (int i = 0; i < kAcceptsPerDispatch; i++) {
        Fd fd(accept4(socket_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd)
            return; // EAGAIN, or a client that has already gone
        const int raw = fd.get();
        Client c;
        c.fd = std::move(fd);
        if (!peer_allowed(raw, socket_.path))
            refuse(c, {"control socket", "permission denied", "run ftctl as root, or in the socket's group",
                       Code::refused, EACCES});
        else if (clients_.size() >= options_.max_clients)
            refuse(c, {"control socket", "too many clients", "close some (ftctl monitor, ftctl top)",
                       Code::refused, EBUSY});
        if (c.closing) {
            write_client(c); // fits the socket buffer; never waited for
            continue;
        }
        c.wants = EPOLLIN;
        if (watch(raw, c.wants, EPOLL_CTL_ADD))
            clients_.emplace(raw, std::move(c));
    }
}

void Server::read_client(Client &c)
{
    std::array<char, kReadChunk> buf{};
    const ssize_t n = recv(c.fd.get(), buf.data(), buf.size(), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        // No more requests. What was answered is still delivered (a client may half-close).
        c.closing = true;
        c.monitor = false;
        return;
    }
    if (n < 0)
        return;
    c.progress = Clock::now();
    if (c.monitor)
        return; // a monitor has nothing more to say
    c.in.append(buf.data(), static_cast<std::size_t>(n));
    serve_lines(c);
}

void Server::serve_lines(Client &c)
{
    // The next request waits until the last answer is on its way, so that a client cannot make
    // the daemon hold many large answers.
    while (!c.closing && !c.monitor && c.pending() == 0 && !c.elements) {
        const auto end = c.in.find('\n');
        if (end > kMaxRequest && (end != std::string::npos || c.in.size() > kMaxRequest)) {
            refuse(c,
                   {"request", "longer than " + std::to_string(kMaxRequest) + " bytes", {}, Code::usage, 0});
            return;
        }
        if (end == std::string::npos)
            return;
        const auto request = parse_request(std::string_view(c.in).substr(0, end));
        c.in.erase(0, end + 1);
        if (!request) {
            answer(c, {{"ok", false}, {"error", error_json(request.error())}});
            write_client(c);
            continue;
        }
        auto reply = handler_(*request);
        if (!reply.error && reply.elements) {
            c.elements = std::move(reply.elements);
            c.first_element = true;
            c.out += R"({"data":[)";
            return; // settle() goes on
        }
        nlohmann::json json;
        if (reply.error) {
            json = {{"ok", false}, {"error", error_json(*reply.error)}};
        } else {
            json["ok"] = true;
            json["data"] = std::move(reply.data);
            for (const auto &e : reply.errors)
                json["errors"].push_back(error_json(e));
            c.monitor = reply.monitor;
        }
        answer(c, json);
        write_client(c);
    }
}

/// A piece of a large answer, when the one before has been read.
void Server::next_elements(Client &c)
{
    std::string text;
    const bool more = c.elements(text);
    if (!text.empty()) {
        c.out.append(text, c.first_element ? 1 : 0); // without the comma
        c.first_element = false;
    } else if (more) {
        c.out += ' '; // a long search is no silence: neither end gives up
    }
    if (!more) {
        c.elements = nullptr;
        c.out += R"(],"ok":true})";
        c.out += '\n';
    }
}

void Server::answer(Client &c, const nlohmann::json &json) const
{
    c.out += dump_line(json);
    c.out += '\n';
}

void Server::refuse(Client &c, const Error &error) const
{
    answer(c, {{"ok", false}, {"error", error_json(error)}});
    c.in.clear();
    c.closing = true;
}

void Server::write_client(Client &c)
{
    while (c.pending() > 0) {
        const ssize_t n = send(c.fd.get(), c.out.data() + c.sent, c.pending(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            c.out.clear(); // the reader has gone
            c.elements = nullptr;
            c.sent = 0;
            c.closing = true;
            return;
        }
        if (n <= 0)
            break;
        c.sent += static_cast<std::size_t>(n);
        c.progress = Clock::now();
    }
    if (c.pending() == 0) {
        c.out = {}; // an answer may have been large: give the memory back
        c.sent = 0;
    } else if (c.monitor && c.sent > options_.monitor_queue) {
        c.out.erase(0, c.sent);
        c.sent = 0;
    }
}

/// Brings a client's poll interest up to date, or closes it.
void Server::settle(int fd)
{
    const auto it = clients_.find(fd);
    if (it == clients_.end())
        return;
    Client &c = it->second;
    if (c.elements && c.pending() == 0)
        next_elements(c);
    if (c.pending() > 0)
        write_client(c);
    if (c.pending() == 0 && !c.closing)
        serve_lines(c); // requests that came while the last answer was being written
    if (c.closing && c.pending() == 0 && !c.elements) {
        clients_.erase(it);
        return;
    }
    const std::uint32_t wants =
        c.pending() > 0 || c.elements ? (EPOLLOUT | (c.monitor ? EPOLLIN : 0U)) : EPOLLIN;
    if (wants != c.wants) {
        c.wants = wants;
        if (!watch(fd, wants, EPOLL_CTL_MOD))
            clients_.erase(it);
    }
}

void Server::publish(const nlohmann::json &event)
{
    if (clients_.empty())
        return;
    std::string line;
    for (auto it = clients_.begin(); it != clients_.end();) {
        const int fd = it->first;
        Client &c = it->second;
        ++it; // settle() may erase this one
        if (!c.monitor)
            continue;
        if (line.empty())
            line = dump_line(event) + '\n';
        if (c.pending() + line.size() > options_.monitor_queue) {
            clients_.erase(fd);
            continue;
        }
        c.out += line;
        settle(fd);
    }
}

void Server::expire()
{
    std::uint64_t ticks = 0;
    if (read(timer_.get(), &ticks, sizeof(ticks)) < 0)
        return;
    const auto limit = Clock::now() - options_.idle;
    std::erase_if(clients_, [&](const auto &entry) {
        const Client &c = entry.second;
        // A monitor may be silent for as long as it likes, but not stop reading.
        return c.progress < limit && (!c.monitor || c.pending() > 0);
    });
}

/// Ticks while there is somebody to expire, so that an idle daemon sleeps.
void Server::arm_timer()
{
    const bool arm = !clients_.empty();
    if (arm == timer_armed_)
        return;
    timer_armed_ = arm;
    itimerspec spec{};
    if (arm) {
        const auto period = std::chrono::duration_cast<std::chrono::nanoseconds>(options_.idle) / 4;
        spec.it_interval.tv_sec = static_cast<time_t>(period.count() / 1000000000);
        spec.it_interval.tv_nsec = static_cast<long>(period.count() % 1000000000);
        spec.it_value = spec.it_interval;
    }
    timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

} // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::listen(const std::string &path, Handler handler,
                                                             const Options &options)
{
    auto socket = listen_at(path);
    if (!socket)
        return tl::unexpected(socket.error());
    Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    Fd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!epoll || !timer) {
        const int err = errno;
        socket->remove_file();
        return fail_errno("control socket " + path, err);
    }
    const int listen_fd = socket->fd.get();
    const int timer_fd = timer.get();
    auto server = std::make_unique<Server>(std::move(*socket), std::move(epoll), std::move(timer),
                                           std::move(handler), options);
    if (!server->watch(listen_fd, EPOLLIN, EPOLL_CTL_ADD) || !server->watch(timer_fd, EPOLLIN, EPOLL_CTL_ADD))
        return fail_errno("control socket " + path, errno);
    return server;
}

} // namespace ftctl
