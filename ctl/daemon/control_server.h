// SPDX-License-Identifier: GPL-2.0-only
// The daemon's end of the control socket (daemon/control_protocol.h is the language).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "util/result.h"

namespace ftctl {

/// What a command gave.
struct Reply {
    nlohmann::json data = nlohmann::json::object();
    std::vector<Error> errors;  ///< parts that failed although the rest was done (exit code 4)
    std::optional<Error> error; ///< the whole failed; data and errors are not sent
    bool monitor = false;       ///< the client now receives what is published
    /// Gives an array that may be too large to hold: `data` stays unused. Each call appends a few elements as
    /// JSON text, each with a comma before it, and says whether there may be more. Called while the client
    /// reads, between other work, until it is done or the client has gone.
    std::function<bool(std::string &text)> elements;
};

/// Serves clients without ever blocking: everything happens in dispatch() and publish(), called by
/// one thread.
class ControlServer {
  public:
    /// Gets an object with a string "cmd"; the rest of the request is the sender's and unchecked.
    /// Must not call back into the server's dispatch().
    using Handler = std::function<Reply(const nlohmann::json &request)>;

    struct Options {
        std::size_t max_clients = 64;
        std::size_t monitor_queue = std::size_t{1} << 20; ///< bytes a monitor may lag behind
        std::chrono::milliseconds idle{30000};            ///< no progress for this long: closed
    };

    /// Listens at `path` with mode 0660; makes the directory (0755) when it is missing. A socket
    /// that nobody serves is replaced; one that somebody serves is an error.
    static Result<std::unique_ptr<ControlServer>> listen(const std::string &path, Handler handler,
                                                         const Options &options);
    static Result<std::unique_ptr<ControlServer>> listen(const std::string &path, Handler handler)
    {
        return listen(path, std::move(handler), Options{});
    }
    virtual ~ControlServer() = default; ///< closes all clients and removes the socket if it is still ours

    /// One descriptor for the caller's loop: readable when dispatch() has something to do.
    [[nodiscard]] virtual int fd() const = 0;

    /// Accepts, reads, answers, writes, and closes idle clients; bounded work per call. An error is
    /// one of the server itself, never of a client.
    virtual Status dispatch() = 0;

    /// Sends one event to every monitor. Those that lag too far behind are dropped.
    virtual void publish(const nlohmann::json &event) = 0;

    /// For status: clients connected now, and monitors among them.
    [[nodiscard]] virtual std::size_t clients() const = 0;
    [[nodiscard]] virtual std::size_t monitors() const = 0;
};

} // namespace ftctl
