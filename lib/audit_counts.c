/* SPDX-License-Identifier: BSD-2-Clause */
/* audit_counts.c: what is counted beside the blocks, compared with what the walk of hvmem_audit() found. */
#include "audit.h"

#include "claim.h"
#include "credit.h"
#include "domain.h"
#include "sets.h"

/* ---- a bank --------------------------------------------------------------------------------- */

static int header_is_sound(const struct hvmem__bank *b)
{
    const struct hvmem__table *table = b->table;

    return table->magic == HVMEM__TABLE_MAGIC && table->base == b->base &&
           table->frames == b->frames && table->node == b->node && table->clean <= 1 &&
           table->checksum == hvmem__table_checksum(table) && hvmem__fronts_sound(table);
}

/* No set has a member that the walk could not come to: before the bank, behind it, under no summary. */
static int sets_are_sound(const struct hvmem_heap *heap, const struct hvmem__bank *b)
{
    hvmem_u32 k;

    for (k = 0; k <= heap->max_order; k++)
        if (!hvmem__bits_sound(&b->free[k], b->base >> k << k != b->base))
            return 0;
    return hvmem__bits_sound(&b->head, 0);
}

/* A table marked clean says what is counted, and nothing of it is in a CPU's cache or a gather's hands. */
static int mark_is_right(const struct hvmem__bank *b, const struct hvmem__found *found)
{
    const struct hvmem__table *table = b->table;
    hvmem_u32 k;

    if (!table->clean)
        return 1;
    for (k = 0; k <= HVMEM_ORDER_LIMIT; k++)
        if (table->in_bitmap[k] != b->in_bitmap[k])
            return 0;
    return !found->cached && !found->gathered && table->reserved_frames == found->reserved &&
           table->offline_frames == found->offline &&
           table->quarantine_frames == found->quarantined &&
           table->counts_checksum == hvmem__counts_checksum(table);
}

const char *hvmem__audit_counts(struct hvmem_heap *heap, const struct hvmem__bank *b,
                                const struct hvmem__found *found)
{
    hvmem_u64 frames = 0;
    hvmem_u32 k;

    if (!header_is_sound(b))
        return "header of a table";
    if (!sets_are_sound(heap, b))
        return "summary of a set";
    for (k = 0; k <= heap->max_order; k++) {
        frames += found->free_blocks[k] << k;
        if (found->free_blocks[k] != hvmem__set_count(b, k))
            return "count of free blocks";
        if (!found->free_blocks[k] != !(b->orders >> k & 1) ||
            !b->in_bitmap[k] != !(b->spread >> k & 1))
            return "mask of orders";
        if (found->free_blocks[k] &&
            !(heap->node[b->node].may[k] >> heap->arena[b->arena].slot & 1))
            return "node does not know of a free block";
    }
    if (frames != b->free_frames)
        return "count of free frames";
    if (found->reserved != b->reserved_frames || found->offline != b->offline_frames ||
        found->quarantined != b->quarantine_frames)
        return "count of frames out of use";
    return mark_is_right(b, found) ? HVMEM_NULL : "mark of a clean table";
}

/* ---- owners and claims ------------------------------------------------------------------------ */

void hvmem__audit_begin(struct hvmem_heap *heap)
{
    hvmem_u32 id;

    for (id = 1; id <= heap->max_domains; id++)
        if (heap->domain[id])
            memset(&heap->domain[id]->audited, 0, sizeof heap->domain[id]->audited);
}

int hvmem__audit_owner(struct hvmem_heap *heap, hvmem__record record)
{
    struct hvmem_domain *domain = hvmem__domain_of(heap, hvmem__rec_owner(record));
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(record);

    if (!hvmem__rec_owner(record))
        return 1;
    if (!domain)
        return 0;
    domain->audited.pages += frames;
    if (hvmem__rec_state(record) == HVMEM_BLOCK_GATHERED)
        return 1;
    hvmem__tally_add(heap, &domain->audited.debts, record);
    domain->audited.untouched += hvmem__rec_untouched(record) ? frames : 0;
    return 1;
}

static const char *compare_domain(const struct hvmem_heap *heap, const struct hvmem_domain *domain)
{
    if (domain->pages != domain->audited.pages + hvmem__credit_sum(heap, domain))
        return "count of a domain's frames";
    if (domain->deferred != domain->audited.debts.frames ||
        domain->flush != domain->audited.debts.flush ||
        domain->untouched != domain->audited.untouched)
        return "count of a domain's debts";
    return domain->flush && domain->newest < domain->audited.debts.newest
               ? "stamp of a domain's debts"
               : HVMEM_NULL;
}

/* Frames free in the arenas of one node, or all. */
static hvmem_u64 free_on(const struct hvmem_heap *heap, hvmem_node node)
{
    hvmem_u64 frames = 0;
    hvmem_u32 i;

    for (i = 0; i < heap->banks; i++) {
        const struct hvmem__bank *b = &heap->bank[heap->order_of_banks[i]];

        if (node == HVMEM_NODE_ANY || b->node == node)
            frames += hvmem__load(&b->free_frames);
    }
    return frames;
}

/* Sum of all domains' claims on a node, or on all and anywhere. */
static hvmem_u64 claimed_on(const struct hvmem_heap *heap, hvmem_node node)
{
    hvmem_u32 id, i, first = node == HVMEM_NODE_ANY ? 0 : node,
                     last = node == HVMEM_NODE_ANY ? HVMEM__CLAIM_ANY : node;
    hvmem_u64 frames = 0;

    for (id = 1; id <= heap->max_domains; id++)
        for (i = first; heap->domain[id] && i <= last; i++)
            frames += heap->domain[id]->claim[i];
    return frames;
}

static const char *compare_claims(const struct hvmem_heap *heap)
{
    hvmem_node node;

    if (heap->claimed != claimed_on(heap, HVMEM_NODE_ANY))
        return "count of claims";
    if (heap->claims_active && heap->spare != free_on(heap, HVMEM_NODE_ANY) - heap->claimed)
        return "count of frames not claimed";
    for (node = 0; node < HVMEM_NODE_LIMIT; node++) {
        if (heap->node[node].claimed != claimed_on(heap, node))
            return "count of a node's claims";
        if (heap->claims_active &&
            heap->node[node].spare != free_on(heap, node) - heap->node[node].claimed)
            return "count of a node's frames not claimed";
    }
    return HVMEM_NULL;
}

const char *hvmem__audit_end(struct hvmem_heap *heap)
{
    const char *wrong = compare_claims(heap);
    hvmem_u32 id;

    for (id = 1; id <= heap->max_domains && !wrong; id++)
        if (heap->domain[id])
            wrong = compare_domain(heap, heap->domain[id]);
    return wrong;
}
