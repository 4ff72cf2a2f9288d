// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sends copies of one Ethernet frame out of a device as XDP live frames (BPF_PROG_TEST_RUN), and
 * tells how long that took; or forwards what a device receives with the least work possible.
 *
 * A live frame is what a driver's receive ring hands to XDP. Those sent out of a veth arrive at
 * its peer as such frames, provided that the peer runs NAPI (`ethtool -K PEER gro on`, or a program).
 * Everything up to the far end then happens in this process's softirqs: the time per frame is
 * that of the generator, the receiver and all routers between.
 */
#include "framegen.h"

#include <net/if.h>
#include <sched.h>

const char usage[] =
    "usage: framegen send [OPTION...] DEV COUNT FRAME\n"
    "       framegen redirect DEV TO [xdp|tc]\n"
    "       framegen calm CPU SECONDS\n"
    "       framegen sample SECONDS FILE\n"
    "\n"
    "send: COUNT copies of FRAME (hexadecimal, from the Ethernet header on) out of DEV. Prints a line for "
    "each\n"
    "round: nanoseconds per frame, the same without what the kernel takes to begin and to end (some 25 ms a "
    "round;\n"
    "0 with -p), the median of its calm slices (1024 frames each; 0: there were hardly any), the share of "
    "slices that were\n"
    "calm, how long the shortest pause took, frames sent, frames arrived (-S). A slice is calm when a loop "
    "of "
    "instructions\n"
    "before and after it, its pauses, did not take longer than it must: nobody else used the core.\n"
    "  -b BATCH     frames between two flushes (64)\n"
    "  -r ROUNDS    how often (1)\n"
    "  -d SECONDS   after the first round, as many frames as take so long, but no fewer than COUNT\n"
    "  -p RATE      no more frames a second than this, a twentieth of them at a time\n"
    "  -f FLOWS     a power of two, with -v; all are visited before one comes again, in an order without "
    "pattern\n"
    "  -t TRAIN     a power of two: so many frames of a flow follow each other (1)\n"
    "  -v FIELD     OFFSET, + or -, l or h: the 16 bits there grow or fall, from flow to flow, with the low "
    "14\n"
    "               bits of its number, or with the higher ones; in one's complement, for checksums. May be "
    "repeated\n"
    "  -S NETNS:DEV:ETHERTYPE:PROTO   such frames (hexadecimal, decimal) end where that device receives "
    "them\n"
    "  -c CPU       runs on that processor\n"
    "  -q NS        what a pause takes on this processor when nobody disturbs it, see calm\n"
    "  -F           counts, and prints as well: flushes of XDP's device maps between generator and end, "
    "frames that\n"
    "               these sent, and frames that they dropped\n"
    "  -i           runs as SCHED_IDLE, so that ksoftirqd, once it is needed, empties the queues first\n"
    "  -R           runs before all others (SCHED_FIFO), ksoftirqd as well: kernels since 6.4 can do without "
    "it\n"
    "  -s FILE      gets the addresses, in hexadecimal, at which processor 0 was found every 20 us during "
    "all\n"
    "               rounds but the first, and where its own programs are, as in /proc/kallsyms\n"
    "  -n           ... but not while it had nothing to do\n"
    "\n"
    "redirect: every frame that DEV receives leaves by TO as it is, at XDP (default) or TC. Prints\n"
    "\"ready\", and goes on until it gets SIGTERM.\n"
    "\n"
    "calm: how long a pause takes on that processor: the shortest in so many seconds.\n"
    "\n"
    "sample: the addresses at which busy processors were found every 20 us, as -s has them; 2 seconds at "
    "most.\n";

int fail(const char *what, int error)
{
    fprintf(stderr, "framegen: %s: %s\n", what, strerror(error < 0 ? -error : error));
    return 1;
}

__u64 clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (__u64)now.tv_sec * 1000000000ULL + (__u64)now.tv_nsec;
}

int pin_to(int cpu)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET((size_t)cpu, &cpus);
    return sched_setaffinity(0, sizeof(cpus), &cpus) != 0 ? fail("that processor", errno) : 0;
}

int device(const char *name)
{
    unsigned int index = if_nametoindex(name);

    if (!index)
        fprintf(stderr, "framegen: device %s: %s\n", name, strerror(errno));
    return (int)index;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";

    if (strcmp(command, "send") == 0)
        return cmd_send(argc - 1, argv + 1);
    if (strcmp(command, "calm") == 0)
        return cmd_calm(argc - 2, argv + 2);
    if (strcmp(command, "sample") == 0)
        return cmd_sample(argc - 2, argv + 2);
    if (strcmp(command, "redirect") == 0)
        return cmd_redirect(argc - 2, argv + 2);
    if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    fputs(usage, stderr);
    return 2;
}
