// SPDX-License-Identifier: GPL-2.0-only
// Which PPPoE session is behind which ppp device. The kernel tells both, but not what belongs
// together (netlink/pppoe.h). So a session is assumed, and the witness says whether it was the right
// one: a wrong one matches no packet.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "netlink/pppoe.h"

namespace ftctl {

class PppoeGuess {
  public:
    /// Beyond so many sessions that may be a device's, none is assumed.
    static constexpr std::size_t kMaxCandidates = 16;

    /// The sessions there are now. True when they have changed.
    bool update(std::vector<PppoeSession> sessions);
    /// The device is gone.
    void forget(std::uint32_t ifindex);

    /// The session of this ppp device: the one confirmed, or the one assumed.
    [[nodiscard]] std::optional<PppoeSession> session(std::uint32_t ifindex) const;
    /// The witness saw a packet of this device leave by that session.
    void confirm(std::uint32_t ifindex, const PppoeSession &session);
    /// There is more than one session, so that which is whose may have to be found out.
    [[nodiscard]] bool ambiguous() const { return sessions_.size() > 1; }
    /// No packet was seen to leave by the session assumed: assumes the next one. False when it is
    /// confirmed, or there is no other.
    bool next(std::uint32_t ifindex);

  private:
    /// Those that are not another device's.
    [[nodiscard]] std::vector<PppoeSession> candidates(std::uint32_t ifindex) const;

    std::vector<PppoeSession> sessions_;
    std::map<std::uint32_t, PppoeSession> confirmed_;
    std::map<std::uint32_t, std::size_t> tried_;
};

} // namespace ftctl
