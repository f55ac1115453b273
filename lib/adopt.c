/* SPDX-License-Identifier: BSD-2-Clause */
/* adopt.c: quiescing a heap, taking over its tables in place, and quarantine. */
#include "audit.h"
#include "claim.h"
#include "domain.h"
#include "free.h"
#include "pcpu.h"

/* Blocks checked or taken over in one step. */
#define ADOPT_STEPS 256u

/* Everything that is owed at worst: for frames found in flight. */
#define OWES_WORST (HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN)

hvmem_status hvmem_quiesce(struct hvmem_heap *heap)
{
    hvmem_u64 state;
    hvmem_u32 i;

    hvmem__pcpu_drain_all(heap);
    state = hvmem__lock_admin(heap);
    for (i = 0; i < heap->max_banks; i++) {
        struct hvmem__bank *b = &heap->bank[i];
        struct hvmem__arena *arena;
        hvmem_u64 arena_state;

        if (!b->live)
            continue;
        arena = hvmem__arena_of(heap, b);
        arena_state = hvmem__lock_arena(heap, arena);
        b->table->clock = heap->clock;
        b->table->clean = 1;
        hvmem__unlock_arena(heap, arena, arena_state);
    }
    hvmem__unlock_admin(heap, state);
    return HVMEM_OK;
}
