// SPDX-License-Identifier: GPL-2.0-only
#include "cli/top.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <map>
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

struct Sample {
    json flows = json::array();
    Clock::time_point at = Clock::now();
};

Result<Sample> take(const Call &call)
{
    auto client = Client::connect(call.instance);
    if (!client) {
        if (client.error().code != Code::not_running)
            return tl::unexpected(client.error());
        auto flows = offline_flows(call.instance, {});
        if (!flows)
            return tl::unexpected(flows.error().code == Code::not_running ? client.error() : flows.error());
        return Sample{std::move(*flows), Clock::now()};
    }
    auto answer = client->call("flows", {{"filter", json::object()}});
    if (!answer)
        return tl::unexpected(answer.error());
    return Sample{std::move(answer->data), Clock::now()};
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

int live_view(const Call &call, Sample before)
{
    std::signal(SIGTERM, on_signal);
    std::signal(SIGHUP, on_signal);
    const Terminal terminal;
    double seconds = 0;
    Sample now = before;
    *call.out << "\033[2J";
    for (;;) {
        const auto size = window();
        std::ostringstream page;
        view_top(page, top_rows(before.flows, now.flows, seconds), size.ws_row > 5 ? size.ws_row - 5U : 1U,
                 call.output.colour);
        page << "\nq: quit\n";
        *call.out << "\033[H" << clipped(page.str(), size.ws_col) << "\033[J" << std::flush;
        if (quit_within(kPeriod))
            break;
        auto next = take(call);
        if (!next) {
            *call.out << "\r\n" << std::flush;
            return report(call, next.error());
        }
        before = std::exchange(now, std::move(*next));
        seconds = std::chrono::duration<double>(now.at - before.at).count();
    }
    *call.out << "\r\n" << std::flush;
    return 0;
}

} // namespace

json top_rows(const json &before, const json &now, double seconds)
{
    std::map<std::uint64_t, const json *> old;
    for (const auto &flow : before)
        old[counter(flow, "/id")] = &flow;
    json rows = json::array();
    for (const auto &flow : now) {
        const auto it = old.find(counter(flow, "/id"));
        auto both = direction_rows(flow);
        for (std::size_t i = 0; i < both.size(); i++) {
            const auto &then =
                it == old.end() ? value_at(json(), "/x") : value_at(*it->second, i == 0 ? "/orig" : "/reply");
            auto &row = both[i];
            row["pps"] = rate(counter(row, "/packets"), counter(then, "/packets"), seconds);
            row["bps"] = 8 * rate(counter(row, "/bytes"), counter(then, "/bytes"), seconds);
            rows.push_back(std::move(row));
        }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const json &a, const json &b) {
        return a["bps"].get<double>() > b["bps"].get<double>();
    });
    return rows;
}

void view_top(std::ostream &out, const json &rows, std::size_t limit, bool colour)
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
    double bps = 0;
    double pps = 0;
    std::size_t live = 0;
    for (const auto &row : rows) {
        bps += row["bps"].get<double>();
        pps += row["pps"].get<double>();
        live += row["state"] == "live" ? 1 : 0;
    }
    out << fmt::format("{} directions live of {}, {} and {} packets/s on the fast path\n\n", live,
                       rows.size(), bits(bps), amount(pps));
    auto shown = rows;
    if (shown.size() > limit)
        shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(limit), shown.end());
    render_table(out, columns, shown, colour);
}

int cmd_top(const Call &call)
{
    auto first = take(call);
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
    const auto second = take(call);
    if (!second)
        return report(call, second.error());
    const double seconds = std::chrono::duration<double>(second->at - first->at).count();
    emit(*call.out, call.output, top_rows(first->flows, second->flows, seconds),
         [](std::ostream &out, const json &rows, bool colour) { view_top(out, rows, rows.size(), colour); });
    return 0;
}

} // namespace ftctl
