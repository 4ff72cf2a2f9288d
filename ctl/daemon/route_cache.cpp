// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/route_cache.h"

namespace ftctl {

const RouteAnswer *RouteCache::find(const RouteQuery &query, std::uint64_t now_ns)
{
    if (now_ns - since_ns_ >= kLifetime)
        answers_.clear(); // all of them: asking again costs little
    const auto it = answers_.find(key_of(query));
    return it == answers_.end() ? nullptr : &it->second;
}

void RouteCache::store(const RouteQuery &query, const RouteAnswer &answer, std::uint64_t now_ns)
{
    if (answers_.size() >= kMost)
        answers_.clear();
    if (answers_.empty())
        since_ns_ = now_ns;
    answers_.insert_or_assign(key_of(query), answer);
}

} // namespace ftctl
