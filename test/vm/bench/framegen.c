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
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/perf_event.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

enum {
    FRAME_MAX = 2048,
    /* Longer than any headers measured here; what lies behind them is never written by anyone. */
    REWRITE_MAX = 160,
    BATCH_MAX = 256, /* BPF_PROG_TEST_RUN's own bound */
    INSNS_MAX = 16 + 3 * REWRITE_MAX / 8,
    SAMPLE_NS = 20011, /* prime: not in step with batches */
    SAMPLE_PAGES = 512,
    PAGE = 4096,
};

static const char usage[] =
    "usage: framegen send DEV COUNT FRAME [BATCH [ROUNDS [SAMPLES]]]\n"
    "       framegen redirect DEV TO [xdp|tc]\n"
    "\n"
    "send: COUNT copies of FRAME (hexadecimal, from the Ethernet header on) out of DEV, BATCH (64)\n"
    "between two flushes; ROUNDS (1) times. Prints the nanoseconds per frame of each round, a line\n"
    "each. Runs as SCHED_IDLE, so that ksoftirqd, once it is needed, empties the queues first.\n"
    "SAMPLES: a file that gets the addresses, in hexadecimal, at which processor 0 was found every 20 us\n"
    "during all rounds but the first.\n"
    "\n"
    "redirect: every frame that DEV receives leaves by TO as it is, at XDP (default) or TC. Prints\n"
    "\"ready\", and goes on until it gets SIGTERM.\n";

static int fail(const char *what, int error)
{
    fprintf(stderr, "framegen: %s: %s\n", what, strerror(error < 0 ? -error : error));
    return 1;
}

static int device(const char *name)
{
    unsigned int index = if_nametoindex(name);

    if (!index)
        fprintf(stderr, "framegen: device %s: %s\n", name, strerror(errno));
    return (int)index;
}

/* ---------------------------------------------------------------- programs */

struct program {
    struct bpf_insn insns[INSNS_MAX];
    size_t count;
};

static void emit(struct program *prog, __u8 code, __u8 dst, __u8 src, __s16 off, __s32 imm)
{
    prog->insns[prog->count++] = (struct bpf_insn){code, dst & 15, src & 15, off, imm};
}

/* dst = value, in two instruction slots. src: BPF_PSEUDO_MAP_FD when the value is a map's descriptor. */
static void emit_imm64(struct program *prog, __u8 dst, __u8 src, __u64 value)
{
    emit(prog, BPF_LD | BPF_DW | BPF_IMM, dst, src, 0, (__s32)value);
    emit(prog, 0, 0, 0, 0, (__s32)(value >> 32));
}

