/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * passage.h: how far cleans of ranges in steps are. A cursor only names one, by a serial that each step gets
 * anew: one that was replayed, forged or meant for another range names none. While a call is at work its
 * passage is in nobody's table. Those that their callers forgot are given up once others want the place.
 */
#ifndef HVMEM_LIB_PASSAGE_H
#define HVMEM_LIB_PASSAGE_H

#include <hvmem/cache.h>

#include "lock.h"

struct hvmem__passage {
    hvmem_u64 serial;  /* 0: free */
    hvmem_u64 what[3]; /* what it is about, compared as a whole */
    hvmem_u64 at, inside;
    hvmem_u64 turn; /* of the table when it was put in */
};

/* Turns after which one that nobody went on with is taken for forgotten. */
#define HVMEM__PASSAGE_TURNS (4u * HVMEM_CLEANS)

struct hvmem__passages {
    struct hvmem_lock lock; /* rank LEAF */
    hvmem_u64 turn;         /* steps that ended; under lock, as all that follows */
    struct hvmem__passage of[HVMEM_CLEANS];
};

/*
 * Begin, with a zero cursor (at and inside are 0 then), or take out what the cursor of `kind` names:
 * *passage is the caller's copy. E_STALE. A leaf lock inside.
 */
hvmem_status hvmem__passage_enter(struct hvmem_heap *heap, struct hvmem__passages *passages,
                                  hvmem_u64 kind, const hvmem_u64 what[3],
                                  const struct hvmem_cursor *cursor,
                                  struct hvmem__passage *passage);

/*
 * Leave with the status of the step: HVMEM_AGAIN puts the passage in and has the cursor name it, anything
 * else zeroes the cursor. E_BUSY: as many as are kept are under way. A leaf lock inside.
 */
hvmem_status hvmem__passage_leave(struct hvmem_heap *heap, struct hvmem__passages *passages,
                                  hvmem_u64 kind, const struct hvmem__passage *passage,
                                  hvmem_status status, struct hvmem_cursor *cursor);

#endif
