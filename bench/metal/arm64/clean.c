/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clean: DC CIVAC over 1 GiB by hvmem_cache_range() at EL2: lines issued, most lines between two looks at
 * whether the CPU is wanted, and ticks of the counter, which under -icount are instructions. A part of it is
 * cleaned under the EL2 monitor, where each line's instruction traps: every line of it once, in order, and no
 * other. Fails where a count is not exact. mib=N cleans less; most=N: instructions that 1000 lines may take,
 * under -icount.
 */
#include "hosts/metal/arm64/cpu.h"
#include "hosts/metal/arm64/monitor.h"
#include "hosts/metal/common/host.h"
#include "test/metal/subject.h"

#include <hvmem/cache.h>

#define TRAPPED_BYTES (1ull << 20)
#define LOG_MAX       ((unsigned)(TRAPPED_BYTES / 64))

static struct metal_host host;
static struct hvmem_host_ops ops;
static struct hvmem_backend backend;
static struct hvmem_backend_ops backend_ops;
static struct hvmem_heap *heap;
static struct metal_monitor_op log[LOG_MAX];

static uint64_t lines, since, longest, looks; /* since: the last look */
static uint32_t wanted;                       /* what the host answers */

static hvmem_status spy_dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                               hvmem_size bytes)
{
    const uint64_t n = bytes / be->caps.dline;

    lines += n;
    since += n;
    if (since > longest)
        longest = since;
    return subject_backend()->ops->dcache(be, op, addr, bytes);
}

static HVMEM_CALLBACK hvmem_u32 look(void *context)
{
    (void)context;
    looks++;
    since = 0;
    return wanted;
}

/* A heap without a bank: what is cleaned need not be its. */
static int heap_make(void)
{
    struct hvmem_config config;
    hvmem_size bytes = 0;

    backend = *subject_backend();
    backend_ops = *backend.ops;
    backend_ops.dcache = spy_dcache;
    backend.ops = &backend_ops;
    metal_host_ops(&ops);
    ops.yield_wanted = look;
    hvmem_config_default(&config);
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 1;
    config.host = &ops;
    config.host_ctx = &host;
    config.backend = &backend;
    return hvmem_heap_size(&config, &bytes) == HVMEM_OK &&
           hvmem_heap_init(metal_pages(bytes, METAL_PAGE_BYTES), bytes, &config, &heap) == HVMEM_OK;
}

/* Where that much RAM lies in one piece; 0: nowhere. */
static uint64_t ram_of(uint64_t bytes)
{
    const struct metal_boot *boot = metal_boot_info();

    for (uint32_t i = 0; i < boot->mem_count; i++)
        if (boot->mem[i].bytes >= bytes)
            return boot->mem[i].base;
    return 0;
}

struct range {
    hvmem_mfn mfn;
    uint64_t bytes, calls;
    hvmem_status status;
};

static void clean_range(void *arg)
{
    struct range *r = arg;
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};

    r->calls = 0;
    do {
        r->status = hvmem_cache_range(heap, r->mfn, r->bytes >> METAL_PAGE_SHIFT,
                                      HVMEM_DC_CLEAN_INVALIDATE, 0, &cursor);
        r->calls++;
    } while (r->status == HVMEM_AGAIN);
}

/* 1: each line was cleaned once, from the first to the last. */
static int trapped(struct range *r)
{
    static struct metal_monitor_el2 el2;
    const uint64_t line = backend.caps.dline, expected = r->bytes / line;
    const int64_t count = metal_monitor_record_el2(clean_range, r, &el2, log, LOG_MAX);

    if (r->status != HVMEM_OK || count < 0 || (uint64_t)count != expected || expected > LOG_MAX)
        return 0;
    for (uint64_t i = 0; i < expected; i++)
        if (log[i].op.crn != 7 || log[i].op.crm != 14 || log[i].op.op1 != 3 || log[i].op.op2 != 1 ||
            log[i].operand != (r->mfn << METAL_PAGE_SHIFT) + i * line)
            return 0;
    return 1;
}

static int clean(void)
{
    const uint64_t bytes = metal_arg_u64("mib", 1024) << 20;
    struct range all, part;
    uint64_t begin, ticks, expected;

    if (!is_plain_el2() || bytes < TRAPPED_BYTES || ram_of(bytes) == 0 || !heap_make()) {
        metal_printf("clean: needs EL2 and that much RAM on one node\n");
        return 1;
    }
    all = (struct range){.mfn = ram_of(bytes) >> METAL_PAGE_SHIFT, .bytes = bytes};
    part = all;
    part.bytes = TRAPPED_BYTES;
    expected = bytes / backend.caps.dline;
    begin = metal_cycles();
    clean_range(&all);
    ticks = metal_cycles() - begin;
    metal_printf("clean: lines %llu expected %llu stretch %llu looks %llu ticks %llu\n",
                 (unsigned long long)lines, (unsigned long long)expected,
                 (unsigned long long)longest, (unsigned long long)looks, (unsigned long long)ticks);
    if (all.status != HVMEM_OK || all.calls != 1 || lines != expected ||
        longest > HVMEM_CACHE_STRETCH || looks < expected / HVMEM_CACHE_STRETCH - 1 ||
        ticks * 16 * 1000 / lines > metal_arg_u64("most", ~0ull))
        return 1;
    /* Wanted at every look: each call stops there, and goes on where it stopped. */
    wanted = 1;
    lines = longest = since = 0;
    clean_range(&all);
    if (all.status != HVMEM_OK || all.calls != expected / HVMEM_CACHE_STRETCH ||
        lines != expected || longest > HVMEM_CACHE_STRETCH)
        return 1;
    if (!trapped(&part)) {
        metal_printf("clean: the lines that trapped are not those asked for\n");
        return 1;
    }
    metal_printf("clean: %u of %u lines trapped in order, %llu calls where the CPU was wanted\n",
                 LOG_MAX, LOG_MAX, (unsigned long long)all.calls);
    return 0;
}

METAL_PROGRAM(clean, clean);
