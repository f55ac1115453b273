/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * teardown.c: the end of a domain. Its translations go first, by one flush of its id; what is freed
 * after that owes none for its sake. Then its tables, then every block it owns, found in the frame table.
 */
#include "populate.h"

#include <hvmem/space.h>

#include "cache.h"
#include "free.h"
#include "testpoint.h"
#include "walk.h"

/* Phases (struct hvmem__progress.phase). */
#define PHASE_SPACE  0u
#define PHASE_UNMAP  1u
#define PHASE_BLOCKS 2u
#define PHASE_DONE   3u

/* Blocks freed, or steps of walking, a call. */
#define CALL_STEPS 4096u

/*
 * After it no CPU holds a translation of the domain's, nor can load one: if its space is gone. A domain
 * that has no space here and whose host does not vouch for it frees frames that owe a filtered flush.
 */
static hvmem_status end_space(struct hvmem_domain *domain)
{
    hvmem_status status;

    if (domain->progress.flags & HVMEM_TEARDOWN_IDS_GONE) {
        domain->ids_gone = 1;
    } else if (domain->space && !domain->ids_gone) {
        status = hvmem_space_destroy(domain->space, 0);
        if (status && status != HVMEM_E_SPACE)
            return status;
        domain->ids_gone = 1;
    }
    domain->space = HVMEM_NULL;
    return HVMEM_OK;
}

static hvmem_status unmap(struct hvmem_domain *domain)
{
    hvmem_status status = HVMEM_OK;

    if (domain->ops.unmap_all && !domain->unmapped)
        status = domain->ops.unmap_all(domain->ctx, &domain->progress.cursor);
    if (!status)
        domain->unmapped = 1;
    return status;
}

/*
 * Free one block. Blocks that a gather or the quarantine holds are left to them, tables to their stage 2: as
 * long as it is not torn down hardware may walk them. (No populate is open; one may have failed to let go.)
 */
static void free_one(const struct hvmem_domain *domain, hvmem_mfn mfn)
{
    (void)hvmem__free_checked(domain->heap, mfn, HVMEM_ORDER_ANY, &domain,
                              HVMEM__EVEN_HELD | (domain->ids_gone ? HVMEM__GONE : 0));
}

static hvmem_status free_blocks(struct hvmem_domain *domain)
{
    struct hvmem__progress *p = &domain->progress;
    struct hvmem__budget budget = hvmem__budget_frames(domain->heap, 0);
    struct hvmem__owned found;
    hvmem_u32 steps;

    for (steps = 0; steps < CALL_STEPS; steps++) {
        int result = hvmem__next_owned(domain->heap, domain->id, &p->at, HVMEM__NO_MFN, &found);

        if (!result)
            return hvmem__load(&domain->pages) ? HVMEM_E_BUSY : HVMEM_OK;
        if (result > 0)
            free_one(domain, found.mfn);
        if (hvmem__budget_stop(domain->heap, &budget))
            break;
    }
    return HVMEM_AGAIN;
}

static hvmem_status step(struct hvmem_domain *domain)
{
    if (HVMEM_TEST_POINT("teardown_step"))
        return HVMEM_E_BUSY;
    switch (domain->progress.phase) {
    case PHASE_SPACE:
        return end_space(domain);
    case PHASE_UNMAP:
        return unmap(domain);
    case PHASE_BLOCKS:
    default:
        return free_blocks(domain);
    }
}

/* Whatever was open is given up; the domain is entered. */
static void take_over(struct hvmem_domain *domain, hvmem_u32 flags)
{
    if (domain->open == HVMEM__OPEN_POPULATE)
        (void)hvmem__populate_abort(domain);
    hvmem__store(&domain->open, HVMEM__OPEN_TEARDOWN);
    memset(&domain->progress, 0, sizeof domain->progress);
    domain->progress.flags = flags;
}

static hvmem_status teardown(struct hvmem_domain *domain, hvmem_u32 flags,
                             struct hvmem_cursor *cursor)
{
    struct hvmem__progress *p = &domain->progress;
    int fresh;
    hvmem_status status;

    if (!cursor->words[0])
        (void)hvmem_domain_kill(domain);
    status = hvmem__domain_open(domain, HVMEM__OPEN_TEARDOWN, cursor, &fresh);
    if (status)
        return status;
    if (fresh)
        take_over(domain, flags);
    /* Who pays for a block of the domain must not find it another's. */
    if (hvmem__domain_called(domain))
        status = HVMEM_E_BUSY;
    while (!status && p->phase != PHASE_DONE) {
        status = step(domain);
        if (!status)
            p->phase++;
    }
    hvmem__domain_close(domain, cursor, status != HVMEM_AGAIN);
    return status;
}

hvmem_status hvmem_domain_teardown(struct hvmem_domain *domain, hvmem_u32 flags,
                                   struct hvmem_cursor *cursor)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_status status = HVMEM_E_ARG;

    if (!heap)
        return HVMEM_E_ARG;
    if (heap->adopting)
        status = HVMEM_E_PHASE;
    else if (cursor && !(flags & ~HVMEM_TEARDOWN_IDS_GONE))
        status = teardown(domain, flags, cursor);
    return status < 0 ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, domain->id) : status;
}
