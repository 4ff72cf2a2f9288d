// SPDX-License-Identifier: GPL-2.0-only
#include "flow/pppoe_guess.h"

#include <algorithm>
#include <iterator>

namespace ftctl {

bool PppoeGuess::update(std::vector<PppoeSession> sessions)
{
    if (sessions == sessions_)
        return false;
    sessions_ = std::move(sessions);
    std::erase_if(confirmed_, [this](const auto &item) {
        return std::find(sessions_.begin(), sessions_.end(), item.second) == sessions_.end();
    });
    return true;
}

void PppoeGuess::forget(std::uint32_t ifindex)
{
    confirmed_.erase(ifindex);
    tried_.erase(ifindex);
}

std::vector<PppoeSession> PppoeGuess::candidates(std::uint32_t ifindex) const
{
    std::vector<PppoeSession> left;
    std::copy_if(sessions_.begin(), sessions_.end(), std::back_inserter(left), [&](const PppoeSession &s) {
        return std::none_of(confirmed_.begin(), confirmed_.end(),
                            [&](const auto &item) { return item.second == s && item.first != ifindex; });
    });
    return left;
}

std::optional<PppoeSession> PppoeGuess::session(std::uint32_t ifindex) const
{
    if (const auto it = confirmed_.find(ifindex); it != confirmed_.end())
        return it->second;
    const auto left = candidates(ifindex);
    if (left.empty() || left.size() > kMaxCandidates)
        return std::nullopt;
    const auto it = tried_.find(ifindex);
    return left[(it == tried_.end() ? 0 : it->second) % left.size()];
}

void PppoeGuess::confirm(std::uint32_t ifindex, const PppoeSession &session)
{
    confirmed_.insert_or_assign(ifindex, session);
}

bool PppoeGuess::next(std::uint32_t ifindex)
{
    if (confirmed_.count(ifindex) > 0 || candidates(ifindex).size() < 2)
        return false;
    tried_[ifindex]++;
    return true;
}

} // namespace ftctl
