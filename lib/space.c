/* SPDX-License-Identifier: BSD-2-Clause */
/* Spaces: a CPU switches to one, leaves it, and flushes what it owes on the way. */
#include "space.h"

#include "backendcall.h"

hvmem_status hvmem__space_flush_id(const struct hvmem_space *space, hvmem_u32 regime, hvmem_u32 id,
                                   hvmem_u32 scope)
{
    struct hvmem_tlb_flush flush;

    memset(&flush, 0, sizeof flush);
    flush.size = sizeof flush;
    flush.what = HVMEM_FLUSH_SPACE;
    flush.scope = (hvmem_u16)scope;
    flush.space.regime = regime;
    flush.space.id = id;
    flush.space.root = space->root;
    return hvmem__backend_tlb_flush(space->ident->backend, &flush);
}

/* A CPU number the object knows, and online. */
static hvmem_status check_cpu(const struct hvmem_ident *ident, hvmem_cpu cpu)
{
    return cpu < ident->max_cpus && hvmem__load_acquire(&ident->cpus[cpu].online) ? HVMEM_OK
                                                                                  : HVMEM_E_CPU;
}

/* ---- switching ------------------------------------------------------------------------------- */

/* What the CPU announced before, to be put back if the switch is refused. */
struct before {
    struct hvmem_space *loaded;
    hvmem_u32 lazy;
};

/*
 * The hardware runs `space` until hvmem_space_entered(). A switch that was not finished did not change
 * that: what it left behind stays noted, not what it chose.
 */
static void leave(struct hvmem__ident_cpu *me, struct hvmem_space *space, int order)
{
    if (!me->leaving)
        __atomic_store_n(&me->leaving, space, order);
}

/*
 * Say that this CPU loads the space: to flushes (loaded, holders) and to destroy. The stores are
 * sequentially consistent, and so are the loads of `changes` and `state` that follow them and both
 * sides in hvmem_space_changed(), hvmem_space_targets() and hvmem_space_destroy(): either the other
 * side sees this CPU, or this CPU sees the change.
 */
static void announce(struct hvmem_space *space, struct hvmem__ident_cpu *me, hvmem_cpu cpu)
{
    hvmem_u64 bit = (hvmem_u64)1 << (cpu & 63);
    struct hvmem_space *old = me->loaded;

    if (old && old != space)
        leave(me, old, __ATOMIC_RELEASE);
    (void)HVMEM_TEST_POINT("space_leaving");
    if (!(hvmem__load(&space->holders[cpu >> 6]) & bit))
        __atomic_fetch_or(&space->holders[cpu >> 6], bit, __ATOMIC_SEQ_CST);
    if (me->lazy)
        __atomic_store_n(&me->lazy, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&me->loaded, space, __ATOMIC_SEQ_CST);
    (void)HVMEM_TEST_POINT("space_announced");
}

/*
 * The CPU keeps running what it ran: the hardware never left it. `leaving` names it too, so that a
 * flush which read `loaded` before and `leaving` after sees it in any case.
 */
static void take_back(struct hvmem__ident_cpu *me, const struct before *before)
{
    hvmem__store(&me->lazy, before->lazy);
    __atomic_store_n(&me->loaded, before->loaded, __ATOMIC_SEQ_CST);
}

/* Announced, but the space is on its way out, or destroy has just found us and given up. */
static HVMEM_NOINLINE int really_live(struct hvmem_space *space)
{
    struct hvmem_ident *ident = space->ident;
    hvmem_u64 state = hvmem__lock(&ident->host, &space->lock, HVMEM__RANK_SPACE);
    int live = hvmem__space_live(space);

    hvmem__unlock(&ident->host, &space->lock, HVMEM__RANK_SPACE, state);
    return live;
}

/* What must be flushed before this CPU may use the space's translations. */
struct owed {
    hvmem_u32 entry; /* HVMEM_ENTRY_* */
    int changed;     /* because the tables changed (not only because of the runner) */
    hvmem_u64 changes;
};

static void find_owed(const struct hvmem_space *space, const struct hvmem__space_cell *cell,
                      const struct hvmem__runner *runner, struct owed *owed)
{
    owed->changes = __atomic_load_n(&space->changes, __ATOMIC_SEQ_CST);
    owed->changed = owed->changes != cell->seen;
    owed->entry = owed->changed ? HVMEM_ENTRY_FLUSH_GUEST : HVMEM_ENTRY_NOTHING;
    if (!(space->flags & HVMEM_SPACE_PRIVATE_STAGE1) || !runner)
        return;
    if (cell->runner && (cell->runner != runner->serial || cell->runner_flushes != runner->flushes))
        owed->entry = HVMEM_ENTRY_FLUSH_GUEST;
}

