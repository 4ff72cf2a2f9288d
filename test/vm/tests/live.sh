#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# What the unit tests ask the running kernel: attaching, pins, adoption, probes.
exec "$FTCTL_BIN_DIR/test/unit_tests" "[live][bpf]"
