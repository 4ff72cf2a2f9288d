// SPDX-License-Identifier: GPL-2.0-only
#include <iostream>

#include "cli/app.h"

int main(int argc, char **argv)
{
    return ftctl::run_cli({argv + (argc > 0 ? 1 : 0), argv + argc}, std::cout, std::cerr);
}
