// SPDX-License-Identifier: GPL-2.0-only
// The early filter's commands, and the reverse path filter's.
#include <charconv>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/offline.h"
#include "cli/views.h"
#include "daemon/control_protocol.h"
#include "daemon/filter_file.h"
#include "daemon/rpf_mode.h"
#include "util/clock.h"
#include "util/suggest.h"

namespace ftctl {

using nlohmann::json;

namespace {

/// Room that a request takes beside its lines.
constexpr std::size_t kEnvelope = 256;

Result<std::string> read_all(const std::string &file)
{
    const bool standard = file == "-";
    std::ifstream from;
    if (!standard) {
        from.open(file, std::ios::binary);
        if (!from)
            return fail_errno("read " + file, errno);
    }
    std::istream &in = standard ? std::cin : from;
    std::string text((std::istreambuf_iterator<char>(in)), {});
    if (in.bad())
        return fail("read " + file, "cannot be read");
    return text;
}

/// The rules as parts that fit into requests; the last one puts them to use.
Result<Answer> send_rules(Client &client, const std::vector<FilterRule> &rules)
{
    const std::string token = fmt::format("{}.{}", getpid(), monotonic_ns());
    json lines = json::array();
    std::size_t size = 0;
    for (const FilterRule &rule : rules) {
        std::string line = filter_rule_text(rule);
        const std::size_t more = json(line).dump().size() + 1;
        if (size + more > kMaxRequest - kEnvelope) {
            if (auto sent = client.call("filter_load", {{"token", token}, {"lines", lines}, {"more", true}});
                !sent)
                return sent;
            lines.clear();
            size = 0;
        }
        lines.push_back(std::move(line));
        size += more;
    }
    return client.call("filter_load", {{"token", token}, {"lines", lines}});
}

} // namespace

int cmd_filter_add(const Call &call, const Words &words)
{
    if (const auto rule = parse_filter_rule(words, "filter add"); !rule)
        return report(call, rule.error());
    return finish(call, ask(call, "filter_add", {{"words", words}}), view_done);
}

int cmd_filter_del(const Call &call, const Words &ids)
{
    json numbers = json::array();
    for (const std::string &text : ids) {
        std::uint32_t id = 0;
        const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
        if (ec != std::errc{} || end != text.data() + text.size() || id == 0 || id > kMaxFilterId)
            return report(call, {"filter del", "'" + text + "' is no id",
                                 "`ftctl filter list` shows the ids in use", Code::usage, 0});
        numbers.push_back(id);
    }
    return finish(call, ask(call, "filter_del", {{"ids", numbers}}), view_done);
}

int cmd_filter_list(const Call &call)
{
    return finish(
        call, ask_or(call, "filter_list", json::object(), [&] { return offline_filter_list(call.instance); }),
        view_filter);
}

int cmd_filter_flush(const Call &call)
{
    return finish(call, ask(call, "filter_flush"), view_done);
}

int cmd_filter_load(const Call &call, const std::string &file)
{
    const auto text = read_all(file);
    if (!text)
        return report(call, text.error());
    const auto rules = parse_filter_file(*text, file == "-" ? "stdin" : file);
    if (!rules)
        return report(call, rules.error());
    auto client = open_client(call, "filter load");
    if (!client)
        return report(call, client.error());
    return finish(call, send_rules(*client, *rules), view_filter_load);
}

int cmd_rpf(const Call &call, const Words &words)
{
    const auto known = rpf_words();
    const std::string hint = "ftctl rpf DEV MODE; modes: " + join_words(known);
    if (words.size() != 2)
        return report(call,
                      {"rpf",
                       words.size() < 2 ? "a device and a mode are needed" : "'" + words[2] + "' is too much",
                       hint, Code::usage, 0});
    if (!parse_rpf(words[1]))
        return report(call,
                      {"rpf " + words[0], "unknown mode '" + words[1] + "'" + did_you_mean(words[1], known),
                       hint, Code::usage, 0});
    return finish(call, ask(call, "rpf", {{"device", words[0]}, {"rpf", words[1]}}), view_done);
}

} // namespace ftctl
