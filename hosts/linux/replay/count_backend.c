/* SPDX-License-Identifier: BSD-2-Clause */
/* The counting back-end: checks of the contract, counts; only `zero` really does something. */
#include "count_backend.h"

#include <stdlib.h>
#include <string.h>

static struct count_backend *self_of(struct hvmem_backend *backend)
{
    return backend->ctx;
}

static void count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static hvmem_status refuse(struct count_backend *self, hvmem_status status)
{
    count(&self->refused, 1);
    return status;
}

static hvmem_status check_range(const struct hvmem_tlb_range *range, hvmem_u32 page_shift)
{
    hvmem_u64 page = (hvmem_u64)1 << page_shift;

    if (range->stride_shift < page_shift || range->stride_shift > 63 || range->pages == 0 ||
        (range->flags & ~(HVMEM_RANGE_LEAF | HVMEM_RANGE_GLOBAL)) != 0)
        return HVMEM_E_ARG;
    if (range->start % page != 0)
        return HVMEM_E_ALIGN;
    if (range->pages > (UINT64_MAX - range->start) >> page_shift)
        return HVMEM_E_RANGE;
    return HVMEM_OK;
}

static hvmem_status take_ranges(struct count_backend *self, const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 page_shift = self->backend.caps.page_shift;
    uint64_t strides = 0;
    hvmem_u32 i;

    if (flush->ranges == NULL && flush->count != 0)
        return refuse(self, HVMEM_E_ARG);
    for (i = 0; i < flush->count; i++) {
        const struct hvmem_tlb_range *range = &flush->ranges[i];
        hvmem_status status = check_range(range, page_shift);

        if (status != HVMEM_OK)
            return refuse(self, status);
        strides += ((range->pages - 1) >> (range->stride_shift - page_shift)) + 1;
    }
    count(&self->ranges, 1);
    count(&self->pages, strides);
    return HVMEM_OK;
}

static hvmem_status op_tlb_flush(struct hvmem_backend *backend, const struct hvmem_tlb_flush *flush)
{
    struct count_backend *self = self_of(backend);
    hvmem_u64 features = backend->caps.features;

    if (flush == NULL || flush->size != sizeof *flush || flush->what > HVMEM_FLUSH_REGIME ||
        flush->scope > HVMEM_SCOPE_OUTER || flush->space.regime > HVMEM_REGIME_GUEST)
        return refuse(self, HVMEM_E_ARG);
    if ((flush->scope == HVMEM_SCOPE_INNER && (features & HVMEM_CAP_BROADCAST) == 0) ||
        (flush->scope == HVMEM_SCOPE_OUTER && (features & HVMEM_CAP_OUTER) == 0))
        return refuse(self, HVMEM_E_UNSUPPORTED);
    if (flush->what == HVMEM_FLUSH_RANGES) {
        hvmem_status status = take_ranges(self, flush);

        if (status != HVMEM_OK)
            return status;
    } else {
        count(&self->all, 1);
    }
    if (flush->scope != HVMEM_SCOPE_LOCAL)
        count(&self->broadcast, 1);
    return self->forward != NULL ? self->forward(self->recorders, flush) : HVMEM_OK;
}

static hvmem_status op_dcache(struct hvmem_backend *backend, hvmem_u32 op, hvmem_uptr addr,
                              hvmem_size bytes)
{
    if (op > HVMEM_DC_CLEAN_POU)
        return refuse(self_of(backend), HVMEM_E_ARG);
    if (addr + bytes < addr)
        return refuse(self_of(backend), HVMEM_E_RANGE);
    count(&self_of(backend)->dcache_bytes, bytes);
    return HVMEM_OK;
}

static hvmem_status op_icache(struct hvmem_backend *backend, hvmem_uptr addr, hvmem_size bytes)
{
    if (addr + bytes < addr)
        return refuse(self_of(backend), HVMEM_E_RANGE);
    count(&self_of(backend)->icache, 1);
    return HVMEM_OK;
}

static hvmem_status op_icache_all(struct hvmem_backend *backend, hvmem_u32 scope)
{
    if (scope > HVMEM_SCOPE_INNER)
        return refuse(self_of(backend), HVMEM_E_ARG);
    count(&self_of(backend)->icache, 1);
    return HVMEM_OK;
}

static hvmem_status op_zero(struct hvmem_backend *backend, hvmem_uptr addr, hvmem_size bytes)
{
    if (addr % 64 != 0 || bytes % 64 != 0)
        return refuse(self_of(backend), HVMEM_E_ALIGN);
    memset((void *)addr, 0, bytes);
    count(&self_of(backend)->zeroed_bytes, bytes);
    return HVMEM_OK;
}

static const struct hvmem_backend_ops count_ops = {.size = sizeof(struct hvmem_backend_ops),
                                                   .tlb_flush = op_tlb_flush,
                                                   .dcache = op_dcache,
                                                   .icache = op_icache,
                                                   .icache_all = op_icache_all,
                                                   .zero = op_zero};

void count_backend_init(struct count_backend *counter, hvmem_u64 features)
{
    memset(counter, 0, sizeof *counter);
    counter->backend.ops = &count_ops;
    counter->backend.ctx = counter;
    counter->backend.caps.size = sizeof counter->backend.caps;
    counter->backend.caps.page_shift = 12;
    counter->backend.caps.features = features;
    counter->backend.caps.dline = 64;
    counter->backend.caps.iline = 64;
}

void count_backend_clear(struct count_backend *counter)
{
    atomic_store(&counter->all, 0);
    atomic_store(&counter->ranges, 0);
    atomic_store(&counter->pages, 0);
    atomic_store(&counter->broadcast, 0);
    atomic_store(&counter->icache, 0);
    atomic_store(&counter->dcache_bytes, 0);
    atomic_store(&counter->zeroed_bytes, 0);
    atomic_store(&counter->refused, 0);
}
