// SPDX-License-Identifier: GPL-2.0-only
// A control server in a temporary directory, and raw clients. Everything runs in one thread:
// whoever waits lets the server work meanwhile, with a deadline.
#pragma once

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/control_server.h"
#include "util/fd.h"

namespace ftctl::test {

inline constexpr auto kDeadline = std::chrono::seconds(20);

struct TempDir {
    std::string path;
    TempDir()
    {
        std::string name = "/tmp/ftctl-unit-XXXXXX";
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~TempDir()
    {
        unlink((path + "/s").c_str());
        unlink((path + "/dir/s").c_str());
        rmdir((path + "/dir").c_str());
        rmdir(path.c_str());
    }
    TempDir(const TempDir &) = delete;
    TempDir &operator=(const TempDir &) = delete;
};

/// Dispatches until the condition holds; false when the deadline passes first.
template <typename Condition>
bool serve_until(ControlServer &server, Condition &&condition)
{
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        pollfd p{server.fd(), POLLIN, 0};
        if (poll(&p, 1, 5) > 0 && !server.dispatch())
            return false;
    }
    return true;
}

class RawClient {
  public:
    explicit RawClient(const std::string &path)
        : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))
    {
        sockaddr_un sa{};
        sa.sun_family = AF_UNIX;
        path.copy(sa.sun_path, sizeof(sa.sun_path) - 1);
        REQUIRE(connect(fd_.get(), reinterpret_cast<sockaddr *>(&sa), sizeof(sa)) == 0);
    }
    /// Writes all of it, the server working meanwhile; false when it closed.
    bool send_text(ControlServer &server, const std::string &text)
    {
        std::size_t sent = 0;
        bool open = true;
        CHECK(serve_until(server, [&] {
            const auto n = send(fd_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
            if (n > 0)
                sent += static_cast<std::size_t>(n);
            else if (n < 0 && errno != EAGAIN)
                open = false;
            return sent == text.size() || !open;
        }));
        return open;
    }
    /// The next line as JSON; null when the server closed.
    nlohmann::json receive(ControlServer &server)
    {
        CHECK(serve_until(server, [&] {
            pump();
            return in_.find('\n') != std::string::npos || closed_;
        }));
        const auto end = in_.find('\n');
        if (end == std::string::npos)
            return nullptr;
        auto json = nlohmann::json::parse(in_.substr(0, end));
        in_.erase(0, end + 1);
        return json;
    }
    nlohmann::json ask(ControlServer &server, const std::string &line)
    {
        send_text(server, line + "\n");
        return receive(server);
    }
    bool closed(ControlServer &server)
    {
        return serve_until(server, [&] {
            pump();
            return closed_;
        });
    }
    void half_close() { shutdown(fd_.get(), SHUT_WR); }
    void shut() { fd_.reset(); }
    [[nodiscard]] int fd() const { return fd_.get(); }

  private:
    void pump()
    {
        char buf[65536];
        for (;;) {
            const auto n = recv(fd_.get(), buf, sizeof(buf), 0);
            if (n > 0) {
                in_.append(buf, static_cast<std::size_t>(n));
                continue;
            }
            closed_ = closed_ || n == 0 || (errno != EAGAIN && errno != EINTR);
            return;
        }
    }
    Fd fd_;
    std::string in_;
    bool closed_ = false;
};

/// Answers "echo" with the request, "search" with one after a time, "many" with n elements without every
/// eleventh, "big" with many bytes, "part" in part, "no" with an error.
inline Reply handler(const nlohmann::json &request)
{
    Reply reply;
    const auto cmd = request.at("cmd").get<std::string>();
    if (cmd == "echo")
        reply.data = request;
    else if (cmd == "search") // ... for a quarter of a second
        reply.elements = [n = 0](std::string &text) mutable {
            usleep(5000);
            if (++n == 50)
                text += R"(,{"n":1})";
            return n < 50;
        };
    else if (cmd == "many") // some pieces are empty, and text is what brackets are looked for in
        reply.elements = [n = 0, want = request.value("n", 0)](std::string &text) mutable {
            for (int i = 0; i < 7 && n < want && n % 11 != 10; i++, n++)
                text += ',' + nlohmann::json{{"n", n}, {"text", "]}\\\"[{" + std::string(100, 'x')}}.dump();
            if (n % 11 == 10)
                n++;
            return n < want;
        };
    else if (cmd == "big")
        reply.data = std::string(20U << 20, 'x');
    else if (cmd == "part")
        reply.errors.push_back({"attach eth1", "no such device", "", Code::not_running, ENODEV});
    else if (cmd == "monitor")
        reply.monitor = true;
    else if (cmd == "bytes")
        reply.data = "\xff\xfe";
    else
        reply.error = Error{cmd, "unknown command", "see ftctl --help", Code::usage, 0};
    return reply;
}

inline std::unique_ptr<ControlServer> serve(const std::string &path,
                                            const ControlServer::Options &options = {})
{
    auto server = ControlServer::listen(path, handler, options);
    if (!server)
        FAIL(server.error().what << ": " << server.error().why);
    return std::move(*server);
}

} // namespace ftctl::test
