// SPDX-License-Identifier: GPL-2.0-only
// The command's end of the control socket.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "util/fd.h"
#include "util/result.h"

namespace ftctl {

/// What the daemon gave: data, and the parts that failed (exit code 4 when there are any).
struct Answer {
    nlohmann::json data;
    std::vector<Error> errors;
};

class Client {
  public:
    /// Code::not_running when nobody serves the instance.
    static Result<Client> connect(const std::string &instance);
    /// The same for any path; `instance` is for messages.
    static Result<Client> connect_path(const std::string &path, const std::string &instance);

    /// One request, one answer. The daemon may be silent for `timeout` at most, not longer. An
    /// answer of {"ok": false} is an Error.
    Result<Answer> call(const std::string &cmd, nlohmann::json arguments = nlohmann::json::object());

    /// The same for a command whose data is an array, which may be too large to hold: the handler gets its
    /// elements one after the other, and the answer's own data is an empty array.
    Result<Answer> call_each(const std::string &cmd, nlohmann::json arguments,
                             const std::function<void(nlohmann::json)> &handler);

    /// Calls the handler with each line (without newline) that comes after the answer to
    /// `monitor`, until it returns false, `stop_fd` becomes readable (ok) or the daemon closes
    /// (Code::not_running).
    Status stream(int stop_fd, const std::function<bool(std::string_view)> &handler);

    std::chrono::milliseconds timeout{30000};

  private:
    Client(Fd fd, std::string instance) : fd_(std::move(fd)), instance_(std::move(instance)) {}
    Status ask(const std::string &cmd, nlohmann::json arguments);
    Status send_all(const std::string &what, const std::string &text);
    Status receive(const std::string &what);
    Result<std::string> receive_line(const std::string &what);

    Fd fd_;
    std::string instance_;
    std::string in_;
};

} // namespace ftctl