static void emit_call(struct program *prog, int helper)
{
    emit(prog, BPF_JMP | BPF_CALL, 0, 0, 0, helper);
    emit(prog, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static void emit_redirect(struct program *prog, int ifindex)
{
    emit(prog, BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, ifindex);
    emit(prog, BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0);
    emit_call(prog, BPF_FUNC_redirect);
}

static int load(const struct program *prog, enum bpf_prog_type type)
{
    static char log[16384];
    LIBBPF_OPTS(bpf_prog_load_opts, opts, .log_buf = log, .log_size = sizeof(log), .log_level = 1);
    int fd = bpf_prog_load(type, "framegen", "GPL", prog->insns, prog->count, &opts);

    if (fd < 0)
        fprintf(stderr, "framegen: the program is refused: %s\n%s", strerror(errno), log);
    return fd;
}

/*
 * Writes the headers anew and sends the frame. The kernel hands out the same pages again and again,
 * as the last receiver left them: with a TTL one less each time, say.
 */
static int load_sender(const unsigned char *frame, size_t length, int ifindex)
{
    size_t headers = (length < REWRITE_MAX ? length : REWRITE_MAX) & ~(size_t)7;
    struct program prog = {.count = 0};

    emit(&prog, BPF_LDX | BPF_MEM | BPF_W, 2, 1, offsetof(struct xdp_md, data), 0);
    emit(&prog, BPF_LDX | BPF_MEM | BPF_W, 3, 1, offsetof(struct xdp_md, data_end), 0);
    emit(&prog, BPF_ALU64 | BPF_MOV | BPF_X, 4, 2, 0, 0);
    emit(&prog, BPF_ALU64 | BPF_ADD | BPF_K, 4, 0, 0, (__s32)headers);
    emit(&prog, BPF_JMP | BPF_JGT | BPF_X, 4, 3, (__s16)(headers / 8 * 3), 0);
    for (size_t at = 0; at < headers; at += 8) {
        __u64 word = 0;

        memcpy(&word, frame + at, sizeof(word));
        emit_imm64(&prog, 5, 0, word);
        emit(&prog, BPF_STX | BPF_MEM | BPF_DW, 2, 5, (__s16)at, 0);
    }
    emit_redirect(&prog, ifindex);
    return load(&prog, BPF_PROG_TYPE_XDP);
}

/* As the product does it: a hash of devices, so that the floor pays for the same lookup. */
static int load_xdp_redirect(int ifindex)
{
    struct program prog = {.count = 0};
    int map = bpf_map_create(BPF_MAP_TYPE_DEVMAP_HASH, "framegen", 4, 4, 256, NULL);

    if (map < 0 || bpf_map_update_elem(map, &ifindex, &ifindex, BPF_ANY) != 0) {
        fail("a map of devices", errno);
        return -1;
    }
    emit_imm64(&prog, 1, BPF_PSEUDO_MAP_FD, (__u64)map);
    emit(&prog, BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, ifindex);
    emit(&prog, BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 0);
    emit_call(&prog, BPF_FUNC_redirect_map);
    return load(&prog, BPF_PROG_TYPE_XDP);
}

/* ----------------------------------------------------------------- samples */

struct sampler {
    int fd;
    struct perf_event_mmap_page *ring;
};

static int sampler_open(struct sampler *sampler)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = SAMPLE_NS,
        .sample_type = PERF_SAMPLE_IP,
        .disabled = 1,
    };

    sampler->fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
    if (sampler->fd < 0)
        return fail("perf_event_open", errno);
    sampler->ring = mmap(NULL, (SAMPLE_PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, sampler->fd, 0);
    return sampler->ring == MAP_FAILED ? fail("the ring of samples", errno) : 0;
}

/* The ring is never read while it fills, and so never wraps: what does not fit is lost and noticed. */
static int sampler_write(const struct sampler *sampler, const char *path)
{
    const char *data = (const char *)sampler->ring + PAGE;
    __u64 head = __atomic_load_n(&sampler->ring->data_head, __ATOMIC_ACQUIRE);
    FILE *file = fopen(path, "w");

    if (!file)
        return fail(path, errno);
    for (__u64 at = 0; at < head;) {
        struct perf_event_header header;
        __u64 address;

        memcpy(&header, data + at, sizeof(header));
        memcpy(&address, data + at + sizeof(header), sizeof(address));
        if (header.type == PERF_RECORD_SAMPLE)
            fprintf(file, "%llx\n", (unsigned long long)address);
        at += header.size;
    }
    if (head + PAGE > SAMPLE_PAGES * PAGE)
        fprintf(stderr, "framegen: more samples than fit: the last ones are missing\n");
    return fclose(file) == 0 ? 0 : fail(path, errno);
}

/* -------------------------------------------------------------------- send */

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

static __u64 now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (__u64)now.tv_sec * 1000000000ULL + (__u64)now.tv_nsec;
}

static int cmd_send(int argc, char **argv)
{
    static unsigned char frame[FRAME_MAX];
    const struct sched_param idle = {.sched_priority = 0};
    __u32 count = argc > 1 ? parse_number(argv[1], 100000000) : 0;
    size_t length = argc > 2 ? parse_frame(argv[2], frame) : 0;
    __u32 batch = argc > 3 ? parse_number(argv[3], BATCH_MAX) : 64;
    __u32 rounds = argc > 4 ? parse_number(argv[4], 1000) : 1;
    const char *samples = argc > 5 ? argv[5] : NULL;
    struct sampler sampler = {.fd = -1};
    int ifindex, fd;

    if (!count || !length || !batch || !rounds) {
        fputs(usage, stderr);
        return 2;
    }
    ifindex = device(argv[0]);
    if (!ifindex)
        return 1;
    fd = load_sender(frame, length, ifindex);
    if (fd < 0)
        return 1;
    if (samples && sampler_open(&sampler) != 0)
        return 1;
    if (sched_setscheduler(0, SCHED_IDLE, &idle) != 0)
        return fail("SCHED_IDLE", errno);
    for (__u32 round = 0; round < rounds; round++) {
        LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = (__u32)length,
                    .repeat = (int)count, .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = batch);
        __u64 time;
        int error;

        if (samples && round == 1)
            ioctl(sampler.fd, PERF_EVENT_IOC_ENABLE, 0);
        time = now_ns();
        error = bpf_prog_test_run_opts(fd, &opts);
        time = now_ns() - time;
        if (error)
            return fail("BPF_PROG_TEST_RUN with live frames", error);
        printf("%.2f\n", (double)time / count);
    }
    if (!samples)
        return 0;
    ioctl(sampler.fd, PERF_EVENT_IOC_DISABLE, 0);
    return sampler_write(&sampler, samples);
}

/* ---------------------------------------------------------------- redirect */

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
    struct program prog = {.count = 0};
    int code, error;

    emit_redirect(&prog, to);
    opts.prog_fd = load(&prog, BPF_PROG_TYPE_SCHED_CLS);
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

static int cmd_redirect(int argc, char **argv)
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

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";

    if (strcmp(command, "send") == 0)
        return cmd_send(argc - 2, argv + 2);
    if (strcmp(command, "redirect") == 0)
        return cmd_redirect(argc - 2, argv + 2);
    if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    fputs(usage, stderr);
    return 2;
}
