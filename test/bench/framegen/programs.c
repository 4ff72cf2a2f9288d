// SPDX-License-Identifier: GPL-2.0-only
#include "framegen.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>

enum {
    INSNS_MAX = 128 + 3 * REWRITE_MAX / 8 + 12 * FIELDS_MAX,
    COUNT = 5,
    DATA = 2,
    END = 3,
    SCRATCH = 4,
    VALUE = 5,
    LOW = 6,
    HIGH = 7,
    CONTEXT = 8,
    ROUND = 9,
};

enum { PAUSE_INSNS = 40, PAUSE_ROUNDS = 200 };

struct program {
    struct bpf_insn insns[INSNS_MAX];
    size_t count;
};

static void emit(struct program *prog, __u8 code, __u8 dst, __u8 src, __s16 off, __s32 imm)
{
    prog->insns[prog->count++] = (struct bpf_insn){code, dst & 15, src & 15, off, imm};
}

static void emit_alu(struct program *prog, __u8 operation, __u8 dst, __s32 imm)
{
    emit(prog, BPF_ALU64 | operation | BPF_K, dst, 0, 0, imm);
}

static void emit_alu_reg(struct program *prog, __u8 operation, __u8 dst, __u8 src)
{
    emit(prog, BPF_ALU64 | operation | BPF_X, dst, src, 0, 0);
}

/* dst = value, in two instruction slots. src: BPF_PSEUDO_MAP_* when the value is a map's descriptor. */
static void emit_imm64(struct program *prog, __u8 dst, __u8 src, __u64 value)
{
    emit(prog, BPF_LD | BPF_DW | BPF_IMM, dst, src, 0, (__s32)value);
    emit(prog, 0, 0, 0, 0, src == BPF_PSEUDO_MAP_VALUE ? 0 : (__s32)(value >> 32));
}

static void emit_call(struct program *prog, int helper)
{
    emit(prog, BPF_JMP | BPF_CALL, 0, 0, 0, helper);
}

