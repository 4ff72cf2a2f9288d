// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/connection_table.h"

namespace ftctl {

namespace {

std::uint32_t hash_of(const Tuple &tuple)
{
    return static_cast<std::uint32_t>(TupleHash{}(tuple));
}

/// Ids are given in turn. Two ids never have the same hash.
std::uint32_t hash_of(std::uint32_t id)
{
    return id * 0x9e3779b1U;
}

} // namespace

CtEntry Connection::entry() const
{
    CtEntry ct;
    ct.id = ct_id;
    ct.orig = orig;
    ct.reply = reply;
    ct.mark = mark;
    ct.tcp_state = tcp_state;
    return ct;
}

void HashIndex::place(const Slot &slot)
{
    std::size_t at = slot.hash & mask();
    while (slots_[at].number != kNone)
        at = (at + 1) & mask();
    slots_[at] = slot;
}

void HashIndex::grow()
{
    std::vector<Slot> old(slots_.empty() ? 1024 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot &slot : old)
        if (slot.number != kNone)
            place(slot);
}

void HashIndex::insert(std::uint32_t hash, std::uint32_t number)
{
    if ((used_ + 1) * 4 > slots_.size() * 3)
        grow();
    place({hash, number});
    used_++;
}

void HashIndex::erase(std::uint32_t hash, std::uint32_t number)
{
    if (slots_.empty())
        return;
    std::size_t gap = hash & mask();
    while (slots_[gap].number != kNone && slots_[gap].number != number)
        gap = (gap + 1) & mask();
    if (slots_[gap].number == kNone)
        return;
    used_--;
    // Those behind it move up, unless that would be ahead of where they belong.
    for (std::size_t next = (gap + 1) & mask(); slots_[next].number != kNone; next = (next + 1) & mask()) {
        const std::size_t home = slots_[next].hash & mask();
        if (((next - home) & mask()) < ((next - gap) & mask()))
            continue;
        slots_[gap] = slots_[next];
        gap = next;
    }
    slots_[gap] = {};
}

Connection &ConnectionTable::add(const Connection &conn)
{
    std::uint32_t number = end_;
    if (!free_.empty()) {
        number = free_.back();
        free_.pop_back();
    } else {
        if (end_ % kChunk == 0)
            chunks_.push_back(std::make_unique<Chunk>());
        end_++;
    }
    Connection &stored = (*chunks_[number / kChunk])[number % kChunk];
    stored = conn;
    by_orig_.insert(hash_of(conn.orig), number);
    if (const Connection *older = find_reply(conn.reply))
        by_reply_.erase(hash_of(conn.reply), number_of_id(older->id));
    by_reply_.insert(hash_of(conn.reply), number);
    by_id_.insert(hash_of(conn.id), number);
    return stored;
}

void ConnectionTable::erase(const Connection &conn)
{
    const std::uint32_t number = number_of_id(conn.id);
    if (number == HashIndex::kNone)
        return;
    by_orig_.erase(hash_of(conn.orig), number);
    by_reply_.erase(hash_of(conn.reply), number); // not there when a newer one has the tuple
    by_id_.erase(hash_of(conn.id), number);
    free_.push_back(number);
    (*chunks_[number / kChunk])[number % kChunk] = {};
}

std::uint32_t ConnectionTable::number_of(const Tuple &orig) const
{
    return by_orig_.find(hash_of(orig), [&](std::uint32_t number) { return at(number)->orig == orig; });
}

std::uint32_t ConnectionTable::number_of_id(std::uint32_t id) const
{
    return by_id_.find(hash_of(id), [](std::uint32_t) { return true; });
}

const Connection *ConnectionTable::find_reply(const Tuple &reply) const
{
    return at(
        by_reply_.find(hash_of(reply), [&](std::uint32_t number) { return at(number)->reply == reply; }));
}

} // namespace ftctl