/* Note in the cell, or for hvmem_space_entered(), what is flushed once the CPU runs the space. */
static void note_flushed(struct hvmem_space *space, struct hvmem__ident_cpu *me,
                         struct hvmem__space_cell *cell, const struct hvmem__runner *runner,
                         hvmem_u64 changes, int later)
{
    if (later) {
        me->owed_space = space;
        me->seen = changes;
        me->runner = runner ? runner->serial : cell->runner;
        me->runner_flushes = runner ? runner->flushes : cell->runner_flushes;
        return;
    }
    if (cell->seen != changes)
        cell->seen = changes;
    if (runner && (cell->runner != runner->serial || cell->runner_flushes != runner->flushes)) {
        cell->runner = runner->serial;
        cell->runner_flushes = runner->flushes;
    }
}

/* Issue what is owed now. */
static hvmem_status flush_now(const struct hvmem_space *space, struct hvmem__ident_cpu *me,
                              const struct owed *owed, hvmem_u32 id)
{
    hvmem_status status;

    if (owed->entry == HVMEM_ENTRY_FLUSH_ALL) {
        status = hvmem__ident_flush_regime(space->ident, HVMEM_SCOPE_LOCAL);
        if (status == HVMEM_OK)
            me->owed_all = 0;
        return status;
    }
    if (owed->changed) {
        status = hvmem__space_flush_id(space, space->regime, id, HVMEM_SCOPE_LOCAL);
        if (status != HVMEM_OK || !(space->flags & HVMEM_SPACE_PRIVATE_STAGE1))
            return status;
    }
    return hvmem__space_flush_id(space, HVMEM_REGIME_GUEST, id, HVMEM_SCOPE_LOCAL);
}

/* Flush, or ask the entry to, and describe it. On failure the CPU runs nothing. */
static hvmem_status settle(struct hvmem_space *space, struct hvmem__ident_cpu *me,
                           struct hvmem__space_cell *cell, const struct hvmem__runner *runner,
                           struct owed *owed, struct hvmem_entry *entry)
{
    struct hvmem_ident *ident = space->ident;
    int by_entry = !!(ident->flags & HVMEM_IDENT_ENTRY);
    hvmem_status status = HVMEM_OK;

    if (me->owed_all)
        owed->entry = HVMEM_ENTRY_FLUSH_ALL;
    me->owed_space = HVMEM_NULL;
    if (hvmem__unlikely(owed->entry != HVMEM_ENTRY_NOTHING)) {
        if (by_entry) {
            status = hvmem__backend_guest_entry(ident->backend, owed->entry, &entry->value);
            entry->owed = owed->entry;
        } else {
            status = flush_now(space, me, owed, entry->id);
            entry->flushed = owed->entry;
        }
        if (status != HVMEM_OK)
            return status;
    }
    (void)HVMEM_TEST_POINT("space_flushed");
    note_flushed(space, me, cell, runner, owed->changes,
                 by_entry && owed->entry != HVMEM_ENTRY_NOTHING);
    return HVMEM_OK;
}

/*
 * A valid tag for the space on this CPU. A number other than the last one the space had here has
 * been flushed since anything was cached under it here, so nothing of this space needs a flush;
 * except what is cached by root. The same number in a new generation proves nothing: the CPU may
 * have filled it again between a broadcast rollover and now.
 */
static hvmem_status take_tag(struct hvmem_space *space, hvmem_cpu cpu,
                             struct hvmem__space_cell *cell, struct owed *owed, hvmem_u64 *tag)
{
    struct hvmem_ident *ident = space->ident;
    hvmem_status status;

    *tag = cell->tag;
    if (ident->flags & HVMEM_IDENT_PER_CPU) {
        status = hvmem__ident_take_own(ident, cpu, tag,
                                       space->retires && owed->entry == HVMEM_ENTRY_FLUSH_GUEST);
    } else {
        status = hvmem__ident_take(ident, cpu, &space->tag);
        *tag = hvmem__load(&space->tag.word);
    }
    if (status != HVMEM_OK || *tag == cell->tag)
        return status;
    if (hvmem__ident_number(ident, *tag) != hvmem__ident_number(ident, cell->tag) &&
        !(ident->flags & HVMEM_IDENT_ROOTS))
        owed->entry = HVMEM_ENTRY_NOTHING;
    cell->tag = *tag;
    return HVMEM_OK;
}

/* The hardware goes on with nothing; `leaving` is what it still runs, NULL if that is noted. */
static void run_nothing(struct hvmem_ident *ident, hvmem_cpu cpu, struct hvmem_space *leaving)
{
    struct hvmem__ident_cpu *me = &ident->cpus[cpu];

    hvmem__ident_drop(ident, cpu, leaving != HVMEM_NULL);
    if (leaving)
        leave(me, leaving, __ATOMIC_SEQ_CST);
    hvmem__store(&me->lazy, 0);
    __atomic_store_n(&me->loaded, HVMEM_NULL, __ATOMIC_SEQ_CST);
}

