// SPDX-License-Identifier: GPL-2.0-only
// Messages for the netlink tests, built with libmnl as the kernel would build them.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <libmnl/libmnl.h>

#include "netlink/attr.h"
#include "util/addr.h"

namespace netlink_test {

class Builder {
  public:
    Builder(std::uint16_t type, std::uint16_t flags) : buf_(4096), hdr_(mnl_nlmsg_put_header(buf_.data()))
    {
        hdr_->nlmsg_type = type;
        hdr_->nlmsg_flags = flags;
    }
    template <typename T>
    T &head()
    {
        return *static_cast<T *>(mnl_nlmsg_put_extra_header(hdr_, sizeof(T)));
    }
    Builder &put(std::uint16_t type, const void *data, std::size_t len)
    {
        mnl_attr_put(hdr_, type, len, data);
        return *this;
    }
    Builder &u8(std::uint16_t type, std::uint8_t v) { return put(type, &v, sizeof(v)); }
    Builder &u16(std::uint16_t type, std::uint16_t v) { return put(type, &v, sizeof(v)); }
    Builder &u32(std::uint16_t type, std::uint32_t v) { return put(type, &v, sizeof(v)); }
    Builder &be16(std::uint16_t type, std::uint16_t v) { return u16(type, htobe16(v)); }
    Builder &be32(std::uint16_t type, std::uint32_t v) { return u32(type, htobe32(v)); }
    Builder &text(std::uint16_t type, const std::string &s) { return put(type, s.c_str(), s.size() + 1); }
    Builder &addr(std::uint16_t type, const std::string &s)
    {
        const auto a = ftctl::IpAddr::parse(s);
        return put(type, a.value().bytes.data(), a->size());
    }
    Builder &nest(std::uint16_t type, const std::function<void()> &fill)
    {
        nlattr *n = mnl_attr_nest_start(hdr_, type);
        fill();
        mnl_attr_nest_end(hdr_, n);
        return *this;
    }
    [[nodiscard]] std::vector<char> bytes() const { return {buf_.begin(), buf_.begin() + hdr_->nlmsg_len}; }

  private:
    std::vector<char> buf_;
    nlmsghdr *hdr_;
};

/// Hands the message to `parse` in a block of exactly its size, so that the address sanitizer sees
/// a read past its end.
template <typename Parse>
auto parse_exact(const std::vector<char> &msg, const Parse &parse)
{
    const auto block = std::make_unique<char[]>(msg.size());
    std::copy(msg.begin(), msg.end(), block.get());
    ftctl::nl::Bytes rest = ftctl::nl::bytes_of(block.get(), msg.size());
    const auto m = ftctl::nl::next_message(rest);
    return m ? parse(*m) : decltype(parse(*m)){};
}

/// The message cut at every length, with the header saying so and not saying so, and with every
/// byte changed. Nothing is expected but that `parse` survives.
template <typename Parse>
void maul(const std::vector<char> &msg, const Parse &parse)
{
    for (std::size_t len = 0; len <= msg.size(); len++) {
        std::vector<char> cut(msg.begin(), msg.begin() + static_cast<std::ptrdiff_t>(len));
        (void)parse_exact(cut, parse);
        if (len >= sizeof(nlmsghdr)) {
            const auto stated = static_cast<std::uint32_t>(len);
            std::memcpy(cut.data(), &stated, sizeof(stated));
            (void)parse_exact(cut, parse);
        }
    }
    for (std::size_t at = 0; at < msg.size(); at++)
        for (const int value : {0x00, 0x01, 0x03, 0x04, 0x7f, 0x80, 0xff}) {
            std::vector<char> changed = msg;
            changed[at] = static_cast<char>(value);
            (void)parse_exact(changed, parse);
        }
}

} // namespace netlink_test
