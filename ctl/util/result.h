// SPDX-License-Identifier: GPL-2.0-only
// How modules report failure: values, never exceptions.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <tl/expected.hpp>

namespace ftctl {

/// Exit codes of the command; also carried over the control socket.
enum class Code : int {
    ok = 0,
    usage = 1,       ///< the call's words are wrong
    refused = 2,     ///< the kernel or the daemon said no
    not_running = 3, ///< no daemon, or the device is not attached
    partial = 4,     ///< done in part
};

/// What failed, why, and what the user can do about it. Printed as
/// `ftctl: WHAT: WHY` and, when there is one, a line `hint: HINT`.
struct Error {
    std::string what; ///< the operation, in the user's words ("attach eth0")
    std::string why;  ///< the cause, with the kernel's own text where there is one
    std::string hint; ///< what to do; may be empty
    Code code = Code::refused;
    int err = 0; ///< positive errno when the kernel gave one
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

/// An Error as the unexpected arm: `return fail("attach eth0", "no such device");`
inline tl::unexpected<Error> fail(std::string what, std::string why, std::string hint = {},
                                  Code code = Code::refused)
{
    return tl::unexpected<Error>(Error{std::move(what), std::move(why), std::move(hint), code, 0});
}

/// An Error from errno (positive). `why` becomes strerror(err).
inline tl::unexpected<Error> fail_errno(std::string what, int err, std::string hint = {})
{
    return tl::unexpected<Error>(
        Error{std::move(what), std::strerror(err), std::move(hint), Code::refused, err});
}

} // namespace ftctl
