// SPDX-License-Identifier: GPL-2.0-only
// What libbpf and the kernel say in words: to the debug log, and into Error::why.
#pragma once

#include <cstddef>
#include <string>

namespace ftctl::bpf {

/// Routes libbpf's messages to spdlog at debug level. Idempotent; nothing reaches stderr afterwards.
void route_libbpf_messages();

void capture_append(const char *text, std::size_t len);

/// Keeps what libbpf prints in this thread while it lives, for an error text. May nest: the innermost
/// one gets the text.
class LogCapture {
  public:
    LogCapture();
    ~LogCapture();
    LogCapture(const LogCapture &) = delete;
    LogCapture &operator=(const LogCapture &) = delete;

    /// The netlink extack text ("veth: Peer MTU is too large to set XDP"); "" when there was none.
    [[nodiscard]] std::string extack() const;
    /// The verifier's last word, or else libbpf's last message; "" when there was none.
    [[nodiscard]] std::string load_error() const;

  private:
    friend void capture_append(const char *text, std::size_t len);

    LogCapture *outer_;
    std::string text_;
};

} // namespace ftctl::bpf
