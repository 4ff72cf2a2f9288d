// SPDX-License-Identifier: GPL-2.0-only
#include "framegen.h"

#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SAMPLE_NS = 20011, /* prime: not in step with batches */
    SAMPLE_PAGES = 512,
    SAMPLE_S = 2, /* what the ring has room for */
    SAMPLED_CPUS = 64,
    PAGE = 4096,
};

int sampler_open(struct sampler *sampler, int cpu, int idle)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = SAMPLE_NS,
        .sample_type = PERF_SAMPLE_IP,
        .disabled = 1,
        .exclude_idle = !idle,
    };

    sampler->fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (sampler->fd < 0)
        return fail("perf_event_open", errno);
    sampler->ring = mmap(NULL, (SAMPLE_PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, sampler->fd, 0);
    return sampler->ring == MAP_FAILED ? fail("the ring of samples", errno) : 0;
}

void sampler_enable(const struct sampler *sampler, int on)
{
    ioctl(sampler->fd, on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
}

/* This program's own programs, as /proc/kallsyms has them: it forgets them when this process ends. */
static void write_symbols(FILE *to)
{
    FILE *symbols = fopen("/proc/kallsyms", "r");
    char line[512];

    while (symbols && fgets(line, sizeof(line), symbols))
        if (strstr(line, "_framegen"))
            fputs(line, to);
    if (symbols)
        fclose(symbols);
}

/* The ring is never read while it fills, and so never wraps: what does not fit is lost and noticed. */
static void write_samples(const struct sampler *sampler, FILE *file)
{
    const char *data = (const char *)sampler->ring + PAGE;
    const struct perf_event_mmap_page *ring = sampler->ring;
    __u64 head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE);

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
}

int sampler_write(const struct sampler *samplers, int count, const char *path)
{
    FILE *file = fopen(path, "w");

    if (!file)
        return fail(path, errno);
    for (int i = 0; i < count; i++)
        write_samples(&samplers[i], file);
    write_symbols(file);
    return fclose(file) == 0 ? 0 : fail(path, errno);
}

int cmd_sample(int argc, char **argv)
{
    static struct sampler samplers[SAMPLED_CPUS];
    const double seconds = argc == 2 ? strtod(argv[0], NULL) : 0;
    const int count = (int)sysconf(_SC_NPROCESSORS_ONLN);

    if (seconds <= 0 || seconds > SAMPLE_S) {
        fputs(usage, stderr);
        return 2;
    }
    if (count > SAMPLED_CPUS)
        return fail("sample: only so many processors can be sampled", E2BIG);
    for (int i = 0; i < count; i++)
        if (sampler_open(&samplers[i], i, 0) != 0)
            return 1;
    for (int i = 0; i < count; i++)
        sampler_enable(&samplers[i], 1);
    usleep((useconds_t)(seconds * 1e6));
    for (int i = 0; i < count; i++)
        sampler_enable(&samplers[i], 0);
    return sampler_write(samplers, count, argv[1]);
}
