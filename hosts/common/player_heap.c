/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of a trace as calls of hvmem: blocks by order, recorded flushes as back-end requests. */
#include "player_heap.h"

static HVMEM_CALLBACK hvmem_status heap_alloc(void *ctx, hvmem_u32 cpu, hvmem_u32 order,
                                              hvmem_u32 use, hvmem_u64 *handle)
{
    struct replay_heap *self = ctx;
    struct hvmem_request request = {0};

    (void)cpu;
    if (self->user == (void *)0 || (use & REPLAY_USE_MASK) != REPLAY_USE_USER)
        return hvmem_alloc_order(self->heap, order, handle);
    request.size = sizeof request;
    request.flags = self->user_flags;
    request.order = order;
    request.node = HVMEM_NODE_ANY;
    request.domain = self->user;
    return hvmem_alloc(self->heap, &request, handle);
}

static HVMEM_CALLBACK hvmem_status heap_free(void *ctx, hvmem_u32 cpu, hvmem_u32 order,
                                             hvmem_u64 handle)
{
    struct replay_heap *self = ctx;

    (void)cpu;
    return hvmem_free(self->heap, handle, order);
}

/* One recorded flush, as it runs on each CPU that shall forget. */
struct flush_job {
    struct hvmem_backend *backend;
    struct hvmem_tlb_flush flush;
    struct hvmem_tlb_range range;
    hvmem_status status; /* of any CPU that failed */
};

static HVMEM_CALLBACK void run_flush(void *arg)
{
    struct flush_job *job = arg;
    hvmem_status status = job->backend->ops->tlb_flush(job->backend, &job->flush);

    if (status != HVMEM_OK)
        __atomic_store_n(&job->status, status, __ATOMIC_RELAXED);
}

/* Page-sized leaf entries, as those of processes are; tables are not freed by a recorded flush. */
static void fill_job(struct flush_job *job, const struct replay_heap *self, hvmem_u32 pages)
{
    job->backend = self->backend;
    job->flush.size = sizeof job->flush;
    job->flush.what = pages == REPLAY_FULL ? HVMEM_FLUSH_ALL : HVMEM_FLUSH_RANGES;
    job->flush.scope = HVMEM_SCOPE_LOCAL;
    job->flush.space.regime = HVMEM_REGIME_HOST;
    if (pages == REPLAY_FULL)
        return;
    job->range.start = self->window;
    job->range.pages = pages;
    job->range.stride_shift = (hvmem_u8)self->backend->caps.page_shift;
    job->range.level = 3;
    job->range.flags = HVMEM_RANGE_LEAF;
    job->flush.ranges = &job->range;
    job->flush.count = 1;
}

static HVMEM_CALLBACK hvmem_status heap_flush(void *ctx, hvmem_u32 cpu, hvmem_u32 what,
                                              hvmem_u32 pages)
{
    struct replay_heap *self = ctx;
    struct flush_job job = {0};
    struct hvmem_cpuset set = {0};
    hvmem_u64 word;
    hvmem_status status;

    if (self->backend == (void *)0)
        return HVMEM_OK;
    fill_job(&job, self, pages);
    if (what == REPLAY_LOCAL) {
        run_flush(&job);
        return job.status;
    }
    if (!self->call_cpus)
        return HVMEM_E_UNSUPPORTED;
    word = (self->cpus >= 64 ? ~(hvmem_u64)0 : ((hvmem_u64)1 << self->cpus) - 1) &
           ~((hvmem_u64)1 << cpu);
    set.words = &word;
    set.cpus = self->cpus;
    status = self->call_cpus(self->host, &set, run_flush, &job);
    return status != HVMEM_OK ? status : __atomic_load_n(&job.status, __ATOMIC_RELAXED);
}

static HVMEM_CALLBACK hvmem_u64 heap_now(void *ctx)
{
    struct replay_heap *self = ctx;

    return self->clock(self->host);
}

static HVMEM_CALLBACK void heap_relax(void *ctx)
{
    struct replay_heap *self = ctx;

    self->wait_turn(self->host);
}

void replay_heap_ops(struct replay_ops *ops)
{
    ops->alloc = heap_alloc;
    ops->free = heap_free;
    ops->flush = heap_flush;
    ops->now = heap_now;
    ops->relax = heap_relax;
}
