// SPDX-License-Identifier: GPL-2.0-only
#ifndef FRAMEGEN_H
#define FRAMEGEN_H

#include <errno.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

enum {
    FRAME_MAX = 2048,
    /* Longer than any headers measured here; what lies behind them is never written by anyone. */
    REWRITE_MAX = 160,
    /* Bytes before the frame that the program takes off. With the 256 that live frames have anyway there is
     * room for a tunnel's headers: a veth copies what has less than 256 left when it arrives there. */
    ROOM = 64,
    BATCH_MAX = 256, /* BPF_PROG_TEST_RUN's own bound */
    FIELDS_MAX = 8,
    PORTIONS = 20, /* a second, of paced frames */
    /* A flow's number: LOW_BITS of it make ports, the others addresses. */
    LOW_BITS = 14,
    FLOWS_MAX = 1 << 21,
    SLICE_BITS = 10, /* a slice is of 1024 frames: a tenth of a millisecond, or one or two */
    SLICES_MAX = 8192,
};

extern const char usage[];

int fail(const char *what, int error);
__u64 clock_ns(clockid_t clock);
/* From here on this process runs on that processor. */
int pin_to(int cpu);
/* An interface's index in this network namespace; 0, with a message, when there is none. */
int device(const char *name);

/* A 16-bit field that differs from flow to flow: plus or minus a part of the flow's number, in one's
 * complement, so that checksums are such fields as well. */
struct field {
    unsigned int at;
    char sign; /* + or - */
    char part; /* l: the low bits, h: the others */
};

struct flows {
    __u32 count; /* a power of two */
    __u32 train; /* binary logarithm of how many packets of a flow follow each other */
    struct field fields[FIELDS_MAX];
    size_t used;
};

/* What the end counts and drops; all other frames pass. */
struct match {
    __u16 ethertype;
    __u8 proto;
};

/*
 * Shared with the generator's program. Between two slices of frames it times a loop that takes always as
 * long, unless somebody else uses the same core: a neighbour, on the core's other thread.
 */
struct pause {
    __u64 before, after;
};

struct progress {
    __u64 flow;   /* number of the next frame's, before it is shuffled */
    __u64 frames; /* of this round */
    struct pause pauses[SLICES_MAX];
};

/* What a round took, in nanoseconds. */
struct calm {
    double frame; /* each frame of the median calm slice; 0: hardly a slice was calm */
    double share; /* of the slices that were calm */
    __u64 loop;   /* the shortest of the pauses */
};

/* The map, and the same in memory; NULL, with a message. */
struct progress *progress_open(int *map);

/* Descriptors of loaded programs; negative, with a message, when the kernel refuses. */
/* pauses: their loop, and nothing else */
int load_pauses(int progress);
int load_sender(const unsigned char *frame, size_t length, int ifindex, const struct flows *flows,
                int progress);
int load_xdp_redirect(int ifindex);
int load_tc_redirect(int ifindex);
/* counter: gets the map, whose only value is of each processor. */
int load_sink(const struct match *match, int *counter);

/* What routers between generator and end gave to devices at XDP. */
struct flushes {
    __u64 count, sent, dropped;
};

/* A map for flushes_read(), or negative, with a message. */
int flushes_open(void);
struct flushes flushes_read(int map);
int load_flush_counter(int map, int ifindex_offset, int pid);

struct sampler {
    int fd;
    void *ring;
};

/* idle: also while the processor has nothing to do */
int sampler_open(struct sampler *sampler, int cpu, int idle);
void sampler_enable(const struct sampler *sampler, int on);
int sampler_write(const struct sampler *samplers, int count, const char *path);

/* undisturbed: what the loop takes on this processor when nobody disturbs it. */
struct calm calm_of(const struct progress *progress, __u64 undisturbed);
/* Now, as far as a millisecond of pauses tells. program: of load_pauses() */
int is_calm(int program, struct progress *progress, __u64 undisturbed);

int cmd_calm(int argc, char **argv);
int cmd_send(int argc, char **argv);
int cmd_redirect(int argc, char **argv);
int cmd_sample(int argc, char **argv);

#endif
