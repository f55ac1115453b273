/* SPDX-License-Identifier: BSD-2-Clause */
/* Spaces: create, destroy, pin, attached vCPUs. Switching is in space.c. */
#include "space.h"

#include "backendcall.h"

static hvmem_size cells_offset(void)
{
    return (hvmem_size)hvmem__round_up(sizeof(struct hvmem_space), HVMEM_LINE);
}

static hvmem_size holders_offset(const struct hvmem_ident *ident)
{
    return cells_offset() + (hvmem_size)ident->max_cpus * sizeof(struct hvmem__space_cell);
}

static hvmem_u32 holder_words(const struct hvmem_ident *ident)
{
    return (ident->max_cpus + 63) / 64;
}

hvmem_size hvmem_space_size(const struct hvmem_ident *ident)
{
    if (!ident)
        return 0;
    return holders_offset(ident) +
           (hvmem_size)hvmem__round_up(holder_words(ident) * sizeof(hvmem_u64), HVMEM_LINE);
}

static hvmem_status check_config(const struct hvmem_space_config *config)
{
    if (!config)
        return HVMEM_E_ARG;
    if (config->size != sizeof *config)
        return HVMEM_E_VERSION;
    if (config->flags & ~HVMEM_SPACE_PRIVATE_STAGE1)
        return HVMEM_E_ARG;
    if (config->regime != HVMEM_REGIME_USER && config->regime != HVMEM_REGIME_STAGE2 &&
        config->regime != HVMEM_REGIME_GUEST)
        return HVMEM_E_ARG;
    return HVMEM_OK;
}

hvmem_status hvmem_space_create(struct hvmem_ident *ident, void *memory, hvmem_size bytes,
                                const struct hvmem_space_config *config, struct hvmem_space **space)
{
    struct hvmem_space *made = memory;
    hvmem_status status;

    if (!ident)
        return HVMEM_E_ARG;
    status = space ? check_config(config) : HVMEM_E_ARG;
    if (status == HVMEM_OK &&
        (!memory || (hvmem_uptr)memory % HVMEM_LINE || bytes < hvmem_space_size(ident)))
        status = HVMEM_E_BUFFER;
    if (status != HVMEM_OK)
        return hvmem__ident_refuse(ident, status);
    memset(memory, 0, hvmem_space_size(ident));
    made->flags = config->flags;
    made->regime = config->regime;
    made->root = config->root;
    made->ident = ident;
    /* Cached by root, whose frame may have been another's: each CPU flushes before it first enters. */
    made->changes = !!(ident->flags & HVMEM_IDENT_ROOTS);
    made->retires = (ident->flags & HVMEM_IDENT_PER_CPU) && (ident->flags & HVMEM_IDENT_ENTRY) &&
                    !(ident->backend->caps.features & HVMEM_CAP_FLUSH_BY_ASID);
    made->cells = (struct hvmem__space_cell *)(void *)((char *)memory + cells_offset());
    made->holders = (hvmem_u64 *)(void *)((char *)memory + holders_offset(ident));
    __atomic_store_n(&made->state, HVMEM__SPACE_LIVE, __ATOMIC_RELEASE);
    *space = made;
    return HVMEM_OK;
}

/* ---- tables of a stage 2 ------------------------------------------------------------------------ */

