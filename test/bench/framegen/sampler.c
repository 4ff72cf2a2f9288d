// SPDX-License-Identifier: GPL-2.0-only
#include "framegen.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SAMPLE_NS = 20011, /* prime: not in step with batches */
    SAMPLE_PAGES = 512,
    PAGE = 4096,
};

int sampler_open(struct sampler *sampler, int idle)
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

    sampler->fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
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
int sampler_write(const struct sampler *sampler, const char *path)
{
    const char *data = (const char *)sampler->ring + PAGE;
    const struct perf_event_mmap_page *ring = sampler->ring;
    __u64 head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE);
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
    write_symbols(file);
    if (head + PAGE > SAMPLE_PAGES * PAGE)
        fprintf(stderr, "framegen: more samples than fit: the last ones are missing\n");
    return fclose(file) == 0 ? 0 : fail(path, errno);
}
