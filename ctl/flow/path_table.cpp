// SPDX-License-Identifier: GPL-2.0-only
#include "flow/path_table.h"

namespace ftctl {

std::optional<std::uint32_t> PathTable::acquire(const Way &way)
{
    if (const auto it = by_way_.find(way); it != by_way_.end()) {
        entries_.at(it->second).users++;
        return it->second;
    }
    std::uint32_t index = 0;
    if (fresh_ < size_) {
        index = fresh_++;
    } else if (!free_.empty()) {
        index = free_.front();
        free_.pop_front();
    } else {
        return std::nullopt;
    }
    entries_.emplace(index, Entry{way, 1});
    by_way_.emplace(way, index);
    return index;
}

void PathTable::release(std::uint32_t index)
{
    const auto it = entries_.find(index);
    if (it == entries_.end() || --it->second.users > 0)
        return;
    by_way_.erase(it->second.way);
    entries_.erase(it);
    free_.push_back(index);
}

const Way *PathTable::way(std::uint32_t index) const
{
    const auto it = entries_.find(index);
    return it == entries_.end() ? nullptr : &it->second.way;
}

template <typename Which>
std::vector<std::uint32_t> PathTable::which(Which &&which) const
{
    std::vector<std::uint32_t> found;
    for (const auto &[index, entry] : entries_)
        if (which(entry.way))
            found.push_back(index);
    return found;
}

std::vector<std::uint32_t> PathTable::by_device(std::uint32_t ifindex) const
{
    return which([&](const Way &way) { return way.uses(ifindex); });
}

std::vector<std::uint32_t> PathTable::by_neighbour(std::uint32_t ifindex, const IpAddr &next_hop) const
{
    return which([&](const Way &way) { return way.neigh_dev == ifindex && way.next_hop == next_hop; });
}

std::vector<std::uint32_t> PathTable::by_station(std::uint32_t bridge, const Mac &mac) const
{
    return which([&](const Way &way) { return way.station == mac && way.uses(bridge); });
}

std::vector<std::uint32_t> PathTable::all() const
{
    return which([](const Way &) { return true; });
}

} // namespace ftctl
