// SPDX-License-Identifier: GPL-2.0-only
/* Which slices of a round nobody disturbed. */
#include "framegen.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    CALM_SLICES = 5,  /* less are too few */
    TOLERANCE = 15,   /* per cent */
    PAUSES = 1 << 10, /* at a time */
};

struct progress *progress_open(int *map)
{
    LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
    void *memory;

    *map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "framegen", 4, sizeof(struct progress), 1, &opts);
    memory = *map < 0 ? MAP_FAILED
                      : mmap(NULL, sizeof(struct progress), PROT_READ | PROT_WRITE, MAP_SHARED, *map, 0);
    if (memory != MAP_FAILED)
        return memory;
    fail("a map for the generator's progress", errno);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static __u64 pause_of(const struct progress *progress, __u64 number)
{
    return progress->pauses[number].after - progress->pauses[number].before;
}

/* Hardly longer than `least`: nobody disturbed it. */
static int is_undisturbed(__u64 pause, __u64 least)
{
    return pause * 100 <= least * (100 + TOLERANCE);
}

static __u64 shortest(const struct progress *progress, __u64 count)
{
    __u64 least = ~0ULL;

    for (__u64 i = 0; i < count; i++)
        least = pause_of(progress, i) < least ? pause_of(progress, i) : least;
    return least;
}

/* Those between two pauses that took hardly longer than the shortest; of a round whose shortest took long
 * already, none. (The shortest of the round, since it depends a little on where the program lies in memory.)
 */
struct calm calm_of(const struct progress *progress, __u64 undisturbed)
{
    static double slices[SLICES_MAX];
    __u64 pauses = (progress->frames + (1 << SLICE_BITS) - 1) >> SLICE_BITS;
    struct calm calm = {0};
    size_t count = 0;

    if (pauses < 2 || pauses > SLICES_MAX)
        return calm;
    calm.loop = shortest(progress, pauses);
    if (undisturbed && !is_undisturbed(calm.loop, undisturbed))
        return calm;
    for (__u64 i = 0; i + 1 < pauses; i++)
        if (is_undisturbed(pause_of(progress, i), calm.loop) &&
            is_undisturbed(pause_of(progress, i + 1), calm.loop))
            slices[count++] = (double)(progress->pauses[i + 1].before - progress->pauses[i].after);
    qsort(slices, count, sizeof(slices[0]), by_value);
    if (count >= CALM_SLICES)
        calm.frame = slices[count / 2] / (1 << SLICE_BITS);
    calm.share = (double)count / (double)(pauses - 1);
    return calm;
}

static int run_pauses(int program, struct progress *progress)
{
    char frame[64] = {0};
    LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = sizeof(frame), .repeat = PAUSES);

    progress->frames = 0;
    return bpf_prog_test_run_opts(program, &opts);
}

int is_calm(int program, struct progress *progress, __u64 undisturbed)
{
    size_t calm = 0;

    if (run_pauses(program, progress) != 0)
        return 1;
    for (__u64 i = 0; i < PAUSES; i++)
        calm += is_undisturbed(pause_of(progress, i), undisturbed);
    return calm > PAUSES * 3 / 4;
}

/* The least in so many seconds. */
static int calm_measure(int program, struct progress *progress, double seconds)
{
    __u64 least = ~0ULL, now;
    const __u64 end = clock_ns(CLOCK_MONOTONIC) + (__u64)(seconds * 1e9);

    do {
        int error = run_pauses(program, progress);

        if (error)
            return fail("BPF_PROG_TEST_RUN", error);
        now = shortest(progress, PAUSES);
        least = now < least ? now : least;
    } while (clock_ns(CLOCK_MONOTONIC) < end);
    printf("%llu\n", least);
    return 0;
}

int cmd_calm(int argc, char **argv)
{
    double seconds = argc == 2 ? strtod(argv[1], NULL) : 0;
    struct progress *progress;
    int map, program;

    if (seconds <= 0 || seconds > 3600) {
        fputs(usage, stderr);
        return 2;
    }
    progress = progress_open(&map);
    program = progress && pin_to(atoi(argv[0])) == 0 ? load_pauses(map) : -1;
    return program < 0 ? 1 : calm_measure(program, progress, seconds);
}
