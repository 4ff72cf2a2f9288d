// SPDX-License-Identifier: GPL-2.0-only
#include "cli/top.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/commands.h"
#include "cli/offline.h"
#include "cli/views.h"

namespace ftctl {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPeriod{1000};

std::uint64_t counter(const json &dir, const char *key)
{
    const auto &v = value_at(dir, key);
    return v.is_number_integer() ? v.get<std::uint64_t>() : 0;
}

double rate(std::uint64_t now, std::uint64_t before, double seconds)
{
    // Less than before: another connection has got the number.
    return seconds > 0 ? static_cast<double>(now >= before ? now - before : now) / seconds : 0;
}

std::string per_second(const json &v)
{
    return amount(v) + "/s";
}

std::string bits(const json &v)
{
    return amount(v) + "bit/s";
}

// All flows, compared with those of an earlier sample; of the rows only the busiest are kept.
Result<TopSample> take(const Call &call, TopSample *before)
{
    TopSample sample(before);
    auto client = Client::connect(call.instance);
    if (!client) {
        if (client.error().code != Code::not_running)
            return tl::unexpected(client.error());
        auto flows = offline_flows(call.instance, {});
        if (!flows)
            return tl::unexpected(flows.error().code == Code::not_running ? client.error() : flows.error());
        for (const json &flow : *flows)
            sample.add(flow);
        return sample;
    }
    const auto answer =
        client->call_each("flows", {{"filter", json::object()}}, [&](const json &flow) { sample.add(flow); });
    if (!answer)
        return tl::unexpected(answer.error());
    return sample;
}

/// Keys without echo and without waiting for a line; put back at the end, also after a signal.
class Terminal {
  public:
    Terminal()
    {
        ok_ = tcgetattr(STDIN_FILENO, &saved_) == 0;
        if (!ok_)
            return;
        termios raw = saved_;
        raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG); // ctrl-C comes as a byte
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    ~Terminal()
    {
        if (ok_)
            tcsetattr(STDIN_FILENO, TCSANOW, &saved_);
    }
    Terminal(const Terminal &) = delete;
    Terminal &operator=(const Terminal &) = delete;
    Terminal(Terminal &&) = delete;
    Terminal &operator=(Terminal &&) = delete;

  private:
    termios saved_{};
    bool ok_ = false;
};

volatile std::sig_atomic_t g_stop = 0;

void on_signal(int /*signal*/)
{
    g_stop = 1;
}

/// True when the user wants to leave before the time is over.
bool quit_within(std::chrono::milliseconds time)
{
    const auto deadline = Clock::now() + time;
    while (g_stop == 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        if (left.count() <= 0)
            return false;
        pollfd p{STDIN_FILENO, POLLIN, 0};
        if (poll(&p, 1, static_cast<int>(left.count())) <= 0)
            continue; // over, or a signal (the window's size changed)
        char key = 0;
        if (read(STDIN_FILENO, &key, 1) <= 0)
            return true;
        constexpr char kCtrlC = 3;
        constexpr char kCtrlD = 4;
        if (key == 'q' || key == 'Q' || key == kCtrlC || key == kCtrlD)
            return true;
    }
    return true;
}

winsize window()
{
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0)
        size = winsize{24, 80, 0, 0};
    return size;
}

/// Cuts lines at the window's width; colours (which take no place) are kept whole.
std::string clipped(const std::string &text, std::size_t columns)
{
    std::string out;
    std::size_t used = 0;
    for (std::size_t i = 0; i < text.size(); i++) {
        if (text[i] == '\033') {
            const auto end = std::min(text.find('m', i), text.size() - 1);
            out += text.substr(i, end - i + 1);
            i = end;
        } else if (text[i] == '\n') {
            out += "\033[K\r\n"; // clear what an earlier, longer line left
            used = 0;
        } else if (used < columns) {
            out += text[i];
            used++;
        }
    }
    return out;
}

