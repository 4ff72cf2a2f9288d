// SPDX-License-Identifier: GPL-2.0-only
// Why a connection stays on the slow path.
#pragma once

#include <string>
#include <utility>

#include <tl/expected.hpp>

#include "ftctl/abi.h"

namespace ftctl {

/// A refusal reason (id 64 and up in reasons.def) and what it is about: "device" + "eth7".
struct Refusal {
    ftctl_reason reason{};
    std::string detail; ///< may be empty

    bool operator==(const Refusal &) const = default;
};

/// Either what was decided, or why not.
template <typename T>
using Decision = tl::expected<T, Refusal>;

inline tl::unexpected<Refusal> refuse(ftctl_reason reason, std::string detail = {})
{
    return tl::unexpected<Refusal>(Refusal{reason, std::move(detail)});
}

} // namespace ftctl