/* The switch proper; the arguments are checked. */
static hvmem_status switch_to(struct hvmem_space *space, hvmem_cpu cpu,
                              const struct hvmem__runner *runner, struct hvmem_entry *entry)
{
    struct hvmem_ident *ident = space->ident;
    struct hvmem__ident_cpu *me = &ident->cpus[cpu];
    struct hvmem__space_cell *cell = &space->cells[cpu];
    struct before before;
    struct owed owed;
    hvmem_status status;
    hvmem_u64 tag;

    before.loaded = me->loaded;
    before.lazy = me->lazy;
    if (before.loaded != space || before.lazy) {
        if (hvmem__load(&space->state) == HVMEM__SPACE_DEAD)
            return HVMEM_E_SPACE;
        announce(space, me, cpu);
        if (!hvmem__space_live(space) && !really_live(space)) {
            take_back(me, &before);
            return HVMEM_E_SPACE;
        }
    }
    find_owed(space, cell, runner, &owed);
    status = take_tag(space, cpu, cell, &owed, &tag);
    if (status != HVMEM_OK) {
        take_back(me, &before);
        return status;
    }
    entry->id = hvmem__ident_number(ident, tag);
    entry->generation = tag >> ident->shift;
    status = settle(space, me, cell, runner, &owed, entry);
    if (status != HVMEM_OK)
        run_nothing(ident, cpu, before.loaded == space ? space : HVMEM_NULL);
    return status;
}

hvmem_status hvmem__space_activate(struct hvmem_space *space, hvmem_cpu cpu,
                                   const struct hvmem__runner *runner, struct hvmem_entry *entry)
{
    hvmem_status status;

    entry->id = 0;
    entry->owed = HVMEM_ENTRY_NOTHING;
    entry->value = 0;
    entry->flushed = HVMEM_ENTRY_NOTHING;
    entry->generation = 0;
    status = check_cpu(space->ident, cpu);
    if (status == HVMEM_OK)
        status = switch_to(space, cpu, runner, entry);
    if (hvmem__unlikely(status != HVMEM_OK)) {
        entry->id = 0;
        (void)hvmem__ident_refuse(space->ident, status);
    }
    return status;
}

hvmem_status hvmem_space_activate(struct hvmem_space *space, hvmem_cpu cpu,
                                  struct hvmem_entry *entry)
{
    if (!space || !entry)
        return HVMEM_E_ARG;
    if (!space->ident)
        return HVMEM_E_SPACE;
    if (space->flags & HVMEM_SPACE_PRIVATE_STAGE1)
        return hvmem__ident_refuse(space->ident, HVMEM_E_ARG);
    return hvmem__space_activate(space, cpu, HVMEM_NULL, entry);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* The CPU exists and runs a space. */
static hvmem_status check_active(struct hvmem_ident *ident, hvmem_cpu cpu)
{
    hvmem_status status;

    if (!ident)
        return HVMEM_E_ARG;
    status = check_cpu(ident, cpu);
    if (status == HVMEM_OK && !ident->cpus[cpu].loaded)
        status = HVMEM_E_SPACE;
    return status == HVMEM_OK ? HVMEM_OK : hvmem__ident_refuse(ident, status);
}

hvmem_status hvmem_space_deactivate(struct hvmem_ident *ident, hvmem_cpu cpu)
{
    hvmem_status status = check_active(ident, cpu);

    if (status == HVMEM_OK)
        run_nothing(ident, cpu, ident->cpus[cpu].loaded);
    return status;
}

hvmem_status hvmem_space_lazy(struct hvmem_ident *ident, hvmem_cpu cpu)
{
    hvmem_status status = check_active(ident, cpu);

    if (status == HVMEM_OK)
        hvmem__store(&ident->cpus[cpu].lazy, 1);
    return status;
}

hvmem_status hvmem_space_entered(struct hvmem_ident *ident, hvmem_cpu cpu)
{
    struct hvmem__ident_cpu *me;
    struct hvmem__space_cell *cell;

    if (!ident)
        return HVMEM_E_ARG;
    if (check_cpu(ident, cpu) != HVMEM_OK)
        return hvmem__ident_refuse(ident, HVMEM_E_CPU);
    me = &ident->cpus[cpu];
    if (hvmem__unlikely(me->owed_space != HVMEM_NULL)) {
        if (me->owed_space == me->loaded) {
            cell = &me->owed_space->cells[cpu];
            cell->seen = me->seen;
            cell->runner = me->runner;
            cell->runner_flushes = me->runner_flushes;
            me->owed_all = 0;
        }
        me->owed_space = HVMEM_NULL;
    }
    if (me->leaving)
        __atomic_store_n(&me->leaving, HVMEM_NULL, __ATOMIC_RELEASE);
    if (me->leaving_tag)
        hvmem__store_release(&me->leaving_tag, 0);
    return HVMEM_OK;
}
