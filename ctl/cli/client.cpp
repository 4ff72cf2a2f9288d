// SPDX-License-Identifier: GPL-2.0-only
#include "cli/client.h"

#include <array>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/control_protocol.h"

namespace ftctl {

namespace {

/// Enough for some million flows; a bound, so that a broken peer cannot fill the memory.
constexpr std::size_t kMaxAnswer = std::size_t{4} << 30;
constexpr std::size_t kChunk = 65536;

enum class Ready { yes, timeout, stopped };

Ready wait_for(int fd, short events, std::chrono::milliseconds timeout, int stop_fd = -1)
{
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const bool forever = timeout.count() < 0;
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (!forever && left.count() < 0)
            return Ready::timeout;
        std::array<pollfd, 2> fds{pollfd{fd, events, 0}, pollfd{stop_fd, POLLIN, 0}};
        const int n = poll(fds.data(), fds.size(), forever ? -1 : static_cast<int>(left.count()) + 1);
        if (n > 0 && fds[1].revents != 0)
            return Ready::stopped;
        if (n > 0)
            return Ready::yes;
        if (n < 0 && errno != EINTR)
            return Ready::timeout;
    }
}

std::string start_hint(const std::string &instance)
{
    return "start it: ftctld -i " + instance;
}

tl::unexpected<Error> gone(const std::string &what, const std::string &instance)
{
    return fail(what, "the daemon closed the connection", start_hint(instance), Code::not_running);
}

} // namespace

Result<Client> Client::connect(const std::string &instance)
{
    return connect_path(socket_path(instance), instance);
}

Result<Client> Client::connect_path(const std::string &path, const std::string &instance)
{
    const std::string what = "instance " + instance;
    sockaddr_un sa{};
    sa.sun_family = AF_UNIX;
    if (path.size() >= sizeof(sa.sun_path))
        return fail(what, "the name is too long", {}, Code::usage);
    path.copy(sa.sun_path, sizeof(sa.sun_path) - 1);
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd)
        return fail_errno(what, errno);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr *>(&sa), sizeof(sa)) != 0) {
        const int err = errno;
        if (err == ENOENT || err == ECONNREFUSED)
            return fail(what, "the daemon is not running", start_hint(instance), Code::not_running);
        return fail_errno(what + ": " + path, err,
                          err == EACCES ? "run ftctl as root, or in the socket's group" : "");
    }
    return Client(std::move(fd), instance);
}

Status Client::send_all(const std::string &what, const std::string &text)
{
    std::size_t sent = 0;
    while (sent < text.size()) {
        if (wait_for(fd_.get(), POLLOUT, timeout) == Ready::timeout)
            return fail(what, "the daemon does not take the request", "is it stopped?");
        const ssize_t n =
            send(fd_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return {}; // it may have said why before it closed
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fail_errno(what, errno);
        if (n > 0)
            sent += static_cast<std::size_t>(n);
    }
    return {};
}

Result<std::string> Client::receive_line(const std::string &what)
{
    std::size_t searched = 0;
    for (;;) {
        const auto end = in_.find('\n', searched);
        if (end != std::string::npos) {
            std::string line = in_.substr(0, end);
            in_.erase(0, end + 1);
            return line;
        }
        searched = in_.size();
        if (in_.size() > kMaxAnswer)
            return fail(what, "the answer is too long");
        if (wait_for(fd_.get(), POLLIN, timeout) == Ready::timeout)
            return fail(what, "no answer from the daemon", "is it stopped, or very busy?");
        in_.resize(searched + kChunk);
        const ssize_t n = recv(fd_.get(), in_.data() + searched, kChunk, 0);
        const int err = errno;
        in_.resize(searched + static_cast<std::size_t>(n > 0 ? n : 0));
        if (n == 0 || (n < 0 && err == ECONNRESET))
            return gone(what, instance_);
        if (n < 0 && err != EINTR)
            return fail_errno(what, err);
    }
}

Result<Answer> Client::call(const std::string &cmd, nlohmann::json arguments)
{
    arguments["cmd"] = cmd;
    const auto text = dump_line(arguments) + '\n';
    if (text.size() > kMaxRequest)
        return fail(cmd, "too many words for one request", {}, Code::usage);
    if (auto status = send_all(cmd, text); !status)
        return tl::unexpected(status.error());
    const auto line = receive_line(cmd);
    if (!line)
        return tl::unexpected(line.error());
    auto json = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("ok") || !json["ok"].is_boolean())
        return fail(cmd, "the daemon's answer makes no sense", "are ftctl and ftctld of the same version?");
    if (!json["ok"].get<bool>())
        return tl::unexpected(error_from_json(json.contains("error") ? json["error"] : nlohmann::json()));
    Answer answer;
    if (json.contains("data"))
        answer.data = std::move(json["data"]);
    if (const auto it = json.find("errors"); it != json.end() && it->is_array())
        for (const auto &e : *it)
            answer.errors.push_back(error_from_json(e));
    return answer;
}

Status Client::stream(int stop_fd, const std::function<bool(std::string_view)> &handler)
{
    std::array<char, kChunk> buf{};
    for (;;) {
        std::size_t start = 0;
        for (auto end = in_.find('\n'); end != std::string::npos; end = in_.find('\n', start)) {
            if (!handler(std::string_view(in_).substr(start, end - start)))
                return {};
            start = end + 1;
        }
        in_.erase(0, start);
        if (in_.size() > (std::size_t{16} << 20))
            return fail("monitor", "an event is too long");
        if (wait_for(fd_.get(), POLLIN, std::chrono::milliseconds(-1), stop_fd) == Ready::stopped)
            return {};
        const ssize_t n = recv(fd_.get(), buf.data(), buf.size(), 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return gone("monitor", instance_);
        if (n < 0 && errno != EINTR)
            return fail_errno("monitor", errno);
        if (n > 0)
            in_.append(buf.data(), static_cast<std::size_t>(n));
    }
}

} // namespace ftctl
