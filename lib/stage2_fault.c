/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage2_fault.c: what a guest's fault comes to: an entry made valid again and the table below it pushed
 * down, a first touch to pay for, a frame on demand, or the guest's own mistake.
 */
#include "stage2.h"

#define FIRST_TOUCH 100u /* outcome of the step alone */

/*
 * Make the entries of a table invalid: none of them was touched since the entry above became invalid, which
 * arming did, so that nothing of them is to be cleaned either; one that is broken becomes whole again
 * untouched. No flush is owed: what hardware had loaded below that entry was flushed with it, or will be.
 */
static void push_down(const struct hvmem_stage2 *s2, hvmem_u64 *table)
{
    hvmem_u64 keep = ~(s2->f.valid | s2->f.aged | s2->f.touched), *end = table + 512;

    for (; table != end; table += 4) {
        hvmem__store(&table[0], table[0] & keep);
        hvmem__store(&table[1], table[1] & keep);
        hvmem__store(&table[2], table[2] & keep);
        hvmem__store(&table[3], table[3] & keep);
    }
}

static hvmem_u32 leaf_outcome(struct hvmem_stage2 *s2, hvmem_u64 *slot, hvmem_u32 access)
{
    hvmem_u64 leaf = *slot;

    if (access & ~hvmem__s2_rights(&s2->f, leaf))
        return HVMEM_FAULT_RIGHTS;
    if (leaf & (s2->f.broken | s2->f.unclean))
        return leaf & s2->f.broken ? HVMEM_FAULT_AGAIN : FIRST_TOUCH;
    if (!hvmem__s2_valid(&s2->f, leaf)) {
        hvmem__store_release(slot, hvmem__s2_validate_leaf(&s2->f, leaf));
        s2->repairs++;
    }
    return HVMEM_FAULT_ENTER;
}

/* Under the lock. Bounded: one table is pushed down. */
static hvmem_u32 fault_step(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 access)
{
    /* Copied: a store to a table could change what s2 points at, for all the compiler knows. */
    const hvmem_u64 present = s2->f.present, valid = s2->f.valid, address = s2->f.address;
    const hvmem_u64 kind = s2->f.kind, kind_table = s2->f.kind_table;
    hvmem_u64 *slot = hvmem__s2_table(s2, (hvmem_maddr)s2->root << 12);
    hvmem_u32 order = hvmem__s2_order(s2->start_level);
    int pushed = 0;

    s2->faults++;
    slot += gfn >> order;
    for (;;) {
        hvmem_u64 entry = *slot, *table;

        if (!(entry & present))
            return HVMEM_FAULT_UNMAPPED;
        if (!order || (entry & kind) != kind_table)
            return leaf_outcome(s2, slot, access);
        table = hvmem__s2_table(s2, entry & address);
        if (!(entry & valid)) {
            if (pushed)
                return HVMEM_FAULT_ENTER; /* and fault at the next level */
            push_down(s2, table);
            (void)HVMEM_TEST_POINT("stage2.pushed");
            /* Released: hardware sees the entries below invalid before it gets there. */
            hvmem__store_release(slot, entry | valid);
            s2->pushed++;
            pushed = 1;
        }
        order -= 9;
        slot = table + ((hvmem_u32)(gfn >> order) & 511u);
    }
}

/* A frame on demand. */
static HVMEM_NOINLINE hvmem_status populate(struct hvmem_stage2 *s2, hvmem_gfn gfn,
                                            hvmem_u32 access, hvmem_u32 *outcome)
{
    struct hvmem__mapper mapper = hvmem__s2_mapper(s2);
    struct hvmem_stage2_leaf leaf;
    hvmem_status status;
    int refused, raced;
    hvmem_u64 span;

    memset(&leaf, 0, sizeof leaf);
    leaf.rights = HVMEM_S2_RWX;
    status = s2->populate.give(s2->ctx, gfn, access, &leaf);
    *outcome = status == HVMEM_AGAIN ? HVMEM_FAULT_AGAIN : HVMEM_FAULT_UNMAPPED;
    if (status)
        return HVMEM_OK;
    span = (hvmem_u64)1 << (leaf.order & 31u);
    /* No more than one step: a fault cannot stop. */
    if ((leaf.order != 0 && leaf.order != 9 && leaf.order != 18) || leaf.order > hvmem__s2_unit(s2))
        status = HVMEM_E_ORDER;
    else if (leaf.mfn & (span - 1))
        status = HVMEM_E_ALIGN;
    else if (!(leaf.rights & HVMEM_S2_R) || (leaf.rights & ~HVMEM_S2_RWX) ||
             leaf.type > HVMEM_S2_DEVICE || (leaf.state & ~HVMEM_S2_UNCLEAN) ||
             leaf.rights != hvmem__s2_allowed(s2, leaf.type, leaf.rights))
        status = HVMEM_E_ARG;
    else if (leaf.mfn >> (s2->output_bits - 12) || gfn + span >= (hvmem_u64)1 << 52)
        status = HVMEM_E_RANGE;
    else if ((leaf.state & HVMEM_S2_UNCLEAN) && hvmem__s2_shared(s2))
        status = HVMEM_E_BUSY; /* a device cannot fault */
    gfn &= ~(span - 1);
    if (!status)
        status = hvmem__s2_check_range(s2, gfn, span);
    refused = status != HVMEM_OK;
    if (!refused)
        status = hvmem__s2_map_block(s2, gfn, &leaf, &mapper);
    /* Where another CPU mapped something meanwhile the guest faults again, or finds it. */
    raced = !refused && status == HVMEM_E_BUSY;
    *outcome = raced || !status ? HVMEM_FAULT_ENTER : HVMEM_FAULT_UNMAPPED;
    if (status && status != HVMEM_E_QUARANTINE && s2->populate.lost)
        s2->populate.lost(s2->ctx, gfn, &leaf);
    return raced ? HVMEM_OK : status;
}

hvmem_status hvmem_stage2_fault(struct hvmem_stage2 *s2, hvmem_u64 gpa, hvmem_u32 access,
                                hvmem_u32 *outcome)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 found = HVMEM_FAULT_UNMAPPED;
    hvmem_u64 state;

    if (!s2 || !outcome)
        return HVMEM_E_ARG;
    *outcome = HVMEM_FAULT_UNMAPPED;
    if (!access || (access & ~HVMEM_S2_RWX))
        return hvmem__s2_refuse(s2, HVMEM_E_ARG, access);
    if (gpa >> s2->input_bits) {
        /* The guest's mistake, not the caller's: counted, not reported. */
        hvmem__count(s2->heap, &s2->heap->refused, 1);
        return HVMEM_E_RANGE;
    }
    state = hvmem__s2_lock(s2);
    if (s2->state != HVMEM__S2_LIVE)
        status = HVMEM_E_PHASE;
    else
        found = fault_step(s2, gpa >> 12, access);
    hvmem__s2_unlock(s2, state);
    if (!status && found == FIRST_TOUCH)
        status = hvmem__s2_first_touch(s2, gpa >> 12, outcome);
    else if (!status && found == HVMEM_FAULT_UNMAPPED && s2->populate.give)
        status = populate(s2, gpa >> 12, access, outcome);
    else
        *outcome = found;
    return status ? hvmem__s2_refuse(s2, status, gpa) : HVMEM_OK;
}
