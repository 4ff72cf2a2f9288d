// SPDX-License-Identifier: GPL-2.0-only
#include "cli/app.h"

#include <algorithm>
#include <functional>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/help.h"
#include "daemon/control_protocol.h"
#include "daemon/rpf_mode.h"
#include "util/suggest.h"

namespace ftctl {

namespace {

/// Everything the parser fills in. `action` is the command that was chosen.
struct Parsed {
    Call call;
    bool json = false;
    bool pretty = false;
    AttachArgs attach;
    Words words;
    std::string name;
    bool all = false;
    bool count = false;
    std::function<int()> action;
};

std::vector<std::string> command_names(const CLI::App &app)
{
    std::vector<std::string> names;
    for (const auto *sub : app.get_subcommands([](const CLI::App *) { return true; }))
        names.push_back(sub->get_name());
    return names;
}

CLI::App *command(CLI::App &parent, Parsed &p, const std::string &name, const std::string &what,
                  std::function<int()> action)
{
    auto *sub = parent.add_subcommand(name, what);
    sub->fallthrough(); // global options may follow the command
    sub->footer(help_examples(parent.get_parent() ? parent.get_name() + " " + name : name));
    sub->final_callback([&p, sub, action = std::move(action)] {
        // A command with commands of its own acts only when none of them was given.
        if (sub->get_subcommands().empty())
            p.action = action;
    });
    return sub;
}

void add_device_commands(CLI::App &app, Parsed &p)
{
    auto *attach = command(app, p, "attach", "Put the fast path on devices",
                           [&p] { return cmd_attach(p.call, p.attach); });
    attach->add_option("DEV", p.attach.devices, "Devices")->required()->expected(-1)->option_text("...");
    attach->add_option("--mode", p.attach.mode, "Hook; xdp is native only (default auto)")
        ->check(CLI::IsMember({"auto", "xdp", "tc"}))
        ->option_text("auto|xdp|tc");
    attach->add_option("--rpf", p.attach.rpf, "Reverse path filter (default: as it is, at first off)")
        ->check(CLI::IsMember(rpf_words()))
        ->option_text("off|loose|strict[,log]");
    attach->add_flag("--no-track", p.attach.no_track, "Do not keep conntrack on with a table of our own");
    attach->add_flag("--force", p.attach.force, "Attach although a check advises against it");
    attach->add_flag("--dry-run", p.attach.dry_run, "Say what would be done, and change nothing");

    auto *detach = command(app, p, "detach", "Take the fast path off devices",
                           [&p] { return cmd_detach(p.call, p.words, p.all); });
    detach->add_option("DEV", p.words, "Devices")->expected(-1)->option_text("...");
    detach->add_flag("--all", p.all, "All devices of the instance");

    auto *rpf = command(app, p, "rpf", "Change a device's reverse path filter",
                        [&p] { return cmd_rpf(p.call, p.words); });
    rpf->add_option("WORDS", p.words, "DEV off|loose|strict[,log]")->expected(-1)->option_text("...");

    command(app, p, "status", "The daemon, its devices, and how full the table is",
            [&p] { return cmd_status(p.call); });
}

void add_flow_commands(CLI::App &app, Parsed &p)
{
    auto *flows =
        command(app, p, "flows", "List flows", [&p] { return cmd_flows(p.call, p.words, p.count); });
    flows->add_option("FILTER", p.words, filter_help())->expected(-1)->option_text("...");
    flows->add_flag("--count", p.count, "Only how many connections there are");

    auto *flush =
        command(app, p, "flush", "Give flows back to the stack", [&p] { return cmd_flush(p.call, p.words); });
    flush->add_option("FILTER", p.words, filter_help())->expected(-1)->option_text("...");

    command(app, p, "stats", "Packets per device, and why the stack had to take some",
            [&p] { return cmd_stats(p.call); });
    auto *explain = command(app, p, "explain", "What happens to a packet, and why",
                            [&p] { return cmd_explain(p.call, p.words); });
    explain->add_option("PACKET", p.words, "PROTO SRC[:PORT] DST[:PORT] [dev D]")
        ->expected(-1)
        ->option_text("...");
    command(app, p, "monitor", "Events as they happen, one JSON object a line",
            [&p] { return cmd_monitor(p.call); });
    command(app, p, "top", "The busiest flows, live", [&p] { return cmd_top(p.call); });
}

void add_tunnel_commands(CLI::App &app, Parsed &p)
{
    auto *tunnel = command(app, p, "tunnel", "Tunnels that ftctl itself terminates",
                           [&p] { return cmd_tunnel_list(p.call); });
    tunnel->require_subcommand(0, 1);
    auto *add =
        command(*tunnel, p, "add", "Declare a tunnel", [&p] { return cmd_tunnel_add(p.call, p.words); });
    add->add_option("WORDS", p.words,
                    "NAME mode ipip|ip6ip6|4in6|6in4 local A remote A [ttl N|inherit] [tos N|inherit] "
                    "[encaplimit N|none] [flowlabel N|inherit] [dev D]")
        ->expected(-1)
        ->option_text("...");
    auto *del = command(*tunnel, p, "del", "Remove a declared tunnel",
                        [&p] { return cmd_tunnel_del(p.call, p.name); });
    del->add_option("NAME", p.name, "Its device")->required()->option_text(" ");
    command(*tunnel, p, "list", "List tunnels, declared and learned",
            [&p] { return cmd_tunnel_list(p.call); });
}

void add_filter_commands(CLI::App &app, Parsed &p)
{
    auto *filter = command(app, p, "filter", "Rules that drop packets before anything else",
                           [&p] { return cmd_filter_list(p.call); });
    filter->require_subcommand(0, 1);
    auto *add = command(*filter, p, "add", "Add a rule", [&p] { return cmd_filter_add(p.call, p.words); });
    add->add_option("WORDS", p.words,
                    "[dev D] [src A/n] [dst A/n] [proto P] [sport N[-M]] [dport N[-M]] [inner] accept|drop "
                    "[comment TEXT] [id N]")
        ->expected(-1)
        ->option_text("...");
    auto *del = command(*filter, p, "del", "Remove rules", [&p] { return cmd_filter_del(p.call, p.words); });
    del->add_option("ID", p.words, "Their ids")->required()->expected(-1)->option_text("...");
    command(*filter, p, "list", "List rules, in order", [&p] { return cmd_filter_list(p.call); });
    command(*filter, p, "flush", "Remove all rules", [&p] { return cmd_filter_flush(p.call); });
    auto *load = command(*filter, p, "load", "Replace all rules at once",
                         [&p] { return cmd_filter_load(p.call, p.name); });
    load->add_option("FILE", p.name, "Rules, one a line, or JSON; -: standard input")
        ->required()
        ->option_text(" ");
}

void add_other_commands(CLI::App &app, Parsed &p)
{
    command(app, p, "doctor", "What this kernel and these devices can do, and what to change",
            [&p] { return cmd_doctor(p.call); });

    auto *config = app.add_subcommand("config", "The configuration file");
    config->fallthrough()->require_subcommand(1);
    auto *check = command(*config, p, "check", "Check a file; needs no root and no daemon",
                          [&p] { return cmd_config_check(p.call, p.name); });
    check->add_option("FILE", p.name, "For example /etc/ftctl/ftctl.json")->required()->option_text(" ");

    auto *help = command(app, p, "help", "Help, in general or about a command", [&app, &p] {
        const CLI::App *about = &app;
        std::string path = app.get_name();
        for (const auto &word : p.words) {
            const auto subs =
                about->get_subcommands([&](const CLI::App *s) { return s->get_name() == word; });
            if (subs.empty())
                return report(p.call,
                              {"help",
                               "unknown command '" + word + "'" + did_you_mean(word, command_names(*about)),
                               "see ftctl --help", Code::usage, 0});
            about = subs.front();
            path += " " + word;
        }
        // Not App::help(): it goes on to the command that was given, which is this one.
        *p.call.out << app.get_formatter()->make_help(about, path, CLI::AppFormatMode::Normal);
        return 0;
    });
    help->add_option("COMMAND", p.words, "The command")->expected(-1)->option_text("...");
}

/// "tunnel add", as far as the words led.
std::string where(const CLI::App &app)
{
    std::string path;
    for (const auto *at = &app; !at->get_subcommands().empty();) {
        at = at->get_subcommands().front();
        path += (path.empty() ? "" : " ") + at->get_name();
    }
    return path.empty() ? "command line" : path;
}

/// Words that nothing has taken.
std::optional<Error> leftover(const CLI::App &app)
{
    const auto rest = app.remaining(/*recurse=*/true);
    if (rest.empty())
        return std::nullopt;
    const auto &word = rest.front();
    const auto place = where(app);
    const auto see =
        place == "command line" ? std::string("see ftctl --help") : "see ftctl " + place + " --help";
    if (word.starts_with('-'))
        return Error{place, "unknown option '" + word + "'", see, Code::usage, 0};
    if (app.get_subcommands().empty())
        return Error{place, "unknown command '" + word + "'" + did_you_mean(word, command_names(app)), see,
                     Code::usage, 0};
    return Error{place, "unexpected word '" + word + "'", see, Code::usage, 0};
}

int run_parsed(CLI::App &app, Parsed &p)
{
    if (const auto error = leftover(app))
        return report(p.call, *error);
    if (!valid_instance(p.call.instance))
        return report(p.call, {"instance '" + p.call.instance + "'", "not a name for an instance",
                               "1 to 64 letters, digits, '_', '.' or '-', no dot in front", Code::usage, 0});
    if (!p.action)
        return report(p.call, {"command line", "no command", "see ftctl --help", Code::usage, 0});
    p.call.output.format = p.pretty ? Format::pretty : p.json ? Format::json : Format::text;
    p.call.output.colour = p.call.out == &std::cout && want_colour(STDOUT_FILENO);
    const int code = p.action();
    p.call.out->flush();
    if (!p.call.out->good() && code == 0)
        return report(p.call, {"output", "cannot be written", "", Code::refused, 0});
    return code;
}

void set_up(CLI::App &app, Parsed &p)
{
    app.set_help_flag("-h,--help", "This help");
    app.set_version_flag("--version", "ftctl " FTCTL_VERSION);
    app.add_option("-i,--instance", p.call.instance, "The daemon to talk to (default: default)")
        ->option_text("NAME");
    app.add_flag("-j,--json", p.json, "JSON, compact");
    app.add_flag("-p,--pretty", p.pretty, "JSON, indented");
    app.require_subcommand(0, 1);
    app.footer(help_examples(""));
    app.get_formatter()->column_width(28);
    add_device_commands(app, p);
    add_flow_commands(app, p);
    add_tunnel_commands(app, p);
    add_filter_commands(app, p);
    add_other_commands(app, p);
    app.allow_extras(); // they are reported in our own words, with a suggestion
}

} // namespace

int run_cli(const std::vector<std::string> &args, std::ostream &out, std::ostream &err)
{
    Parsed p;
    p.call.out = &out;
    p.call.err = &err;
    CLI::App app("Forward established connections in eBPF", "ftctl");
    try {
        set_up(app, p);
        app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
        return run_parsed(app, p);
    } catch (const CLI::CallForHelp &) {
        out << app.help(); // of the command that was given
        return 0;
    } catch (const CLI::CallForVersion &) {
        out << "ftctl " FTCTL_VERSION "\n";
        return 0;
    } catch (const CLI::ParseError &e) {
        if (const auto error = leftover(app))
            return report(p.call, *error);
        const auto place = where(app);
        return report(p.call,
                      {place, e.what(),
                       place == "command line" ? "see ftctl --help" : "see ftctl " + place + " --help",
                       Code::usage, 0});
    } catch (const nlohmann::json::exception &e) {
        return report(p.call,
                      {"answer", e.what(), "are ftctl and ftctld of the same version?", Code::refused, 0});
    } catch (const std::exception &e) {
        return report(p.call, {"ftctl", e.what(), "", Code::refused, 0});
    }
}

} // namespace ftctl
