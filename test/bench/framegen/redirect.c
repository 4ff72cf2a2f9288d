// SPDX-License-Identifier: GPL-2.0-only
#include "framegen.h"

#include <linux/if_link.h>
#include <signal.h>

static int wait_for_end(void)
{
    sigset_t set;
    int signal = 0;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    puts("ready");
    fflush(stdout);
    return sigwait(&set, &signal) == 0 ? 0 : 1;
}

static int redirect_xdp(int from, int to)
{
    LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
    int fd = load_xdp_redirect(to);

    if (fd < 0)
        return 1;
    /* The link, and with it the program, goes with this process. */
    if (bpf_link_create(fd, from, BPF_XDP, &opts) < 0)
        return fail("attaching at XDP", errno);
    return wait_for_end();
}

static int redirect_tc(int from, int to)
{
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = from, .attach_point = BPF_TC_INGRESS);
    LIBBPF_OPTS(bpf_tc_opts, opts, .handle = 1, .priority = 1);
    int code, error;

    opts.prog_fd = load_tc_redirect(to);
    if (opts.prog_fd < 0)
        return 1;
    error = bpf_tc_hook_create(&hook);
    if (error)
        return fail("a clsact qdisc", error);
    error = bpf_tc_attach(&hook, &opts);
    code = error ? fail("attaching at TC", error) : wait_for_end();
    /* Both ends: only then the qdisc goes as well. */
    hook.attach_point = (enum bpf_tc_attach_point)(BPF_TC_INGRESS | BPF_TC_EGRESS);
    bpf_tc_hook_destroy(&hook);
    return code;
}

int cmd_redirect(int argc, char **argv)
{
    const char *hook = argc > 2 ? argv[2] : "xdp";
    int from, to;

    if (argc < 2 || (strcmp(hook, "xdp") != 0 && strcmp(hook, "tc") != 0)) {
        fputs(usage, stderr);
        return 2;
    }
    from = device(argv[0]);
    to = device(argv[1]);
    if (!from || !to)
        return 1;
    return strcmp(hook, "xdp") == 0 ? redirect_xdp(from, to) : redirect_tc(from, to);
}
