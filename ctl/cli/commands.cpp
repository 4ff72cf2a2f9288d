// SPDX-License-Identifier: GPL-2.0-only
#include "cli/commands.h"

#include "cli/ask.h"
#include "cli/offline.h"
#include "cli/views.h"
#include "daemon/config.h"

namespace ftctl {

using nlohmann::json;

int report(const Call &call, const Error &error)
{
    print_error(*call.err, error);
    return static_cast<int>(error.code == Code::ok ? Code::refused : error.code);
}

int cmd_attach(const Call &call, const AttachArgs &args)
{
    return finish(call,
                  ask(call, "attach",
                      {{"devices", args.devices},
                       {"mode", args.mode},
                       {"rpf", args.rpf},
                       {"track", !args.no_track},
                       {"force", args.force},
                       {"dry_run", args.dry_run}}),
                  view_attach);
}

int cmd_detach(const Call &call, const Words &devices, bool all)
{
    if (all && !devices.empty())
        return report(call,
                      {"detach", "'" + devices.front() + "' and --all", "one or the other", Code::usage, 0});
    if (!all && devices.empty())
        return report(call, {"detach", "no device given", "detach DEV..., or detach --all", Code::usage, 0});
    auto answer = ask(call, "detach", all ? json{{"all", true}} : json{{"devices", devices}});
    if (!answer && answer.error().code == Code::not_running) {
        auto offline = offline_detach(call.instance, devices, all);
        if (offline)
            answer = Answer{std::move(offline->data), std::move(offline->errors)};
        else
            answer = tl::unexpected(offline.error());
    }
    return finish(call, answer, view_detach);
}

int cmd_status(const Call &call)
{
    return finish(call, ask_or(call, "status", json::object(), [&] { return offline_status(call.instance); }),
                  view_status);
}

int cmd_flows(const Call &call, const Words &words, bool count)
{
    const auto filter = parse_filter("flows", words);
    if (!filter)
        return report(call, filter.error());
    const auto offline = [&]() -> Result<json> {
        auto flows = offline_flows(call.instance, *parse_flow_filter(*filter));
        if (flows && count)
            return json{{"count", flows->size()}};
        return flows;
    };
    if (count)
        return finish(call, ask_or(call, "count", {{"filter", *filter}}, offline), view_count);
    auto client = Client::connect(call.instance);
    if (!client) // or what is pinned
        return finish(call, ask_or(call, "flows", {{"filter", *filter}}, offline), view_flows);
    FlowPrinter printer(*call.out, call.output);
    const auto answer =
        client->call_each("flows", {{"filter", *filter}}, [&](json flow) { printer.add(std::move(flow)); });
    if (!answer)
        return report(call, answer.error());
    printer.end();
    return static_cast<int>(Code::ok);
}

int cmd_flush(const Call &call, const Words &words)
{
    const auto filter = parse_filter("flush", words);
    if (!filter)
        return report(call, filter.error());
    return finish(call, ask(call, "flush", {{"filter", *filter}}), view_flush);
}

int cmd_stats(const Call &call)
{
    return finish(call, ask_or(call, "stats", json::object(), [&] { return offline_stats(call.instance); }),
                  view_stats);
}

int cmd_explain(const Call &call, const Words &words)
{
    const auto request = parse_explain(words);
    if (!request)
        return report(call, request.error());
    return finish(call, ask(call, "explain", *request), view_explain);
}

int cmd_tunnel_add(const Call &call, const Words &words)
{
    const auto request = parse_tunnel_add(words);
    if (!request)
        return report(call, request.error());
    return finish(call, ask(call, "tunnel_add", *request), view_done);
}

int cmd_tunnel_del(const Call &call, const std::string &name)
{
    return finish(call, ask(call, "tunnel_del", {{"name", name}}), view_done);
}

int cmd_tunnel_list(const Call &call)
{
    return finish(call, ask(call, "tunnel_list"), view_tunnels);
}

int cmd_monitor(const Call &call)
{
    auto client = Client::connect(call.instance);
    if (!client)
        return report(call, client.error());
    if (const auto answer = client->call("monitor"); !answer)
        return report(call, answer.error());
    const auto status = client->stream(-1, [&](std::string_view line) {
        *call.out << line << '\n' << std::flush;
        return call.out->good();
    });
    return status ? static_cast<int>(Code::ok) : report(call, status.error());
}

int cmd_doctor(const Call &call)
{
    auto answer = ask(call, "doctor");
    if (!answer && answer.error().code == Code::not_running)
        answer = Answer{offline_doctor(), {}};
    const int code = finish(call, answer, view_doctor);
    if (code != 0 || !answer)
        return code;
    for (const auto &p : value_at(answer->data, "/kernel"))
        if (value_at(p, "/required") == true && value_at(p, "/ok") == false)
            return static_cast<int>(Code::refused);
    return code;
}

int cmd_config_check(const Call &call, const std::string &file)
{
    const auto config = load_config(file);
    if (!config)
        return report(call, config.error());
    const json data{{"file", file},
                    {"ok", true},
                    {"devices", config->devices.size()},
                    {"tunnels", config->tunnels.size()},
                    {"policy", config->policy.size()}};
    emit(*call.out, call.output, data, view_config);
    return 0;
}

} // namespace ftctl
