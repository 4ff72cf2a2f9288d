// SPDX-License-Identifier: GPL-2.0-only
#include "cli/client.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/control_protocol.h"

namespace ftctl {

namespace {

/// A bound, so that a broken peer cannot fill the memory. Flows come one by one and are not held.
constexpr std::size_t kMaxAnswer = std::size_t{1} << 30;
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

/// How an answer begins that comes in pieces (control_server.cpp).
constexpr std::string_view kElements = R"({"data":[)";
constexpr const char *kNoSense = "the daemon's answer makes no sense";
constexpr const char *kSameVersion = "are ftctl and ftctld of the same version?";

Result<Answer> read_answer(const std::string &cmd, const std::string &line)
{
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("ok") || !json["ok"].is_boolean())
        return fail(cmd, kNoSense, kSameVersion);
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

/// Finds the elements of an array of objects, as text arrives.
class ElementScanner {
  public:
    /// Takes whole elements off the front of `text`, and with the last one the end of the array: true.
    /// Nothing: this is no array of objects.
    std::optional<bool> take(std::string &text, const std::function<void(nlohmann::json)> &handler)
    {
        std::size_t taken = 0;
        for (; at_ < text.size(); ++at_) {
            const char c = text[at_];
            if (in_string_) {
                in_string_ = c != '"' || escaped_;
                escaped_ = c == '\\' && !escaped_;
            } else if (c == '"') {
                in_string_ = true;
            } else if (c == '{' || c == '[') {
                if (depth_++ == 0)
                    start_ = at_;
            } else if (depth_ > 0 && (c == '}' || c == ']')) {
                if (--depth_ > 0)
                    continue;
                auto element =
                    nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(start_),
                                          text.begin() + static_cast<std::ptrdiff_t>(at_) + 1, nullptr,
                                          /*allow_exceptions=*/false);
                if (!element.is_object())
                    return std::nullopt;
                handler(std::move(element));
                taken = at_ + 1;
            } else if (depth_ == 0 && c == ']') {
                text.erase(0, at_ + 1);
                return true;
            } else if (depth_ == 0 && c != ',' && c != ' ') {
                return std::nullopt;
            }
        }
        text.erase(0, taken);
        at_ -= taken;
        start_ -= std::min(start_, taken);
        return false;
    }

  private:
    std::size_t at_ = 0;
    std::size_t start_ = 0; ///< of the element under way
    int depth_ = 0;
    bool in_string_ = false;
    bool escaped_ = false;
};

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
        if (auto more = receive(what); !more)
            return tl::unexpected(more.error());
    }
}

/// Some more bytes of an answer.
Status Client::receive(const std::string &what)
{
    const std::size_t before = in_.size();
    if (before > kMaxAnswer)
        return fail(what, "the answer is too long");
    if (wait_for(fd_.get(), POLLIN, timeout) == Ready::timeout)
        return fail(what, "no answer from the daemon", "is it stopped, or very busy?");
    in_.resize(before + kChunk);
    const ssize_t n = recv(fd_.get(), in_.data() + before, kChunk, 0);
    const int err = errno;
    in_.resize(before + static_cast<std::size_t>(n > 0 ? n : 0));
    if (n == 0 || (n < 0 && err == ECONNRESET))
        return gone(what, instance_);
    if (n < 0 && err != EINTR)
        return fail_errno(what, err);
    return {};
}

Status Client::ask(const std::string &cmd, nlohmann::json arguments)
{
    arguments["cmd"] = cmd;
    const auto text = dump_line(arguments) + '\n';
    if (text.size() > kMaxRequest)
        return fail(cmd, "too many words for one request", {}, Code::usage);
    return send_all(cmd, text);
}

Result<Answer> Client::call(const std::string &cmd, nlohmann::json arguments)
{
    if (auto asked = ask(cmd, std::move(arguments)); !asked)
        return tl::unexpected(asked.error());
    const auto line = receive_line(cmd);
    if (!line)
        return tl::unexpected(line.error());
    return read_answer(cmd, *line);
}

Result<Answer> Client::call_each(const std::string &cmd, nlohmann::json arguments,
                                 const std::function<void(nlohmann::json)> &handler)
{
    if (auto asked = ask(cmd, std::move(arguments)); !asked)
        return tl::unexpected(asked.error());
    while (in_.size() < kElements.size() && in_.find('\n') == std::string::npos)
        if (auto more = receive(cmd); !more)
            return tl::unexpected(more.error());
    const bool piecewise = in_.starts_with(kElements);
    if (piecewise) {
        in_.erase(0, kElements.size());
        ElementScanner scanner;
        for (bool ended = false; !ended;) {
            auto done = scanner.take(in_, handler);
            if (!done)
                return fail(cmd, kNoSense, kSameVersion);
            ended = *done;
            if (!ended)
                if (auto more = receive(cmd); !more)
                    return tl::unexpected(more.error());
        }
        in_.insert(0, std::string(kElements) + "]");
    }
    const auto line = receive_line(cmd);
    if (!line)
        return tl::unexpected(line.error());
    auto answer = read_answer(cmd, *line);
    if (answer && answer->data.is_array())
        for (auto &element : std::exchange(answer->data, nlohmann::json::array()))
            handler(std::move(element));
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
