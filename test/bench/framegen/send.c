// SPDX-License-Identifier: GPL-2.0-only
#include "framegen.h"

#include <fcntl.h>
#include <getopt.h>
#include <linux/if_link.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CALM_WAIT_NS = 200000000 };

struct sender {
    unsigned char frame[ROOM + FRAME_MAX];
    size_t length; /* without ROOM */
    int program;
    int pauses; /* a program of pauses only */
    __u32 count, batch, rounds;
    __u32 rate;     /* frames a second, 0: no bound */
    double seconds; /* how long a round takes, but for the first */
    struct flows flows;
    struct progress *progress;
    __u32 undisturbed; /* see calm_of() */
    struct sampler sampler;
    const char *samples; /* file, or NULL */
    int busy;            /* no samples of an idle processor */
    const char *sink;    /* NETNS:DEV:ETHERTYPE:PROTO, or NULL */
    int counter;         /* map of the sink, or -1 */
    int flushes;         /* map that counts them, -1: nobody asked */
    int cpu;             /* -1: any */
    int policy;          /* SCHED_IDLE, SCHED_FIFO, or SCHED_OTHER */
};

static size_t parse_frame(const char *text, unsigned char *frame)
{
    size_t length = strlen(text) / 2;

    if (strlen(text) % 2 != 0 || length < 16 || length > FRAME_MAX)
        return 0;
    for (size_t i = 0; i < length; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        char *end = NULL;

        frame[i] = (unsigned char)strtoul(digits, &end, 16);
        if (end != digits + 2)
            return 0;
    }
    return length;
}

/* A number from 1 to max, or 0. */
static __u32 parse_number(const char *text, unsigned long max)
{
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 10);

    return *text && !*end && value <= max ? (__u32)value : 0;
}

/* OFFSET, + or -, l or h. */
static int parse_field(const char *text, struct flows *flows)
{
    struct field *field = &flows->fields[flows->used];
    char rest = 0;

    if (flows->used == FIELDS_MAX ||
        sscanf(text, "%u%c%c%c", &field->at, &field->sign, &field->part, &rest) != 3)
        return -1;
    flows->used++;
    return strchr("+-", field->sign) && strchr("lh", field->part) ? 0 : -1;
}

static int parse_option(int option, struct sender *sender)
{
    switch (option) {
    case 'b':
        return (sender->batch = parse_number(optarg, BATCH_MAX)) ? 0 : -1;
    case 'r':
        return (sender->rounds = parse_number(optarg, 1000)) ? 0 : -1;
    case 'p':
        return (sender->rate = parse_number(optarg, 100000000)) ? 0 : -1;
    case 'd':
        return (sender->seconds = strtod(optarg, NULL)) > 0 ? 0 : -1;
    case 'f':
        sender->flows.count = parse_number(optarg, FLOWS_MAX);
        return sender->flows.count && !(sender->flows.count & (sender->flows.count - 1)) ? 0 : -1;
    case 't':
        option = (int)parse_number(optarg, 1024);
        sender->flows.train = option ? (__u32)__builtin_ctz((unsigned int)option) : 0;
        return option ? 0 : -1;
    case 'v':
        return parse_field(optarg, &sender->flows);
    case 'S':
        sender->sink = optarg;
        return 0;
    case 's':
        sender->samples = optarg;
        return 0;
    case 'n':
        sender->busy = 1;
        return 0;
    case 'c':
        return (sender->cpu = atoi(optarg)) >= 0 ? 0 : -1;
    case 'i':
        sender->policy = SCHED_IDLE;
        return 0;
    case 'q':
        return (sender->undisturbed = parse_number(optarg, 1000000)) ? 0 : -1;
    case 'F':
        sender->flushes = flushes_open();
        return sender->flushes < 0 ? -1 : 0;
    case 'R':
        sender->policy = SCHED_FIFO;
        return 0;
    default:
        return -1;
    }
}

static int parse(int argc, char **argv, struct sender *sender)
{
    int option;

    while ((option = getopt(argc, argv, "+b:r:p:d:f:t:v:S:s:nc:iRFq:")) != -1)
        if (parse_option(option, sender) != 0)
            return -1;
    if (argc - optind != 3)
        return -1;
    sender->count = parse_number(argv[optind + 1], 100000000);
    sender->length = parse_frame(argv[optind + 2], sender->frame + ROOM);
    for (size_t i = 0; i < sender->flows.used; i++)
        if (sender->flows.fields[i].at + 2 > (sender->length < REWRITE_MAX ? sender->length : REWRITE_MAX))
            return -1;
    return sender->count && sender->length ? 0 : -1;
}

/* ---------------------------------------------------------------- the end */

static int enter(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 || setns(fd, CLONE_NEWNET) != 0 ? errno : 0;

    if (fd >= 0)
        close(fd);
    return error ? fail(path, error) : 0;
}

/* The link, and with it the program, goes with this process. */
static int open_sink(struct sender *sender)
{
    LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
    char netns[64], dev[32], path[96];
    unsigned int ethertype, proto;
    struct match match;
    int program, ifindex, link = -1, home;

    if (sscanf(sender->sink, "%63[^:]:%31[^:]:%x:%u", netns, dev, &ethertype, &proto) != 4) {
        fputs(usage, stderr);
        return 2;
    }
    match = (struct match){(__u16)ethertype, (__u8)proto};
    program = load_sink(&match, &sender->counter);
    home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/run/netns/%s", netns);
    if (program < 0 || home < 0 || enter(path) != 0)
        return 1;
    ifindex = device(dev);
    if (ifindex)
        link = bpf_link_create(program, ifindex, BPF_XDP, &opts);
    if (ifindex && link < 0)
        fail("the end's program", errno);
    return link < 0 || setns(home, CLONE_NEWNET) != 0;
}