int hvmem__space_take_tables(struct hvmem_space *space, hvmem_u64 root, int by_root)
{
    hvmem_u32 was = hvmem__load(&space->tables);

    if (space->regime != HVMEM_REGIME_STAGE2 ||
        (by_root && !(space->ident->flags & HVMEM_IDENT_ROOTS)))
        return 0;
    if (was == HVMEM__TABLES_LIVE ||
        !__atomic_compare_exchange_n(&space->tables, &was, HVMEM__TABLES_LIVE, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return 0;
    hvmem__store(&space->root, root);
    return 1;
}

void hvmem__space_drop_tables(struct hvmem_space *space)
{
    hvmem_u32 tables = HVMEM__TABLES_GONE, cpu;

    /* (Dead it has its end behind it, and whatever it belonged to may have too.) */
    if (hvmem__load(&space->state) == HVMEM__SPACE_DEAD)
        return;
    for (cpu = 0; cpu < space->ident->max_cpus; cpu++)
        if (hvmem__space_loaded_on(space, cpu))
            tables = HVMEM__TABLES_NONE;
    hvmem__store_release(&space->tables, tables);
}

/* ---- the end --------------------------------------------------------------------------------- */

/*
 * LIVE -> DYING if nothing uses the space. The store and the loads of what each CPU runs, all
 * sequentially consistent, pair with announce(): a CPU that is not seen here sees DYING. SPACE lock held.
 */
static hvmem_status begin_end(struct hvmem_space *space)
{
    hvmem_u32 cpu;

    if (!hvmem__space_live(space))
        return HVMEM_E_SPACE;
    if (space->pins || space->vcpus)
        return HVMEM_E_BUSY;
    __atomic_store_n(&space->state, HVMEM__SPACE_DYING, __ATOMIC_SEQ_CST);
    (void)HVMEM_TEST_POINT("space_dying");
    for (cpu = 0; cpu < space->ident->max_cpus; cpu++) {
        if (hvmem__space_loaded_on(space, cpu)) {
            __atomic_store_n(&space->state, HVMEM__SPACE_LIVE, __ATOMIC_SEQ_CST);
            return HVMEM_E_BUSY;
        }
    }
    return HVMEM_OK;
}

/* Everything of the space under a tag; a tag of 0 was never loaded. */
static hvmem_status flush_tag(const struct hvmem_space *space, hvmem_u64 tag, hvmem_u32 scope)
{
    hvmem_u32 id = hvmem__ident_number(space->ident, tag);
    hvmem_status status;

    if (!id)
        return HVMEM_OK;
    status = hvmem__space_flush_id(space, space->regime, id, scope);
    if (status == HVMEM_OK && space->regime == HVMEM_REGIME_STAGE2 &&
        (space->ident->flags & HVMEM_IDENT_ROOTS))
        status = hvmem__space_flush_id(space, HVMEM_REGIME_GUEST, id, scope);
    return status;
}

struct last_flush {
    struct hvmem_space *space;
    hvmem_u32 failed;
};

/* On each CPU that holds translations of a dying space. */
static HVMEM_CALLBACK void flush_holder(void *arg)
{
    struct last_flush *last = arg;
    const struct hvmem_space *space = last->space;
    const struct hvmem_ident *ident = space->ident;
    hvmem_cpu cpu = hvmem__this_cpu(&ident->host);
    hvmem_u64 tag = space->tag.word;

    if (cpu < ident->max_cpus && (ident->flags & HVMEM_IDENT_PER_CPU))
        tag = space->cells[cpu].tag;
    if (flush_tag(space, tag, HVMEM_SCOPE_LOCAL) != HVMEM_OK)
        __atomic_store_n(&last->failed, 1, __ATOMIC_SEQ_CST);
}

/*
 * The one whole-id flush of a space that nobody can load any more. HVMEM_E_UNSUPPORTED or another
 * error if it could not be done everywhere. No lock held.
 */
static hvmem_status last_flush(struct hvmem_space *space)
{
    struct hvmem_ident *ident = space->ident;
    struct hvmem_cpuset holders;
    struct last_flush last;
    hvmem_u64 any = 0;
    hvmem_status status;
    hvmem_u32 i;

    for (i = 0; i < holder_words(ident); i++)
        any |= hvmem__load(&space->holders[i]);
    if (!any)
        return HVMEM_OK;
    /* A CPU that numbers by itself does not use a number again before it flushes everything. */
    if ((ident->flags & HVMEM_IDENT_PER_CPU) && !(ident->flags & HVMEM_IDENT_ROOTS))
        return HVMEM_OK;
    if (!(ident->flags & HVMEM_IDENT_PER_CPU) &&
        (ident->backend->caps.features & HVMEM_CAP_BROADCAST)) {
        /* Flushed for with its tables; arm64 would put the root in force, which may be another's frame by now. */
        if (!(ident->flags & HVMEM_IDENT_ROOTS) &&
            hvmem__load_acquire(&space->tables) == HVMEM__TABLES_GONE)
            return HVMEM_OK;
        return flush_tag(space, space->tag.word, HVMEM_SCOPE_INNER);
    }
    if (!ident->host.ops.call_cpus || (ident->flags & HVMEM_IDENT_ENTRY))
        return HVMEM_E_UNSUPPORTED;
    last.space = space;
    last.failed = 0;
    holders.words = space->holders;
    holders.cpus = ident->max_cpus;
    holders.reserved = 0;
    status = ident->host.ops.call_cpus(ident->host.ctx, &holders, flush_holder, &last);
    return status == HVMEM_OK && last.failed ? HVMEM_E_HOST : status;
}

hvmem_status hvmem_space_destroy(struct hvmem_space *space, hvmem_u32 flags)
{
    struct hvmem_ident *ident;
    hvmem_status status;
    hvmem_u64 state;

    if (!space || !space->ident)
        return space ? HVMEM_E_SPACE : HVMEM_E_ARG;
    ident = space->ident;
    if (flags & ~HVMEM_DESTROY_LAZY)
        return hvmem__ident_refuse(ident, HVMEM_E_ARG);
    state = hvmem__lock(&ident->host, &space->lock, HVMEM__RANK_SPACE);
    status = begin_end(space);
    hvmem__unlock(&ident->host, &space->lock, HVMEM__RANK_SPACE, state);
    if (status != HVMEM_OK)
        return hvmem__ident_refuse(ident, status);
    if (!(flags & HVMEM_DESTROY_LAZY)) {
        /* The id goes back only after the flush; without one it waits for the rollover. */
        if (last_flush(space) == HVMEM_OK)
            hvmem__ident_release(ident, space->tag.word);
        else
            hvmem__ident_flush_all(ident);
    }
    __atomic_store_n(&space->state, HVMEM__SPACE_DEAD, __ATOMIC_SEQ_CST);
    return HVMEM_OK;
}

/* ---- pins and vCPUs --------------------------------------------------------------------------- */

static hvmem_status pin_locked(struct hvmem_space *space, hvmem_u32 *id)
{
    hvmem_status status = HVMEM_OK;

    if (!hvmem__space_live(space))
        return HVMEM_E_SPACE;
    if (!space->pins)
        status = hvmem__ident_pin(space->ident, &space->tag);
    if (status != HVMEM_OK)
        return status;
    space->pins++;
    *id = hvmem__ident_number(space->ident, hvmem__load(&space->tag.word));
    return HVMEM_OK;
}

hvmem_status hvmem_space_pin(struct hvmem_space *space, hvmem_u32 *id)
{
    struct hvmem_ident *ident;
    hvmem_status status;
    hvmem_u64 state;

    if (!space || !id || !space->ident)
        return HVMEM_E_ARG;
    ident = space->ident;
    if (ident->flags & HVMEM_IDENT_PER_CPU)
        return hvmem__ident_refuse(ident, HVMEM_E_UNSUPPORTED);
    state = hvmem__lock(&ident->host, &space->lock, HVMEM__RANK_SPACE);
    status = pin_locked(space, id);
    hvmem__unlock(&ident->host, &space->lock, HVMEM__RANK_SPACE, state);
    return status == HVMEM_OK ? HVMEM_OK : hvmem__ident_refuse(ident, status);
}

hvmem_status hvmem_space_unpin(struct hvmem_space *space)
{
    struct hvmem_ident *ident;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state;

    if (!space || !space->ident)
        return HVMEM_E_ARG;
    ident = space->ident;
    state = hvmem__lock(&ident->host, &space->lock, HVMEM__RANK_SPACE);
    if (!hvmem__space_live(space))
        status = HVMEM_E_SPACE;
    else if (!space->pins)
        status = HVMEM_E_PHASE;
    else if (!--space->pins)
        hvmem__ident_unpin(ident, &space->tag);
    hvmem__unlock(&ident->host, &space->lock, HVMEM__RANK_SPACE, state);
    return status == HVMEM_OK ? HVMEM_OK : hvmem__ident_refuse(ident, status);
}

hvmem_status hvmem__space_attach(struct hvmem_space *space, hvmem_u64 *serial)
{
    struct hvmem_ident *ident = space->ident;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state = hvmem__lock(&ident->host, &space->lock, HVMEM__RANK_SPACE);

    if (hvmem__space_live(space)) {
        space->vcpus++;
        *serial = ++space->serials;
    } else {
        status = HVMEM_E_SPACE;
    }
    hvmem__unlock(&ident->host, &space->lock, HVMEM__RANK_SPACE, state);
    return status;
}

void hvmem__space_detach(struct hvmem_space *space)
{
    struct hvmem_ident *ident = space->ident;
    hvmem_u64 state = hvmem__lock(&ident->host, &space->lock, HVMEM__RANK_SPACE);

    space->vcpus--;
    hvmem__unlock(&ident->host, &space->lock, HVMEM__RANK_SPACE, state);
}
