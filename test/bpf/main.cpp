// SPDX-License-Identifier: GPL-2.0-only
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <cstdio>
#include <exception>

#include "bpf_run.h"

int main(int argc, char **argv)
{
    Catch::Session session;
    const int usage = session.applyCommandLine(argc, argv);
    if (usage != 0)
        return usage;

    const std::string why = ftctl::test::cannot_run();
    if (!why.empty()) {
        std::printf("skipped: %s\n", why.c_str());
        return 77;
    }
    try {
        ftctl::test::Rig::get();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "the programs cannot be loaded: %s\n", error.what());
        return 1;
    }
    return session.run();
}
