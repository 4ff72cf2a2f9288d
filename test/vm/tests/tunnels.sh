#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# The kernel's own tunnel devices, in every setting, as the control plane reads them.
for module in ip6_tunnel sit ipip; do
  modprobe "$module" 2>/dev/null || { echo "SKIP: this kernel has no $module module"; exit 77; }
done
exec "$FTCTL_BIN_DIR/test/unit_tests" "[kernel-tunnels]"
