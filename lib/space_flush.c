/* SPDX-License-Identifier: BSD-2-Clause */
/* Spaces: table changes, the CPUs that must hear of one, and what such a CPU does. */
#include "space.h"

#include "backendcall.h"

/* HVMEM_E_SPACE: there is no such space, or not any more. */
static hvmem_status known(const struct hvmem_space *space)
{
    if (space->ident && hvmem__load(&space->state) == HVMEM__SPACE_DEAD)
        return hvmem__ident_refuse(space->ident, HVMEM_E_SPACE);
    return space->ident ? HVMEM_OK : HVMEM_E_SPACE;
}

hvmem_status hvmem_space_id(const struct hvmem_space *space, hvmem_cpu cpu,
                            struct hvmem_tlb_space *tag)
{
    struct hvmem_ident *ident;
    hvmem_u64 word;

    if (!space || !tag)
        return HVMEM_E_ARG;
    if (known(space))
        return HVMEM_E_SPACE;
    ident = space->ident;
    if (!(ident->flags & HVMEM_IDENT_PER_CPU))
        word = __atomic_load_n(&space->tag.word, __ATOMIC_SEQ_CST);
    else if (cpu < ident->max_cpus)
        word = space->cells[cpu].tag;
    else
        return hvmem__ident_refuse(ident, HVMEM_E_CPU);
    tag->regime = space->regime;
    tag->id = hvmem__ident_number(ident, word);
    tag->root = space->root;
    return HVMEM_OK;
}

hvmem_status hvmem_space_changed(struct hvmem_space *space, hvmem_u64 *count)
{
    if (!space || !count)
        return HVMEM_E_ARG;
    if (known(space))
        return HVMEM_E_SPACE;
    *count = __atomic_add_fetch(&space->changes, 1, __ATOMIC_SEQ_CST);
    (void)HVMEM_TEST_POINT("space_changed");
    return HVMEM_OK;
}

/* Whether a holder must be asked. */
static int must_ask(const struct hvmem_space *space, hvmem_cpu cpu, hvmem_u32 flags)
{
    const struct hvmem__ident_cpu *c = &space->ident->cpus[cpu];

    if (flags & HVMEM_TARGETS_TRIM)
        return 1;
    if (!hvmem__space_loaded_on(space, cpu))
        return 0;
    if (flags & HVMEM_TARGETS_TABLES)
        return 1;
    /* A switch clears lazy before its full barrier: if it is set still, that switch will flush. */
    return !__atomic_load_n(&c->lazy, __ATOMIC_SEQ_CST) ||
           __atomic_load_n(&c->leaving, __ATOMIC_SEQ_CST) == space;
}

hvmem_status hvmem_space_targets(const struct hvmem_space *space, hvmem_u32 flags, hvmem_u64 *words,
                                 hvmem_u32 word_count, hvmem_u32 *targets)
{
    struct hvmem_ident *ident;
    hvmem_u32 used;
    hvmem_u32 i;

    if (!space || !words || !targets)
        return HVMEM_E_ARG;
    if (known(space))
        return HVMEM_E_SPACE;
    ident = space->ident;
    used = (ident->max_cpus + 63) / 64;
    if (flags & ~(HVMEM_TARGETS_TABLES | HVMEM_TARGETS_TRIM))
        return hvmem__ident_refuse(ident, HVMEM_E_ARG);
    if (word_count < used)
        return hvmem__ident_refuse(ident, HVMEM_E_BUFFER);
    *targets = 0;
    for (i = 0; i < word_count; i++) {
        hvmem_u64 left = i < used ? __atomic_load_n(&space->holders[i], __ATOMIC_SEQ_CST) : 0;

        words[i] = 0;
        for (; left; left &= left - 1) {
            hvmem_u32 bit = hvmem__lowest(left);

            if (must_ask(space, i * 64 + bit, flags)) {
                words[i] |= (hvmem_u64)1 << bit;
                (*targets)++;
            }
        }
    }
    return HVMEM_OK;
}

/* ---- on the CPU that was asked ----------------------------------------------------------------- */

/* The CPU does not run the space: nothing of it stays, so that it need not be asked again. */
static hvmem_status drop_out(struct hvmem_space *space, hvmem_cpu cpu, hvmem_u64 changes)
{
    struct hvmem_ident *ident = space->ident;
    struct hvmem__space_cell *cell = &space->cells[cpu];
    hvmem_u32 id = hvmem__ident_number(ident, cell->tag);
    hvmem_status status = HVMEM_OK;

    if ((ident->flags & HVMEM_IDENT_PER_CPU) && !(ident->flags & HVMEM_IDENT_ROOTS)) {
        cell->tag = 0; /* the number is not used again before this CPU flushes everything */
    } else if (ident->flags & HVMEM_IDENT_ENTRY) {
        return HVMEM_OK; /* the next entry flushes; until then the CPU is a holder */
    } else if (id) {
        status = hvmem__space_flush_id(space, space->regime, id, HVMEM_SCOPE_LOCAL);
        if (status != HVMEM_OK)
            return status;
        cell->seen = changes;
    }
    hvmem__space_forget(space, cpu);
    return HVMEM_OK;
}

/* The CPU runs the space: bring it up to date. */
static hvmem_status catch_up(struct hvmem_space *space, hvmem_cpu cpu, hvmem_u64 changes,
                             const struct hvmem_tlb_range *ranges, hvmem_u32 count)
{
    struct hvmem_ident *ident = space->ident;
    struct hvmem__space_cell *cell = &space->cells[cpu];
    struct hvmem_tlb_flush flush;
    hvmem_status status;

    memset(&flush, 0, sizeof flush);
    flush.size = sizeof flush;
    flush.what = (hvmem_u16)(ranges ? HVMEM_FLUSH_RANGES : HVMEM_FLUSH_SPACE);
    flush.scope = HVMEM_SCOPE_LOCAL;
    flush.space.regime = space->regime;
    flush.space.root = space->root;
    flush.space.id = hvmem__ident_number(ident, cell->tag);
    flush.ranges = ranges;
    flush.count = ranges ? count : 0;
    /* No number yet: a switch is under way that will take a fresh one. */
    status = flush.space.id ? hvmem__backend_tlb_flush(ident->backend, &flush) : HVMEM_OK;
    if (status == HVMEM_OK)
        cell->seen = changes;
    return status;
}

hvmem_status hvmem_space_flush_here(struct hvmem_space *space, hvmem_cpu cpu,
                                    const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                                    hvmem_u64 change)
{
    struct hvmem_ident *ident;
    struct hvmem__ident_cpu *me;
    hvmem_u64 changes;

    if (!space || (ranges && !count))
        return HVMEM_E_ARG;
    if (known(space))
        return HVMEM_E_SPACE;
    ident = space->ident;
    if (cpu >= ident->max_cpus)
        return hvmem__ident_refuse(ident, HVMEM_E_CPU);
    me = &ident->cpus[cpu];
    /* Read before the flush: a change counted later brings a request of its own. */
    changes = __atomic_load_n(&space->changes, __ATOMIC_SEQ_CST);
    if (me->loaded != space && me->leaving != space)
        return drop_out(space, cpu, changes);
    if (space->cells[cpu].seen >= changes || (ident->flags & HVMEM_IDENT_ENTRY))
        return HVMEM_OK;
    if (change != changes || space->cells[cpu].seen + 1 != change)
        ranges = HVMEM_NULL;
    return catch_up(space, cpu, changes, ranges, count);
}
