/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cost of cache maintenance and zeroing by address, through a back-end: the same loops in the metal image
 * and in user space. Freestanding; the runner brings memory, a clock and the printing.
 */
#ifndef BENCH_COST_BODY_H
#define BENCH_COST_BODY_H

#include <hvmem/backend.h>

#define COST_ROUNDS 15u

enum cost_kind {
    COST_CLEAN,
    COST_CLEAN_INVALIDATE,
    COST_INVALIDATE,
    COST_CLEAN_POU,
    COST_ICACHE,
    COST_ZERO,
    COST_STORES, /* to compare zeroing with */
    COST_KINDS
};

static inline const char *cost_words(enum cost_kind kind)
{
    switch (kind) {
    case COST_CLEAN:
        return "D-cache, clean";
    case COST_CLEAN_INVALIDATE:
        return "D-cache, clean and invalidate";
    case COST_INVALIDATE:
        return "D-cache, invalidate";
    case COST_CLEAN_POU:
        return "D-cache, clean for fetch";
    case COST_ICACHE:
        return "I-cache";
    case COST_ZERO:
        return "zeroing, back-end";
    case COST_STORES:
        return "zeroing, plain stores";
    case COST_KINDS:
    default:
        return "?";
    }
}

static inline hvmem_status cost_run(struct hvmem_backend *be, enum cost_kind kind, void *at,
                                    hvmem_size bytes)
{
    volatile hvmem_u64 *words = at;
    hvmem_size i;

    switch (kind) {
    case COST_CLEAN:
        return be->ops->dcache(be, HVMEM_DC_CLEAN, (hvmem_uptr)at, bytes);
    case COST_CLEAN_INVALIDATE:
        return be->ops->dcache(be, HVMEM_DC_CLEAN_INVALIDATE, (hvmem_uptr)at, bytes);
    case COST_INVALIDATE:
        return be->ops->dcache(be, HVMEM_DC_INVALIDATE, (hvmem_uptr)at, bytes);
    case COST_CLEAN_POU:
        return be->ops->dcache(be, HVMEM_DC_CLEAN_POU, (hvmem_uptr)at, bytes);
    case COST_ICACHE:
        return be->ops->icache(be, (hvmem_uptr)at, bytes);
    case COST_ZERO:
        return be->ops->zero(be, (hvmem_uptr)at, bytes);
    case COST_STORES:
        for (i = 0; i < bytes / 8; i++)
            words[i] = 0;
        return HVMEM_OK;
    case COST_KINDS:
    default:
        return HVMEM_E_ARG;
    }
}

/*
 * Least time, in ticks of `now`, of the operation on [at, at + bytes), each line of which was written
 * before every round. Returns what the back-end answers.
 */
static inline hvmem_status cost_measure(struct hvmem_backend *be, enum cost_kind kind, void *at,
                                        hvmem_size bytes, hvmem_u64 (*now)(void), hvmem_u64 *least)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 round;

    *least = ~(hvmem_u64)0;
    for (round = 0; round < COST_ROUNDS && status == HVMEM_OK; round++) {
        hvmem_u64 begin, passed;
        hvmem_size i;

        for (i = 0; i < bytes; i += 16)
            ((volatile hvmem_u64 *)at)[i / 8] = round;
        begin = now();
        status = cost_run(be, kind, at, bytes);
        passed = now() - begin;
        if (passed < *least)
            *least = passed;
    }
    return status;
}

#endif
