// SPDX-License-Identifier: GPL-2.0-only
// Bounded reading of netlink messages and attributes. Nothing here trusts a length in the data:
// every step is checked against the bytes that really arrived (libmnl's iterators round the end of
// a message up to four bytes, so they can look past a buffer that ends unaligned).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <endian.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <linux/netlink.h>

#include "util/addr.h"

namespace ftctl::nl {

using Bytes = std::span<const std::byte>;

inline Bytes bytes_of(const void *data, std::size_t len)
{
    return {static_cast<const std::byte *>(data), len};
}

/// A T copied from the start of b; none when b is shorter. Needs no alignment.
template <typename T>
std::optional<T> load(Bytes b)
{
    static_assert(std::is_trivially_copyable_v<T>);
    if (b.size() < sizeof(T))
        return std::nullopt;
    T value;
    std::memcpy(&value, b.data(), sizeof(T));
    return value;
}

class Attrs;

/// One attribute; its bounds have been checked.
struct Attr {
    std::uint16_t type = 0; ///< without NLA_F_NESTED and NLA_F_NET_BYTEORDER
    Bytes data;

    /// A number in host order; none unless the size is exactly T's.
    template <typename T>
    [[nodiscard]] std::optional<T> num() const
    {
        return data.size() == sizeof(T) ? load<T>(data) : std::nullopt;
    }
    [[nodiscard]] std::optional<std::uint8_t> u8() const { return num<std::uint8_t>(); }
    [[nodiscard]] std::optional<std::uint16_t> u16() const { return num<std::uint16_t>(); }
    [[nodiscard]] std::optional<std::uint32_t> u32() const { return num<std::uint32_t>(); }
    /// Numbers that netfilter sends in network order, converted.
    [[nodiscard]] std::optional<std::uint16_t> be16() const
    {
        const auto v = num<std::uint16_t>();
        return v ? std::optional(be16toh(*v)) : std::nullopt;
    }
    [[nodiscard]] std::optional<std::uint32_t> be32() const
    {
        const auto v = num<std::uint32_t>();
        return v ? std::optional(be32toh(*v)) : std::nullopt;
    }
    /// Text up to the first NUL or the end.
    [[nodiscard]] std::string_view text() const
    {
        const auto *at = reinterpret_cast<const char *>(data.data());
        return {at, data.empty() ? 0 : strnlen(at, data.size())};
    }
    /// An address of this family; none when the size does not fit.
    [[nodiscard]] IpAddr addr(std::uint8_t family) const
    {
        return IpAddr::from_bytes(family, data.data(), data.size());
    }
    [[nodiscard]] inline Attrs nested() const;
};

/// The attributes in a run of bytes, for range-for. Ends at the first one that does not fit.
class Attrs {
  public:
    explicit Attrs(Bytes b) : rest_(b) {}

    class Iterator {
      public:
        explicit Iterator(Bytes rest) : rest_(rest) { take(); }
        const Attr &operator*() const { return attr_; }
        Iterator &operator++()
        {
            take();
            return *this;
        }
        bool operator!=(std::nullptr_t) const { return !done_; }

      private:
        void take()
        {
            const auto head = load<nlattr>(rest_);
            if (!head || head->nla_len < sizeof(nlattr) || head->nla_len > rest_.size()) {
                done_ = true;
                return;
            }
            attr_.type = head->nla_type & NLA_TYPE_MASK;
            attr_.data = rest_.subspan(sizeof(nlattr), head->nla_len - sizeof(nlattr));
            const std::size_t step = NLA_ALIGN(head->nla_len);
            rest_ = rest_.subspan(step < rest_.size() ? step : rest_.size());
        }

        Bytes rest_;
        Attr attr_;
        bool done_ = false;
    };

    [[nodiscard]] Iterator begin() const { return Iterator(rest_); }
    [[nodiscard]] std::nullptr_t end() const { return nullptr; }

    /// The first attribute of this type.
    [[nodiscard]] std::optional<Attr> find(std::uint16_t type) const
    {
        for (const Attr &a : *this)
            if (a.type == type)
                return a;
        return std::nullopt;
    }

  private:
    Bytes rest_;
};

inline Attrs Attr::nested() const
{
    return Attrs(data);
}

/// One netlink message; payload is what follows the header, within the bytes received.
struct Message {
    std::uint16_t type = 0;
    std::uint16_t flags = 0; ///< NLM_F_*
    std::uint32_t seq = 0;
    Bytes payload;

    /// The family header (rtmsg, nfgenmsg, ...); none when the message is too short for it.
    template <typename T>
    [[nodiscard]] std::optional<T> head() const
    {
        return load<T>(payload);
    }
    /// The attributes behind a family header of this size.
    [[nodiscard]] Attrs attrs(std::size_t head_len) const
    {
        const std::size_t skip = NLMSG_ALIGN(head_len);
        return Attrs(skip < payload.size() ? payload.subspan(skip) : Bytes{});
    }
};

/// Takes the next message off rest; none at the end or when what is left makes no message.
inline std::optional<Message> next_message(Bytes &rest)
{
    const auto head = load<nlmsghdr>(rest);
    if (!head || head->nlmsg_len < sizeof(nlmsghdr) || head->nlmsg_len > rest.size())
        return std::nullopt;
    Message m;
    m.type = head->nlmsg_type;
    m.flags = head->nlmsg_flags;
    m.seq = head->nlmsg_seq;
    m.payload = rest.subspan(sizeof(nlmsghdr), head->nlmsg_len - sizeof(nlmsghdr));
    const std::size_t step = NLMSG_ALIGN(head->nlmsg_len);
    rest = rest.subspan(step < rest.size() ? step : rest.size());
    return m;
}

} // namespace ftctl::nl