static __u64 arrived(const struct sender *sender)
{
    __u64 values[256] = {0}, sum = 0;
    __u32 zero = 0;
    int processors = libbpf_num_possible_cpus();

    if (sender->counter < 0 || processors > 256 || bpf_map_lookup_elem(sender->counter, &zero, values) != 0)
        return 0;
    for (int i = 0; i < processors; i++)
        sum += values[i];
    return sum;
}

/*
 * What another process, or ksoftirqd, still had in hand has arrived as well when the count stands still, or
 * is `all`. A process may wait for its processor for a while, with thousands of packets before it.
 */
static __u64 settle(const struct sender *sender, __u64 all)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    const int still = all ? 100 : 3;
    __u64 last = ~0ULL, now = arrived(sender);

    for (int quiet = 0; sender->counter >= 0 && now != all && quiet < still;
         quiet = now == last ? quiet + 1 : 0) {
        last = now;
        nanosleep(&pause, NULL);
        now = arrived(sender);
    }
    return now;
}

/* ------------------------------------------------------------------ rounds */

/* ns: what the kernel's loop over the frames took for each, without the grace periods (some 25 ms) that it
 * waits for to begin and to end. */
static int run(const struct sender *sender, __u32 count, __u32 *ns)
{
    LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = sender->frame,
                .data_size_in = (__u32)(ROOM + sender->length), .repeat = (int)count,
                .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = sender->batch);
    int error = bpf_prog_test_run_opts(sender->program, &opts);

    *ns = opts.duration;
    return error ? fail("BPF_PROG_TEST_RUN with live frames", error) : 0;
}

/* In portions, each when it is due. As to begin and end one takes long, they cannot be small. */
static int run_paced(const struct sender *sender, __u32 count, __u32 *ns)
{
    __u64 due = clock_ns(CLOCK_MONOTONIC);
    __u32 most = sender->rate / PORTIONS + 1;

    for (__u32 sent = 0; sent < count;) {
        __u32 portion = count - sent < most ? count - sent : most;
        struct timespec until;

        if (run(sender, portion, ns) != 0)
            return 1;
        sent += portion;
        due += portion * 1000000000ULL / sender->rate;
        until = (struct timespec){(time_t)(due / 1000000000ULL), (long)(due % 1000000000ULL)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    return 0;
}

/* Or goes on, when nobody leaves the core for so long: calm_of() tells. */
static void wait_for_calm(const struct sender *sender)
{
    const __u64 end = clock_ns(CLOCK_MONOTONIC) + CALM_WAIT_NS;

    while (clock_ns(CLOCK_MONOTONIC) < end && !is_calm(sender->pauses, sender->progress, sender->undisturbed))
        ;
}

static int run_rounds(struct sender *sender)
{
    __u32 count = sender->count;

    for (__u32 round = 0; round < sender->rounds; round++) {
        __u64 before = settle(sender, 0), time;
        struct flushes first = flushes_read(sender->flushes), last;
        __u32 ns = 0;
        struct calm calm;
        int error;

        if (round > 0 && sender->undisturbed)
            wait_for_calm(sender);
        sender->progress->frames = 0;
        if (sender->samples && round == 1)
            sampler_enable(&sender->sampler, 1);
        time = clock_ns(CLOCK_MONOTONIC);
        error = sender->rate ? run_paced(sender, count, &ns) : run(sender, count, &ns);
        time = clock_ns(CLOCK_MONOTONIC) - time;
        if (error)
            return error;
        calm = calm_of(sender->progress, sender->undisturbed);
        printf("%.2f %u %.2f %.2f %llu %u %llu", (double)time / count, ns, calm.frame, calm.share, calm.loop,
               count, settle(sender, before + count) - before);
        last = flushes_read(sender->flushes);
        if (sender->flushes >= 0)
            printf(" %llu %llu %llu", last.count - first.count, last.sent - first.sent,
                   last.dropped - first.dropped);
        putchar('\n');
        if (round == 0 && ns && sender->seconds * 1e9 > (double)ns * count)
            count = (__u32)(sender->seconds * 1e9 / ns);
    }
    return 0;
}

static int prepare(struct sender *sender)
{
    const struct sched_param priority = {.sched_priority = sender->policy == SCHED_FIFO};

    if (sender->cpu >= 0 && pin_to(sender->cpu) != 0)
        return 1;
    if (sched_setscheduler(0, sender->policy, &priority) != 0 && sender->policy != SCHED_FIFO)
        return fail("the scheduling policy", errno);
    return sender->samples ? sampler_open(&sender->sampler, 0, !sender->busy) : 0;
}

int cmd_send(int argc, char **argv)
{
    static struct sender sender = {
        .batch = 64, .rounds = 1, .flows = {.count = 1}, .counter = -1, .flushes = -1, .cpu = -1};
    int ifindex, progress, code;

    if (parse(argc, argv, &sender) != 0) {
        fputs(usage, stderr);
        return 2;
    }
    ifindex = device(argv[optind]);
    if (!ifindex)
        return 1;
    sender.progress = progress_open(&progress);
    if (!sender.progress)
        return 1;
    sender.program = load_sender(sender.frame + ROOM, sender.length, ifindex, &sender.flows, progress);
    sender.pauses = load_pauses(progress);
    code = sender.program < 0 || sender.pauses < 0 ? 1 : sender.sink ? open_sink(&sender) : 0;
    if (code == 0)
        code = prepare(&sender);
    if (code == 0)
        code = run_rounds(&sender);
    if (code != 0 || !sender.samples)
        return code;
    sampler_enable(&sender.sampler, 0);
    return sampler_write(&sender.sampler, 1, sender.samples);
}