int live_view(const Call &call, TopSample now)
{
    std::signal(SIGTERM, on_signal);
    std::signal(SIGHUP, on_signal);
    const Terminal terminal;
    *call.out << "\033[2J";
    for (;;) {
        const auto size = window();
        std::ostringstream page;
        view_top(page, now, size.ws_row > 5 ? size.ws_row - 5U : 1U, call.output.colour);
        page << "\nq: quit\n";
        *call.out << "\033[H" << clipped(page.str(), size.ws_col) << "\033[J" << std::flush;
        if (quit_within(kPeriod))
            break;
        auto next = take(call, &now);
        if (!next) {
            *call.out << "\r\n" << std::flush;
            return report(call, next.error());
        }
        now = std::move(*next);
    }
    *call.out << "\r\n" << std::flush;
    return 0;
}

} // namespace

TopSample::TopSample(TopSample *before, double seconds)
    : at_(Clock::now()), before_(before ? std::move(before->counted_) : Counted{}), seconds_(seconds)
{
    if (before && seconds <= 0)
        seconds_ = std::chrono::duration<double>(at_ - before->at_).count();
}

void TopSample::add(const json &flow)
{
    const std::uint64_t id = counter(flow, "/id");
    const auto then = before_.find(id);
    auto both = direction_rows(flow);
    for (std::size_t i = 0; i < both.size() && i < 2; i++) {
        json &row = both[i];
        Counts &counts = counted_[id][i];
        counts = {counter(row, "/packets"), counter(row, "/bytes")};
        const Counts old = then == before_.end() ? Counts{} : then->second[i];
        row["pps"] = rate(counts.packets, old.packets, seconds_);
        row["bps"] = 8 * rate(counts.bytes, old.bytes, seconds_);
        pps_ += row["pps"].get<double>();
        bps_ += row["bps"].get<double>();
        live_ += row["state"] == "live" ? 1 : 0;
        directions_++;
        rows_.push_back(std::move(row));
    }
    if (rows_.size() >= 2 * kKeep)
        keep_busiest();
}

void TopSample::keep_busiest()
{
    std::stable_sort(rows_.begin(), rows_.end(), [](const json &a, const json &b) {
        return a["bps"].get<double>() > b["bps"].get<double>();
    });
    if (rows_.size() > kKeep)
        rows_.resize(kKeep);
}

json TopSample::rows()
{
    keep_busiest();
    return rows_;
}

void view_top(std::ostream &out, TopSample &sample, std::size_t limit, bool colour)
{
    static const std::vector<Column> columns{
        {"STATE", "/state", plain, false, false, paint_state},
        {"PROTO", "/proto"},
        {"PACKET", "/match", endpoints},
        {"IN", "/iif"},
        {"OUT", "/oif"},
        {"RATE", "/bps", bits, true},
        {"PACKETS", "/pps", per_second, true},
        {"IDLE", "/idle_s", span, true},
    };
    out << fmt::format("{} directions live of {}, {} and {} packets/s on the fast path\n\n", sample.live(),
                       sample.directions(), bits(sample.bps()), amount(sample.pps()));
    auto shown = sample.rows();
    if (shown.size() > limit)
        shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(limit), shown.end());
    render_table(out, columns, shown, colour);
}

int cmd_top(const Call &call)
{
    auto first = take(call, nullptr);
    if (!first) {
        auto error = first.error();
        error.why = error.what + ": " + error.why;
        error.what = "top";
        return report(call, error);
    }
    if (call.output.format == Format::text && isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0)
        return live_view(call, std::move(*first));
    // Once, with the rates of one period.
    poll(nullptr, 0, static_cast<int>(kPeriod.count()));
    auto second = take(call, &*first);
    if (!second)
        return report(call, second.error());
    if (call.output.format == Format::text)
        view_top(*call.out, *second, TopSample::kKeep, call.output.colour);
    else
        emit(*call.out, call.output, second->rows(), nullptr);
    return 0;
}

} // namespace ftctl
