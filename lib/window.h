/* SPDX-License-Identifier: BSD-2-Clause */
/* window.h: where a block may lie, how far the search for it has come, and what it found. */
#ifndef HVMEM_LIB_WINDOW_H
#define HVMEM_LIB_WINDOW_H

#include "hold.h"

/*
 * How far a search has come. It goes by order, within an order by bank, within a bank by address. The lock
 * is dropped when the work of one hold is used up, and the search goes on from here.
 */
struct hvmem__place {
    struct hvmem__bank *bank; /* NULL: at its beginning */
    hvmem_u32 links;          /* of the arena: others than then, and the bank may be gone */
    hvmem_u64 moves;          /* of the arena when the search began */
    hvmem_u32 order;          /* of the set that is searched */
    hvmem_u32 above;          /* the next higher one of the banks passed */
    hvmem_u32 looks;          /* at blocks of the set */
    hvmem_mfn from;           /* blocks of the set below were looked at */
};

/*
 * Where a block may lie: [lo, hi); debts it must not have; for order 0 the colour of the frame.
 * A search looks at HVMEM__SEARCH_STEPS blocks of a set at most. If that cut it short, `cut` is set
 * to a frame such that every block below it was looked at: search again from there.
 */
struct hvmem__window {
    hvmem_mfn lo;
    hvmem_mfn hi;
    hvmem_u32 avoid;   /* HVMEM_OWES_*: skip blocks owing any of these; a flush, if not mature */
    hvmem_u32 largest; /* blocks of a higher order are not split; 0: any */
    hvmem_u32 colour_shift;
    hvmem_u32 anywhere;    /* 1: any block will do; the window is there to count the work */
    hvmem_u64 colour_mask; /* 0: any colour */
    hvmem_u64 colour;
    hvmem_mfn cut;             /* out; HVMEM__NOT_CUT if the search was complete */
    struct hvmem__hold hold;   /* of the arena's lock; a step: the search moves on */
    hvmem_u32 restarts;        /* for banks that were added or removed */
    hvmem_u32 passed_order;    /* of sets up to this one ... */
    hvmem_mfn passed;          /* ... blocks below this frame are known not to do */
    struct hvmem__place place; /* .bank NULL before a search begins */
};
#define HVMEM__SEARCH_STEPS 64u
#define HVMEM__NOT_CUT      (~(hvmem_u64)0)

/*
 * Work of a hold that looks for a block and takes it, in tens of instructions, and what must be left of
 * it when the block was found: else it is taken under the next hold.
 */
#define HVMEM__SEARCH_WORK HVMEM__PER_HOLD(60u)
#define HVMEM__TAKE_WORK   56u

/* A window that allows everything, for arenas whose banks are too many to be passed under one hold. */
HVMEM_INLINE void hvmem__window_all(struct hvmem__window *window)
{
    memset(window, 0, sizeof *window);
    window->hi = ~(hvmem_mfn)0;
    window->anywhere = 1;
}

/*
 * A block that was found is taken. What is left of it goes to lower orders and higher frames: whoever
 * searches for more of the kind need not look again at what was looked at before.
 */
HVMEM_INLINE void hvmem__window_passed(struct hvmem__window *w, hvmem_mfn head, hvmem_u32 order)
{
    w->passed = head;
    w->passed_order = order;
}

/* A free block that a search found. */
struct hvmem__spot {
    struct hvmem__bank *bank; /* of its head */
    hvmem_mfn head;
    hvmem_mfn at; /* the block inside it that was asked for */
    hvmem_u32 order;
};

#endif