static void emit_exit(struct program *prog)
{
    emit(prog, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static void emit_redirect(struct program *prog, int ifindex)
{
    emit_alu(prog, BPF_MOV, 1, ifindex);
    emit_alu(prog, BPF_MOV, 2, 0);
    emit_call(prog, BPF_FUNC_redirect);
    emit_exit(prog);
}

/* Loads the packet's bounds and jumps when it is shorter than `length`; land() says where to. */
static size_t emit_bounds(struct program *prog, size_t length)
{
    emit(prog, BPF_LDX | BPF_MEM | BPF_W, DATA, 1, offsetof(struct xdp_md, data), 0);
    emit(prog, BPF_LDX | BPF_MEM | BPF_W, END, 1, offsetof(struct xdp_md, data_end), 0);
    emit_alu_reg(prog, BPF_MOV, SCRATCH, DATA);
    emit_alu(prog, BPF_ADD, SCRATCH, (__s32)length);
    emit(prog, BPF_JMP | BPF_JGT | BPF_X, SCRATCH, END, 0, 0);
    return prog->count - 1;
}

static void land(struct program *prog, size_t jump)
{
    prog->insns[jump].off = (__s16)(prog->count - jump - 1);
}

static int load(const struct program *prog, enum bpf_prog_type type)
{
    static char log[16384];
    LIBBPF_OPTS(bpf_prog_load_opts, opts, .log_buf = log, .log_size = sizeof(log));
    int fd = bpf_prog_load(type, "framegen", "GPL", prog->insns, prog->count, &opts);

    if (fd < 0)
        fprintf(stderr, "framegen: the program is refused: %s\n%s", strerror(errno), log);
    return fd;
}

/*
 * LOW and HIGH of the next frame's flow. One number after the other would suit the caches; these go through
 * all flows once, and then again, in an order that has no pattern: each step can be undone, so none comes
 * twice.
 */
static void emit_next_flow(struct program *prog, const struct flows *flows, int progress)
{
    int bits = __builtin_ctz(flows->count);

    emit_imm64(prog, VALUE, BPF_PSEUDO_MAP_VALUE, (__u64)progress);
    emit(prog, BPF_LDX | BPF_MEM | BPF_DW, LOW, VALUE, offsetof(struct progress, flow), 0);
    emit_alu_reg(prog, BPF_MOV, HIGH, LOW);
    emit_alu(prog, BPF_ADD, HIGH, 1);
    emit(prog, BPF_STX | BPF_MEM | BPF_DW, VALUE, HIGH, offsetof(struct progress, flow), 0);
    emit_alu(prog, BPF_RSH, LOW, (__s32)flows->train);
    for (int round = 0; round < 2; round++) {
        emit_alu(prog, BPF_MUL, LOW, round ? 0x2545F491 : 0x1E3779B1); /* odd */
        emit_alu(prog, BPF_AND, LOW, (__s32)flows->count - 1);
        emit_alu_reg(prog, BPF_MOV, HIGH, LOW);
        emit_alu(prog, BPF_RSH, HIGH, bits / 2 + 1);
        emit_alu_reg(prog, BPF_XOR, LOW, HIGH);
    }
    emit_alu_reg(prog, BPF_MOV, HIGH, LOW);
    emit_alu(prog, BPF_RSH, HIGH, LOW_BITS);
    emit_alu(prog, BPF_AND, LOW, (1 << LOW_BITS) - 1);
}

/* Counts the frame, and pauses at every one that begins a slice of 1 << bits. */
static void emit_progress(struct program *prog, int progress, int bits)
{
    size_t within, loop;

    emit_imm64(prog, HIGH, BPF_PSEUDO_MAP_VALUE, (__u64)progress);
    emit(prog, BPF_LDX | BPF_MEM | BPF_DW, LOW, HIGH, offsetof(struct progress, frames), 0);
    emit_alu_reg(prog, BPF_MOV, VALUE, LOW);
    emit_alu(prog, BPF_ADD, VALUE, 1);
    emit(prog, BPF_STX | BPF_MEM | BPF_DW, HIGH, VALUE, offsetof(struct progress, frames), 0);
    emit(prog, BPF_JMP | BPF_JSET | BPF_K, LOW, 0, 0, (1 << bits) - 1);
    within = prog->count - 1;
    emit_alu(prog, BPF_RSH, LOW, bits);
    emit_alu(prog, BPF_AND, LOW, SLICES_MAX - 1);
    emit_alu(prog, BPF_MUL, LOW, sizeof(struct pause));
    emit_alu_reg(prog, BPF_ADD, HIGH, LOW);
    emit_call(prog, BPF_FUNC_ktime_get_ns);
    emit(prog, BPF_STX | BPF_MEM | BPF_DW, HIGH, 0,
         offsetof(struct progress, pauses) + offsetof(struct pause, before), 0);
    /* Five registers, independent of each other: as much at once as a core can do. */
    for (__u8 reg = 1; reg <= 5; reg++)
        emit_alu(prog, BPF_MOV, reg, reg);
    emit_alu(prog, BPF_MOV, ROUND, PAUSE_ROUNDS);
    loop = prog->count;
    for (int i = 0; i < PAUSE_INSNS; i++)
        emit_alu(prog, BPF_ADD, (__u8)(1 + i % 5), 1 + i);
    emit_alu(prog, BPF_SUB, ROUND, 1);
    emit(prog, BPF_JMP | BPF_JNE | BPF_K, ROUND, 0, (__s16)(loop - prog->count - 1), 0);
    emit_call(prog, BPF_FUNC_ktime_get_ns);
    emit(prog, BPF_STX | BPF_MEM | BPF_DW, HIGH, 0,
         offsetof(struct progress, pauses) + offsetof(struct pause, after), 0);
    land(prog, within);
}

static void emit_field(struct program *prog, const struct field *field, const unsigned char *frame)
{
    int base = frame[field->at] << 8 | frame[field->at + 1];

    emit_alu_reg(prog, BPF_MOV, VALUE, field->part == 'h' ? HIGH : LOW);
    if (field->sign == '-')
        emit_alu(prog, BPF_XOR, VALUE, 0xffff);
    emit_alu(prog, BPF_ADD, VALUE, base);
    emit_alu_reg(prog, BPF_MOV, SCRATCH, VALUE);
    emit_alu(prog, BPF_RSH, SCRATCH, 16);
    emit_alu_reg(prog, BPF_ADD, VALUE, SCRATCH);
    emit(prog, BPF_ALU | BPF_END | BPF_TO_BE, VALUE, 0, 0, 16);
    emit(prog, BPF_STX | BPF_MEM | BPF_H, DATA, VALUE, (__s16)field->at, 0);
}

/*
 * Takes off the first ROOM bytes, writes the headers anew and sends the frame. The kernel hands out the same
 * pages again and again, as the last receiver left them: with a TTL one less each time, say.
 */
int load_sender(const unsigned char *frame, size_t length, int ifindex, const struct flows *flows,
                int progress)
{
    size_t headers = length < REWRITE_MAX ? length : REWRITE_MAX, at = 0, jump;
    struct program prog = {.count = 0};

    emit_alu_reg(&prog, BPF_MOV, CONTEXT, 1);
    emit_alu(&prog, BPF_MOV, 2, ROOM);
    emit_call(&prog, BPF_FUNC_xdp_adjust_head);
    emit_alu_reg(&prog, BPF_MOV, 1, CONTEXT);
    jump = emit_bounds(&prog, headers);
    for (; at + 8 <= headers; at += 8) {
        __u64 word = 0;

        memcpy(&word, frame + at, sizeof(word));
        emit_imm64(&prog, VALUE, 0, word);
        emit(&prog, BPF_STX | BPF_MEM | BPF_DW, DATA, VALUE, (__s16)at, 0);
    }
    for (; at < headers; at++)
        emit(&prog, BPF_ST | BPF_MEM | BPF_B, DATA, 0, (__s16)at, frame[at]);
    if (flows->used) {
        emit_next_flow(&prog, flows, progress);
        for (size_t i = 0; i < flows->used; i++)
            emit_field(&prog, &flows->fields[i], frame);
    }
    land(&prog, jump);
    emit_progress(&prog, progress, SLICE_BITS);
    emit_redirect(&prog, ifindex);
    return load(&prog, BPF_PROG_TYPE_XDP);
}

int load_pauses(int progress)
{
    struct program prog = {.count = 0};

    emit_progress(&prog, progress, 0);
    emit_alu(&prog, BPF_MOV, 0, XDP_DROP);
    emit_exit(&prog);
    return load(&prog, BPF_PROG_TYPE_XDP);
}

/* As the product does it: a hash of devices, so that the floor pays for the same lookup. */
int load_xdp_redirect(int ifindex)
{
    struct program prog = {.count = 0};
    int map = bpf_map_create(BPF_MAP_TYPE_DEVMAP_HASH, "framegen", 4, 4, 256, NULL);

    if (map < 0 || bpf_map_update_elem(map, &ifindex, &ifindex, BPF_ANY) != 0) {
        fail("a map of devices", errno);
        return -1;
    }
    emit_imm64(&prog, 1, BPF_PSEUDO_MAP_FD, (__u64)map);
    emit_alu(&prog, BPF_MOV, 2, ifindex);
    emit_alu(&prog, BPF_MOV, 3, 0);
    emit_call(&prog, BPF_FUNC_redirect_map);
    emit_exit(&prog);
    return load(&prog, BPF_PROG_TYPE_XDP);
}

int load_tc_redirect(int ifindex)
{
    struct program prog = {.count = 0};

    emit_redirect(&prog, ifindex);
    return load(&prog, BPF_PROG_TYPE_SCHED_CLS);
}

int load_sink(const struct match *match, int *counter)
{
    struct program prog = {.count = 0};
    size_t too_short, wrong_type, wrong_proto, no_value;
    /* Offset of IPv6's next header or of IPv4's protocol, which may be behind a tag or a PPPoE header. */
    __s16 proto = match->ethertype == ETH_P_IPV6      ? ETH_HLEN + 6
                  : match->ethertype == ETH_P_8021Q   ? ETH_HLEN + 4 + 9
                  : match->ethertype == ETH_P_PPP_SES ? ETH_HLEN + 8 + 9
                                                      : ETH_HLEN + 9;

    *counter = bpf_map_create(BPF_MAP_TYPE_PERCPU_ARRAY, "framegen", 4, 8, 1, NULL);
    if (*counter < 0) {
        fail("a counter", errno);
        return -1;
    }
    too_short = emit_bounds(&prog, ETH_HLEN + 20);
    emit(&prog, BPF_LDX | BPF_MEM | BPF_H, VALUE, DATA, 12, 0);
    emit(&prog, BPF_JMP | BPF_JNE | BPF_K, VALUE, 0, 0, htons(match->ethertype));
    wrong_type = prog.count - 1;
    emit(&prog, BPF_LDX | BPF_MEM | BPF_B, VALUE, DATA, proto, 0);
    emit(&prog, BPF_JMP | BPF_JNE | BPF_K, VALUE, 0, 0, match->proto);
    wrong_proto = prog.count - 1;
    emit(&prog, BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -4, 0);
    emit_alu_reg(&prog, BPF_MOV, 2, BPF_REG_10);
    emit_alu(&prog, BPF_ADD, 2, -4);
    emit_imm64(&prog, 1, BPF_PSEUDO_MAP_FD, (__u64)*counter);
    emit_call(&prog, BPF_FUNC_map_lookup_elem);
    emit(&prog, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 0, 0);
    no_value = prog.count - 1;
    emit(&prog, BPF_LDX | BPF_MEM | BPF_DW, COUNT, 0, 0, 0);
    emit_alu(&prog, BPF_ADD, COUNT, 1);
    emit(&prog, BPF_STX | BPF_MEM | BPF_DW, 0, COUNT, 0, 0);
    emit_alu(&prog, BPF_MOV, 0, XDP_DROP);
    emit_exit(&prog);
    land(&prog, too_short);
    land(&prog, wrong_type);
    land(&prog, wrong_proto);
    land(&prog, no_value);
    emit_alu(&prog, BPF_MOV, 0, XDP_PASS);
    emit_exit(&prog);
    return load(&prog, BPF_PROG_TYPE_XDP);
}

int load_flush_counter(int map, int ifindex_offset, int pid)
{
    struct program prog = {.count = 0};
    size_t other, own;

    emit_alu_reg(&prog, BPF_MOV, LOW, 1);
    emit_call(&prog, BPF_FUNC_get_current_pid_tgid);
    emit_alu(&prog, BPF_RSH, 0, 32);
    emit(&prog, BPF_JMP | BPF_JNE | BPF_K, 0, 0, 0, pid);
    other = prog.count - 1;
    /* Arguments of the tracepoint: from, to, sent, drops, err. */
    emit(&prog, BPF_LDX | BPF_MEM | BPF_DW, 3, LOW, 0, 0);
    emit_alu(&prog, BPF_ADD, 3, ifindex_offset);
    emit_alu(&prog, BPF_MOV, 2, 4);
    emit_alu_reg(&prog, BPF_MOV, 1, BPF_REG_10);
    emit_alu(&prog, BPF_ADD, 1, -8);
    emit_call(&prog, BPF_FUNC_probe_read_kernel);
    emit(&prog, BPF_LDX | BPF_MEM | BPF_W, 1, BPF_REG_10, -8, 0);
    emit(&prog, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0, 1); /* the loopback device is 1 in every namespace */
    own = prog.count - 1;
    emit_imm64(&prog, HIGH, BPF_PSEUDO_MAP_VALUE, (__u64)map);
    for (__s16 at = 0; at < 24; at += 8) {
        if (at == 0)
            emit_alu(&prog, BPF_MOV, 1, 1);
        else
            emit(&prog, BPF_LDX | BPF_MEM | BPF_DW, 1, LOW, (__s16)(at + 8), 0);
        emit(&prog, BPF_LDX | BPF_MEM | BPF_DW, 2, HIGH, at, 0);
        emit_alu_reg(&prog, BPF_ADD, 2, 1);
        emit(&prog, BPF_STX | BPF_MEM | BPF_DW, HIGH, 2, at, 0);
    }
    land(&prog, other);
    land(&prog, own);
    emit_alu(&prog, BPF_MOV, 0, 0);
    emit_exit(&prog);
    return load(&prog, BPF_PROG_TYPE_RAW_TRACEPOINT);
}
