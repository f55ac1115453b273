/* SPDX-License-Identifier: BSD-2-Clause */
/* credit.c: frames charged to a domain in advance, a credit a CPU. */
#include "credit.h"

#include "ageing.h"
#include "clock.h"

/* Frames of one credit when it is given: what ages in a queue of single frames, or four large blocks. */
#define CREDIT 2048u
/* What a cache may hold after frees. */
#define CREDIT_MOST 8192u

void hvmem__credit_close(struct hvmem__pcpu *pc)
{
    struct hvmem__credit *credit = &pc->credit;

    if (!credit->domain)
        return;
    hvmem__credit_unready(pc, 0);
    hvmem__credit_unready(pc, HVMEM__MAG_ORDER1);
    if (credit->frames) /* without any the domain may be gone */
        hvmem__domain_uncharge(credit->domain, credit->frames);
    hvmem__store(&credit->frames, 0);
    hvmem__store(&credit->domain, (struct hvmem_domain *)HVMEM_NULL);
    hvmem__pcpu_name_owner(pc);
}

void hvmem__credit_trim(struct hvmem__credit *credit)
{
    hvmem_u64 frames = credit->frames;

    if (hvmem__likely(frames <= CREDIT_MOST))
        return;
    hvmem__store(&credit->frames, CREDIT);
    hvmem__domain_uncharge(credit->domain, frames - CREDIT);
}

/* Of the oldest blocks as many as can be, within the credit. Inside the section. */
static void make_ready(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order)
{
    struct hvmem__ageing *queue = hvmem__ageing_of(pc, order);
    hvmem_u32 n = hvmem__ageing_plain(heap, queue);

    if (!n && queue->mark > queue->head) { /* flushed for just now */
        hvmem__clock_raise_floor(heap);
        n = hvmem__ageing_plain(heap, queue);
    }
    if (n > pc->credit.frames >> order)
        n = (hvmem_u32)(pc->credit.frames >> order);
    hvmem__store(&pc->credit.frames, pc->credit.frames - ((hvmem_u64)n << order));
    hvmem__store(&queue->ready, n);
}

void hvmem__credit_open(struct hvmem_heap *heap, struct hvmem_domain *domain, hvmem_u32 order)
{
    struct hvmem__section s;
    struct hvmem__credit *credit;

    hvmem__section_enter(heap, &s);
    credit = &s.pc->credit;
    hvmem__pcpu_want_token(heap, s.pc);
    if (credit->domain != domain)
        hvmem__credit_close(s.pc);
    hvmem__credit_unready(s.pc, order);
    if (credit->frames < CREDIT && s.pc->token && s.pc->mag[0].capacity && !domain->node_mask &&
        hvmem__load(&domain->state) == HVMEM_DOMAIN_RUNNING &&
        !hvmem__domain_charge(domain, CREDIT)) {
        hvmem__store(&credit->frames, credit->frames + CREDIT);
        hvmem__store(&credit->domain, domain);
        hvmem__pcpu_name_owner(s.pc);
    }
    if (credit->domain && s.pc->token)
        make_ready(heap, s.pc, order);
    hvmem__section_leave(heap, &s);
}

static hvmem_u64 in_cache(const struct hvmem__pcpu *pc)
{
    return hvmem__load(&pc->credit.frames) + hvmem__load(&pc->ageing[0].ready) +
           ((hvmem_u64)hvmem__load(&pc->ageing[1].ready) << HVMEM__MAG_ORDER1);
}

hvmem_u64 hvmem__credit_sum(const struct hvmem_heap *heap, const struct hvmem_domain *domain)
{
    hvmem_u64 frames = 0;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++)
        if (hvmem__load(&heap->pcpu[cpu].credit.domain) == domain)
            frames += in_cache(&heap->pcpu[cpu]);
    return frames;
}

int hvmem__credit_recall(struct hvmem_heap *heap, const struct hvmem_domain *domain)
{
    struct hvmem__section s;
    hvmem_cpu cpu;
    int found = 0;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        if (hvmem__load(&heap->pcpu[cpu].credit.domain) != domain ||
            hvmem__section_enter_other(heap, &s, cpu))
            continue;
        if (s.pc->credit.domain == domain) {
            hvmem__credit_close(s.pc);
            found = 1;
        }
        hvmem__section_leave(heap, &s);
    }
    return found;
}
