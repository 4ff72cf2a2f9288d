// SPDX-License-Identifier: GPL-2.0-only
// Where the connections are kept. There may be millions: each is one record without pointers, and the
// three ways to find it are tables of numbers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "netlink/conntrack.h"
#include "util/addr.h"

namespace ftctl {

/// A connection that has flows. What can be told from tuples and paths is not kept: their keys, say.
struct Connection {
    struct Direction {
        std::uint32_t path : 31 = 0;
        std::uint32_t live : 1 = 0; ///< as last announced
    };
    Tuple orig;
    Tuple reply;
    std::uint64_t created_ns = 0;
    std::uint32_t id = 0; ///< 0: there is no connection in this record
    std::uint32_t ct_id = 0;
    std::uint32_t mark = 0;
    Direction dir[2];              ///< original, reply
    std::uint32_t timeout_s = 0;   ///< the slow path's full timeout
    std::uint32_t corrected = 0;   ///< ticks of the packet the timeout was last corrected for
    std::uint32_t last_seen = 0;   ///< ticks; from the last walk, 0: nothing carried yet
    std::uint32_t last_kernel = 0; ///< ticks; last packet known to have gone through conntrack
    std::uint32_t ask_after = 0;   ///< ticks; 0, or when conntrack's answer would have expired
    std::uint32_t epoch = 0;       ///< of the last dump that had it
    std::optional<std::uint8_t> tcp_state;
    bool from_dump = false; ///< conntrack may not announce its end

    [[nodiscard]] const Tuple &tuple(bool of_reply) const { return of_reply ? reply : orig; }
    /// As far as it is still known.
    [[nodiscard]] CtEntry entry() const;
};
static_assert(sizeof(Connection) <= 136);

/// From hashes to numbers: open addressing, linear probing, no gaps left behind.
class HashIndex {
  public:
    static constexpr std::uint32_t kNone = ~0U;

    /// The number with this hash for which is(number); kNone when there is none.
    template <typename Is>
    [[nodiscard]] std::uint32_t find(std::uint32_t hash, const Is &is) const
    {
        if (slots_.empty())
            return kNone;
        for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
            const Slot &slot = slots_[at];
            if (slot.number == kNone || (slot.hash == hash && is(slot.number)))
                return slot.number;
        }
    }
    /// One more; several may have the same hash.
    void insert(std::uint32_t hash, std::uint32_t number);
    /// Takes away this number, if it is there with this hash.
    void erase(std::uint32_t hash, std::uint32_t number);
    [[nodiscard]] std::size_t size() const { return used_; }

  private:
    struct Slot {
        std::uint32_t hash = 0;
        std::uint32_t number = kNone;
    };
    [[nodiscard]] std::size_t mask() const { return slots_.size() - 1; }
    void place(const Slot &slot);
    void grow();

    std::vector<Slot> slots_; ///< a power of two
    std::size_t used_ = 0;
};

class ConnectionTable {
  public:
    /// A copy of this one, whose id and original tuple no other may have. When the reply tuple is
    /// another's as well, the newer one is found by it. References are valid until erase().
    Connection &add(const Connection &conn);
    void erase(const Connection &conn);

    [[nodiscard]] Connection *find(const Tuple &orig) { return at(number_of(orig)); }
    [[nodiscard]] const Connection *find(const Tuple &orig) const { return at(number_of(orig)); }
    [[nodiscard]] const Connection *find_reply(const Tuple &reply) const;
    [[nodiscard]] Connection *by_id(std::uint32_t id) { return at(number_of_id(id)); }
    [[nodiscard]] const Connection *by_id(std::uint32_t id) const { return at(number_of_id(id)); }
    [[nodiscard]] std::size_t size() const { return by_id_.size(); }

    /// Calls the function for each; it must not add or erase.
    template <typename Each>
    void each(const Each &each) const
    {
        for (std::uint32_t number = 0; number < end_; number++)
            if (const Connection *conn = at(number))
                each(*conn);
    }
    /// For loops that others' additions and removals come between: all are among the numbers below
    /// end(), and none changes its number.
    [[nodiscard]] std::uint32_t end() const { return end_; }
    [[nodiscard]] Connection *at(std::uint32_t number)
    {
        return const_cast<Connection *>(static_cast<const ConnectionTable *>(this)->at(number));
    }
    [[nodiscard]] const Connection *at(std::uint32_t number) const
    {
        if (number >= end_)
            return nullptr;
        const Connection &conn = (*chunks_[number / kChunk])[number % kChunk];
        return conn.id ? &conn : nullptr;
    }
    /// The number of the connection with this id, for tables beside this one.
    [[nodiscard]] std::uint32_t number_of_id(std::uint32_t id) const;

  private:
    static constexpr std::uint32_t kChunk = 4096;
    using Chunk = std::array<Connection, kChunk>;

    [[nodiscard]] std::uint32_t number_of(const Tuple &orig) const;

    std::vector<std::unique_ptr<Chunk>> chunks_; ///< grow without moving what is there
    std::vector<std::uint32_t> free_;
    std::uint32_t end_ = 0;
    HashIndex by_orig_;
    HashIndex by_reply_;
    HashIndex by_id_;
};

} // namespace ftctl
