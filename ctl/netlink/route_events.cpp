// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/route.h"

#include <linux/rtnetlink.h>

#include "netlink/route_message.h"
#include "netlink/socket.h"

namespace ftctl {
namespace {

// Room for some ten thousand messages: a BGP session coming up, a device with many routes going down.
constexpr std::size_t rcvbuf_bytes = 8U << 20;
// Per call, so that other work gets its turn; the descriptor stays readable.
constexpr unsigned max_messages = 4096;

class Events final : public RtEvents {
  public:
    explicit Events(nl::EventSocket socket) : socket_(std::move(socket)) {}
    [[nodiscard]] int fd() const override { return socket_.fd(); }

    Status read(const std::function<void(const RtEvent &)> &handler) override
    {
        const auto state = socket_.read(
            [&](const nl::Message &m) {
                if (const auto event = nl::parse_rt_event(m))
                    handler(*event);
            },
            max_messages);
        if (!state)
            return tl::unexpected(state.error());
        if (*state == nl::EventSocket::State::overrun)
            handler(Overrun{});
        return {};
    }

  private:
    nl::EventSocket socket_;
};

} // namespace

Result<std::unique_ptr<RtEvents>> RtEvents::open()
{
    auto socket =
        nl::EventSocket::open(NETLINK_ROUTE,
                              {RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR,
                               RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE,
                               RTNLGRP_IPV4_NETCONF, RTNLGRP_IPV6_NETCONF},
                              rcvbuf_bytes, {RTNLGRP_NEXTHOP});
    if (!socket)
        return tl::unexpected(socket.error());
    return std::make_unique<Events>(std::move(*socket));
}

} // namespace ftctl
