/* SPDX-License-Identifier: BSD-2-Clause */
/* credit.c: frames charged to a domain in advance, a credit a CPU. */
#include "credit.h"

#include "ageing.h"
#include "clock.h"
#include "testpoint.h"

/* Frames of one credit when it is given: what ages in a queue of single frames, or four large blocks. */
#define CREDIT 2048u
HVMEM_STATIC_ASSERT(CREDIT <= HVMEM_FAST_CREDIT / 2, a_trim_lasts_for_a_while);

void hvmem__credit_close(struct hvmem__pcpu *pc)
{
    struct hvmem_cpu_cache *cpu = &pc->fast;

    if (!cpu->domain)
        return;
    hvmem__credit_unready(pc, 0);
    hvmem__credit_unready(pc, HVMEM__MAG_ORDER1);
    if (cpu->credit) /* without any the domain may be gone */
        hvmem__domain_uncharge(cpu->domain, cpu->credit);
    hvmem__store(&cpu->credit, 0);
    hvmem__store(&cpu->domain, (struct hvmem_domain *)HVMEM_NULL);
    hvmem__pcpu_name_owner(pc);
}

int hvmem__credit_trim(struct hvmem__pcpu *pc)
{
    hvmem_u64 frames = pc->fast.credit;

    if (frames < HVMEM_FAST_CREDIT)
        return 0;
    hvmem__store(&pc->fast.credit, CREDIT);
    hvmem__domain_uncharge(pc->fast.domain, frames - CREDIT);
    return 1;
}

/* Of the oldest blocks as many as can be, within the credit. Inside the section. */
static void make_ready(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order)
{
    struct hvmem_cpu_queue *queue = hvmem__ageing_of(pc, order);
    hvmem_u32 n = hvmem__ageing_plain(heap, queue);

    if (!n && queue->mark > queue->head) { /* flushed for just now */
        hvmem__clock_raise_floor(heap);
        n = hvmem__ageing_plain(heap, queue);
    }
    if (n > pc->fast.credit >> order)
        n = (hvmem_u32)(pc->fast.credit >> order);
    hvmem__store(&pc->fast.credit, pc->fast.credit - ((hvmem_u64)n << order));
    hvmem__store(&queue->ready, queue->head + n);
}

void hvmem__credit_open(struct hvmem_heap *heap, struct hvmem_domain *domain, hvmem_u32 order)
{
    struct hvmem__section s;
    struct hvmem_cpu_cache *cpu;

    hvmem__section_enter(heap, &s);
    cpu = &s.pc->fast;
    hvmem__pcpu_want_token(heap, s.pc);
    if (cpu->domain != domain)
        hvmem__credit_close(s.pc);
    hvmem__credit_unready(s.pc, order);
    if (cpu->credit < CREDIT && s.pc->token && s.pc->mag[0].capacity && !domain->node_mask &&
        hvmem__load(&domain->state) == HVMEM_DOMAIN_RUNNING &&
        !hvmem__domain_charge(domain, CREDIT)) {
        (void)HVMEM_TEST_POINT("credit_open");
        hvmem__store(&cpu->credit, cpu->credit + CREDIT);
        hvmem__store(&cpu->domain, domain);
        hvmem__pcpu_name_owner(s.pc);
        /* Who kills it or lowers its limit says so and then looks here: one of the two sees the other. */
        if (heap->host.smp)
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (hvmem__load(&domain->state) != HVMEM_DOMAIN_RUNNING ||
            hvmem__load(&domain->pages) > hvmem__load(&domain->limit))
            hvmem__credit_close(s.pc);
    }
    if (cpu->domain && s.pc->token)
        make_ready(heap, s.pc, order);
    hvmem__section_leave(heap, &s);
}

static hvmem_u64 in_cache(const struct hvmem__pcpu *pc)
{
    return hvmem__load(&pc->fast.credit) + hvmem__credit_ready(&pc->fast.queue[0]) +
           (hvmem__credit_ready(&pc->fast.queue[1]) << HVMEM__MAG_ORDER1);
}

hvmem_u64 hvmem__credit_sum(const struct hvmem_heap *heap, const struct hvmem_domain *domain)
{
    hvmem_u64 frames = 0;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++)
        if (hvmem__load(&heap->pcpu[cpu].fast.domain) == domain)
            frames += in_cache(&heap->pcpu[cpu]);
    return frames;
}

int hvmem__credit_recall(struct hvmem_heap *heap, const struct hvmem_domain *domain)
{
    struct hvmem__section s;
    hvmem_cpu cpu;
    int found = 0;

    if (heap->host.smp)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        if (hvmem__load(&heap->pcpu[cpu].fast.domain) != domain ||
            hvmem__section_enter_other(heap, &s, cpu))
            continue;
        if (s.pc->fast.domain == domain) {
            hvmem__credit_close(s.pc);
            found = 1;
        }
        hvmem__section_leave(heap, &s);
    }
    return found;
}
