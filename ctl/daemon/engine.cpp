// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/engine.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include "daemon/control_protocol.h"
#include "daemon/state_file.h"
#include "util/clock.h"

namespace ftctl {

namespace {

constexpr long kTickNs = 100 * 1000 * 1000; // heartbeat and coalesced work

/// So many connections by default when nothing says how many conntrack may hold.
constexpr std::uint32_t kDefaultFlows = 262144;

std::uint32_t capacity(const Config &config)
{
    if (config.limits.flows != 0)
        return config.limits.flows;
    const long max = sysctl_number("net/netfilter/nf_conntrack_max").value_or(kDefaultFlows);
    return static_cast<std::uint32_t>(std::clamp(max, 1024L, 16L << 20));
}

} // namespace

Result<std::unique_ptr<Engine>> Engine::start(const std::string &instance, const Config &config)
{
    std::unique_ptr<Engine> engine(new Engine(instance, config));
    if (auto done = engine->open(); !done)
        return tl::unexpected(done.error());
    if (auto done = engine->restore(); !done)
        return tl::unexpected(done.error());
    return engine;
}

Engine::~Engine()
{
    // Nobody keeps the flows true any more: the stack takes over at once, not only when the beat is missed.
    if (datapath_ && beating_)
        datapath_->config().disabled = 1;
}

Status Engine::open()
{
    started_ns_ = monotonic_ns();
    const auto take = [](auto &into, auto result) -> Status {
        if (!result)
            return tl::unexpected(result.error());
        into = std::move(*result);
        return {};
    };
    Status done = take(loop_, Loop::create());
    // The socket first: it tells whether a daemon of this instance is running.
    if (done)
        done = take(server_, ControlServer::listen(socket_path(instance_),
                                                   [this](const auto &request) { return command(request); }));
    if (done)
        done = take(datapath_, Datapath::open_or_create(instance_, {capacity(config_)}));
    // Subscribe before reading, so that nothing falls in between.
    if (done)
        done = take(ct_events_, CtEvents::open(config_.limits.rcvbuf_bytes));
    if (done)
        done = take(rt_events_, RtEvents::open());
    if (done)
        done = take(xfrm_, XfrmWatch::open());
    if (done)
        done = take(nft_, NftWatch::open());
    if (done)
        done = take(track_table_, TrackTable::open());
    if (done)
        done = take(ct_control_, CtControl::open());
    if (done)
        done = take(kernel_, KernelView::open());
    if (!done)
        return done;

    devices_ = std::make_unique<Devices>(*datapath_, *kernel_);
    tunnels_ = std::make_unique<Tunnels>(*kernel_, *loop_);
    filter_ = std::make_unique<EarlyFilter>(*datapath_);
    Connections::Settings settings;
    settings.mark = {config_.mark_value, config_.mark_mask};
    settings.mark_from_conntrack = config_.mark_from_conntrack;
    kernel_->marks_are_known(config_.mark_from_conntrack);
    settings.trickle_s = config_.trickle_s;
    settings.allowed = [this](const Tuple &orig, const std::string &iif) {
        return policy_allows(config_, orig, iif);
    };
    connections_ = std::make_unique<Connections>(
        *datapath_, *kernel_, *ct_control_, std::move(settings),
        Connections::Audience{[this] { return server_->monitors() > 0; },
                              [this](const nlohmann::json &event) { server_->publish(event); }});
    if (auto policies = xfrm_->policies())
        connections_->set_xfrm(std::move(*policies));
    else
        return tl::unexpected(policies.error());

    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigprocmask(SIG_BLOCK, &mask, nullptr);
    signals_.reset(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
    timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    const itimerspec every{{0, kTickNs}, {0, kTickNs}};
    if (!signals_ || !timer_ || timerfd_settime(timer_.get(), 0, &every, nullptr) != 0)
        return fail_errno("timers", errno);

    const auto serve = [&done, this](int fd, std::function<void()> ready) {
        if (done)
            done = loop_->add(fd, std::move(ready));
    };
    serve(signals_.get(), [this] { stopping_ = true; });
    serve(timer_.get(), [this] { tick(); });
    serve(server_->fd(), [this] { (void)server_->dispatch(); });
    serve(ct_events_->fd(), [this] { on_conntrack(); });
    serve(rt_events_->fd(), [this] { on_route_events(); });
    serve(xfrm_->fd(), [this] { on_xfrm(); });
    serve(nft_->fd(), [this] { on_nft(); });
    serve(datapath_->events_fd(), [this] {
        (void)datapath_->read_events([this](const ftctl_event &event) { connections_->on_event(event); });
    });
    return done;
}

/// What an earlier daemon left, what the operator had asked it for, and what the configuration names.
Status Engine::restore()
{
    // Whatever is pinned is looked at by the witness again before it carries packets.
    datapath_->config().gen++;
    datapath_->config().disabled = 0;

    SavedState saved = load_state(instance_);
    track_wanted_ = config_.track && saved.track;
    for (const DeviceConfig &device : config_.devices)
        saved.devices[device.name] = {device.mode, false, device.rpf};
    for (const auto *list : {&saved.tunnels, &config_.tunnels})
        for (const TunnelDecl &tunnel : *list)
            if (auto added = tunnels_->add(tunnel); !added)
                spdlog::error("{}: {}", added.error().what, added.error().why);
    tell_rpf();
    devices_->adopt(saved.devices);
    datapath_->config().tunnels = tunnels_->count();

    if (!devices_->none_attached()) {
        if (auto tracked = ensure_tracking(track_wanted_, nullptr); !tracked)
            spdlog::error("{}: {}", tracked.error().what, tracked.error().why);
        resync_now();
    }
    (void)connections_->walk([this] { beat(); }); // flows that no connection has claimed go
    if (auto done = save(); !done)
        spdlog::warn("{}: {}", done.error().what, done.error().why);
    beating_ = true;
    beat();
    probes_ = probe_kernel(); // for `doctor`; last, so that nothing waits for it
    beat();
    return {};
}

Status Engine::run()
{
    spdlog::info("ftctld {} serves instance {}, {} connections at most", FTCTL_VERSION, instance_,
                 datapath_->max_flows());
    while (!stopping_)
        if (auto done = loop_->turn(1000); !done)
            return done;
    if (devices_->all().empty() && filter_->size() == 0) {
        spdlog::info("stopping; nothing is attached, nothing stays");
        return datapath_->remove_pins();
    }
    spdlog::info("stopping; packets go to the stack until a daemon is back");
    return {};
}

void Engine::beat()
{
    if (beating_)
        __atomic_store_n(&datapath_->config().heartbeat_ns, monotonic_ns(), __ATOMIC_RELEASE);
}

void Engine::beat_and_listen()
{
    beat();
    if (!lost_events_)
        on_conntrack();
}

void Engine::tick()
{
    std::uint64_t expirations = 0;
    if (read(timer_.get(), &expirations, sizeof(expirations)) < 0 && errno != EAGAIN)
        spdlog::warn("timer: {}", std::strerror(errno));
    beat();
    poll_pppoe();
    settle();
    const std::uint64_t now = monotonic_ns();
    if (now - second_ns_ >= FTCTL_NSEC_PER_SEC) {
        second_ns_ = now;
        if (auto set = datapath_->set_clock(); !set)
            spdlog::warn("{}: {}", set.error().what, set.error().why);
        every_second();
    }
    if (now >= next_walk_ns_ && !devices_->none_attached()) {
        (void)connections_->walk([this] { beat_and_listen(); });
        // the walk may cost a twentieth of the time, and not less than a second lies between two
        next_walk_ns_ = now + std::max<std::uint64_t>(FTCTL_NSEC_PER_SEC, 20 * (monotonic_ns() - now));
    }
}

void Engine::every_second()
{
    const Sysctls before = kernel_->sysctls();
    if (kernel_->poll_sysctls())
        dirty_.settings = true;
    const Sysctls &now = kernel_->sysctls();
    if (now.udp_stream_s != before.udp_stream_s || now.tcp_established_s != before.tcp_established_s)
        connections_->adjust_trickle();
    if (devices_->none_attached())
        return;
    connections_->every_second();
    guess_pppoe();
    follow_options();
    devices_->check_offloads();
    poll_underlays();
    publish_drops();
    (void)server_->dispatch();
}

/// ip6_tnl_xmit() gives a packet that brings an encapsulation limit one outside as well, also in a tunnel
/// that has none, and notes the smaller path MTU for the packet's destination: not announced either.
void Engine::follow_options()
{
    if (!std::exchange(datapath_->config().options, 0U))
        return;
    for (const auto &[index, link] : kernel_->links())
        if (link.tunnel && outer_family(link.tunnel->mode) == AF_INET6 && !link.tunnel->encap_limit)
            dirty_.devices.push_back(index);
}

/// A session that ends or begins is not announced by the kernel.
void Engine::poll_pppoe()
{
    if (!kernel_->poll_pppoe())
        return;
    spdlog::info("the PPPoE sessions have changed");
    for (const auto &[index, link] : kernel_->links())
        if (link.kind == "ppp")
            dirty_.devices.push_back(index);
    want_resync_ = true;
}

/// Where several sessions may be a ppp device's: after a while without success, the next one's turn.
void Engine::guess_pppoe()
{
    constexpr std::uint64_t kPatience = 3 * FTCTL_NSEC_PER_SEC;
    const std::uint64_t now = monotonic_ns();
    if (!kernel_->pppoe_guess().ambiguous() || now - guessed_ns_ < kPatience)
        return;
    guessed_ns_ = now;
    for (const std::uint32_t ppp : connections_->unseen_pppoe())
        if (kernel_->pppoe_guess().next(ppp))
            dirty_.devices.push_back(ppp);
}

/// A learnt path MTU of a tunnel's underlay is not announced by the kernel.
void Engine::poll_underlays()
{
    for (const auto &[index, link] : kernel_->links()) {
        if (!link.tunnel)
            continue;
        const auto answer = kernel_->control().route(underlay_query(*link.tunnel));
        const auto now = answer ? std::make_pair(answer->gateway, answer->mtu) : std::make_pair(IpAddr{}, 0U);
        const auto it = underlays_.find(index);
        if (it != underlays_.end() && it->second == now)
            continue;
        const bool first = it == underlays_.end();
        underlays_[index] = now;
        if (!first)
            dirty_.devices.push_back(index);
    }
}

Status Engine::save()
{
    SavedState state;
    state.devices = devices_->wanted();
    state.tunnels = tunnels_->declared();
    state.track = track_wanted_;
    return save_state(instance_, state);
}

} // namespace ftctl
