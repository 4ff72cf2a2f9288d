// SPDX-License-Identifier: GPL-2.0-only
// ftctld: the daemon. One serves one network namespace: the one it is started in.
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "bpf/datapath.h"
#include "daemon/config.h"
#include "daemon/control_protocol.h"
#include "daemon/engine.h"
#include "daemon/privileges.h"

namespace {

int report(const ftctl::Error &error)
{
    std::fprintf(stderr, "ftctld: %s: %s\n", error.what.c_str(), error.why.c_str());
    if (!error.hint.empty())
        std::fprintf(stderr, "hint: %s\n", error.hint.c_str());
    return static_cast<int>(error.code);
}

} // namespace

int main(int argc, char **argv)
{
    CLI::App app{"ftctld keeps the flows of ftctl's fast path true: it learns connections from conntrack,\n"
                 "predicts their paths, and lets packets take them once the kernel was seen to agree.\n"
                 "It serves the network namespace it is started in, and stays in the foreground."};
    std::string instance = "default";
    std::string config_path;
    bool verbose = false;
    app.add_option("-i,--instance", instance, "name of this instance: its socket is /run/ftctl/NAME.sock")
        ->capture_default_str();
    app.add_option("--config", config_path,
                   "configuration file (default: " + std::string(ftctl::kConfigPath) + " where it exists)");
    app.add_flag("-v,--verbose", verbose, "say more");
    app.set_version_flag("--version", std::string("ftctld " FTCTL_VERSION));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &e) {
        return app.exit(e) == 0 ? 0 : 1;
    }
    spdlog::set_default_logger(spdlog::stderr_logger_mt("ftctld"));
    spdlog::set_pattern("ftctld: %l: %v");
    spdlog::set_level(verbose ? spdlog::level::debug : spdlog::level::info);

    if (!ftctl::valid_instance(instance))
        return report(
            {"instance " + instance, "1 to 64 letters, digits, '_' or '-'", "", ftctl::Code::usage, 0});
    ftctl::Config config;
    if (!config_path.empty() || access(ftctl::kConfigPath, F_OK) == 0) {
        auto loaded = ftctl::load_config(config_path.empty() ? ftctl::kConfigPath : config_path);
        if (!loaded)
            return report(loaded.error());
        config = std::move(*loaded);
    }
    if (geteuid() != 0)
        return report({"start", "not root", "ftctld gives up what it does not need by itself",
                       ftctl::Code::refused, 0});
    if (auto done = ftctl::ensure_bpffs(); !done)
        return report(done.error());
    auto engine = ftctl::Engine::start(instance, config);
    if (!engine)
        return report(engine.error());
    if (auto done = ftctl::drop_privileges(); !done)
        return report(done.error());
    if (auto done = (*engine)->run(); !done)
        return report(done.error());
    return 0;
}
