/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * space.h: a translation space and its cell on each CPU.
 *
 * INVARIANTS:
 *  - bit c of `holders` is set if CPU c may hold a translation under a number of the space that can
 *    be loaded for it again. Set by CPU c before it loads the space, cleared by CPU c after a flush.
 *  - cell[c].seen is the change count up to which CPU c flushed under the space's present number.
 *  - LIVE -> DYING is decided under the lock, while no CPU has the space as loaded or leaving; a CPU
 *    that announced itself and then finds the space not LIVE takes the lock to learn which it was.
 * A cell belongs to its CPU; nobody else reads it.
 */
#ifndef HVMEM_LIB_SPACE_H
#define HVMEM_LIB_SPACE_H

#include <hvmem/space.h>

#include "ident.h"

#define HVMEM__SPACE_LIVE  0x4c495645u
#define HVMEM__SPACE_DYING 0x4459494eu
#define HVMEM__SPACE_DEAD  0x44454144u

/* GONE: and no CPU has had the space loaded since they were flushed for. */
#define HVMEM__TABLES_NONE 0u
#define HVMEM__TABLES_LIVE 1u
#define HVMEM__TABLES_GONE 2u

struct hvmem__space_cell {
    hvmem_u64 seen;   /* changes flushed */
    hvmem_u64 tag;    /* the space's last tag on this CPU; 0 none */
    hvmem_u64 runner; /* serial of the vCPU that ran here last, 0 none */
    hvmem_u64
        runner_flushes; /* that vCPU's count of posts and moves up to which they are done here */
    hvmem_u64 unused[4];
};
HVMEM_STATIC_ASSERT(sizeof(struct hvmem__space_cell) == HVMEM_LINE, space_cell_is_a_line);

struct hvmem_space {
    /* Read by every switch, seldom written. */
    hvmem_u32 state; /* HVMEM__SPACE_* */
    hvmem_u32 flags;
    hvmem_u32 regime;
    hvmem_u32 retires; /* own numbering: taking a new number is the way to flush one guest */
    hvmem_u64 root;
    struct hvmem__ident_tag tag; /* common numbering */
    struct hvmem_ident *ident;
    struct hvmem__space_cell *cells;
    hvmem_u64 *holders;

    hvmem_u64 changes; /* written by every flush; its own line */
    hvmem_u64 unused_b[7];

    struct hvmem_lock lock; /* rank SPACE; guards what follows and the way out of LIVE */
    hvmem_u32 pins;
    hvmem_u32 vcpus;   /* attached */
    hvmem_u64 serials; /* handed to vCPUs, from 1 */

    hvmem_u32 guest;  /* id of the domain that it was attached to last, 0: none; atomic */
    hvmem_u32 tables; /* HVMEM__TABLES_*: a stage 2's of the library; atomic */
};

/* The vCPU a space is entered for. */
struct hvmem__runner {
    hvmem_u64 serial;
    hvmem_u64 flushes; /* posted for it so far, and moves */
};

/* hvmem_space_activate(), for a vCPU if `runner` is not NULL. */
hvmem_status hvmem__space_activate(struct hvmem_space *space, hvmem_cpu cpu,
                                   const struct hvmem__runner *runner, struct hvmem_entry *entry);

/* A vCPU comes or goes: HVMEM_E_SPACE if the space is not live. Takes the SPACE lock. */
hvmem_status hvmem__space_attach(struct hvmem_space *space, hvmem_u64 *serial);
void hvmem__space_detach(struct hvmem_space *space);

/*
 * The space's tables are those of a stage 2 with this root, by which they are cached (EPT) or not, and no CPU has
 * the space loaded yet; 0: they are another's, or the space's flushes would not reach what is cached of them.
 * What is cached of a space is told apart by its number, or root, alone: hardware would take two stage 2s
 * for each other, and a flush would name one root. Their end: everything under the space's number has been
 * invalidated, and no CPU may load it before it has tables again.
 */
int hvmem__space_take_tables(struct hvmem_space *space, hvmem_u64 root, int by_root);
void hvmem__space_drop_tables(struct hvmem_space *space);

/* Local or broadcast invalidation of everything under `id`, in `regime`, of the space. */
hvmem_status hvmem__space_flush_id(const struct hvmem_space *space, hvmem_u32 regime, hvmem_u32 id,
                                   hvmem_u32 scope);

/* Whether `cpu` announced that it runs the space, or may still. */
HVMEM_INLINE int hvmem__space_loaded_on(const struct hvmem_space *space, hvmem_cpu cpu)
{
    const struct hvmem__ident_cpu *c = &space->ident->cpus[cpu];

    /* In this order: a switch notes the space as `leaving` before it replaces `loaded`. */
    return __atomic_load_n(&c->loaded, __ATOMIC_SEQ_CST) == space ||
           __atomic_load_n(&c->leaving, __ATOMIC_SEQ_CST) == space;
}

HVMEM_INLINE int hvmem__space_live(const struct hvmem_space *space)
{
    return __atomic_load_n(&space->state, __ATOMIC_SEQ_CST) == HVMEM__SPACE_LIVE;
}

/* Clear the CPU's bit among the holders; by that CPU, after its flush. */
HVMEM_INLINE void hvmem__space_forget(struct hvmem_space *space, hvmem_cpu cpu)
{
    __atomic_fetch_and(&space->holders[cpu >> 6], ~((hvmem_u64)1 << (cpu & 63)), __ATOMIC_SEQ_CST);
}

#endif
