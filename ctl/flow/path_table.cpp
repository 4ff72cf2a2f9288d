// SPDX-License-Identifier: GPL-2.0-only
#include "flow/path_table.h"

namespace ftctl {

std::size_t PathTable::Hash::operator()(const Way &way) const
{
    // Where ways differ: the next hop and the devices. The rest follows from these as a rule.
    const Tuple ends{way.next_hop, way.tunnel ? way.tunnel->remote : IpAddr{},
                     static_cast<std::uint16_t>(way.neigh_dev), static_cast<std::uint16_t>(way.l3_oif),
                     way.family};
    return TupleHash{}(ends) ^ way.oif ^ static_cast<std::size_t>(way.mtu) << 16;
}

std::optional<std::uint32_t> PathTable::acquire(const Way &way)
{
    if (const auto it = by_way_.find(way); it != by_way_.end()) {
        entries_[it->second].users++;
        return it->second;
    }
    std::uint32_t index = 0;
    if (fresh_ < size_) {
        index = fresh_++;
        entries_.resize(fresh_);
    } else if (!free_.empty()) {
        index = free_.front();
        free_.pop_front();
    } else {
        return std::nullopt;
    }
    entries_[index] = {way, 1};
    by_way_.emplace(way, index);
    return index;
}

void PathTable::release(std::uint32_t index)
{
    if (!this->way(index) || --entries_[index].users > 0)
        return;
    by_way_.erase(entries_[index].way);
    entries_[index] = {};
    free_.push_back(index);
}

const Way *PathTable::way(std::uint32_t index) const
{
    return index < entries_.size() && entries_[index].users > 0 ? &entries_[index].way : nullptr;
}

template <typename Which>
std::vector<std::uint32_t> PathTable::which(Which &&which) const
{
    std::vector<std::uint32_t> found;
    for (std::uint32_t index = 0; index < entries_.size(); index++)
        if (entries_[index].users > 0 && which(entries_[index].way))
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
