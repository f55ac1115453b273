/* SPDX-License-Identifier: BSD-2-Clause */
/* passage.c: the table of cleans under way. */
#include "passage.h"

#include "heap.h"

static int is_zero(const struct hvmem_cursor *cursor)
{
    return !(cursor->words[0] | cursor->words[1] | cursor->words[2] | cursor->words[3]);
}

/* What the cursor names, or NULL. Lock held. */
static struct hvmem__passage *find(struct hvmem__passages *passages, const hvmem_u64 what[3],
                                   const struct hvmem_cursor *cursor)
{
    hvmem_u32 i;

    for (i = 0; i < HVMEM_CLEANS; i++) {
        struct hvmem__passage *p = &passages->of[i];

        if (p->serial && p->serial == cursor->words[1] && p->what[0] == what[0] &&
            p->what[1] == what[1] && p->what[2] == what[2])
            return p;
    }
    return HVMEM_NULL;
}

/* A free place, or that of one which was forgotten, or NULL. Lock held. */
static struct hvmem__passage *place(struct hvmem__passages *passages)
{
    struct hvmem__passage *oldest = &passages->of[0];
    hvmem_u32 i;

    for (i = 0; i < HVMEM_CLEANS; i++) {
        struct hvmem__passage *p = &passages->of[i];

        if (!p->serial)
            return p;
        if (p->turn < oldest->turn)
            oldest = p;
    }
    return passages->turn - oldest->turn > HVMEM__PASSAGE_TURNS ? oldest : HVMEM_NULL;
}

hvmem_status hvmem__passage_enter(struct hvmem_heap *heap, struct hvmem__passages *passages,
                                  hvmem_u64 kind, const hvmem_u64 what[3],
                                  const struct hvmem_cursor *cursor, struct hvmem__passage *passage)
{
    struct hvmem__passage *found;
    hvmem_u64 state;

    memset(passage, 0, sizeof *passage);
    memcpy(passage->what, what, sizeof passage->what);
    if (is_zero(cursor))
        return HVMEM_OK;
    if (cursor->words[0] != kind || cursor->words[2] || cursor->words[3])
        return HVMEM_E_STALE;
    state = hvmem__lock(&heap->host, &passages->lock, HVMEM__RANK_LEAF);
    found = find(passages, what, cursor);
    if (found) {
        *passage = *found;
        found->serial = 0;
    }
    hvmem__unlock(&heap->host, &passages->lock, HVMEM__RANK_LEAF, state);
    return found ? HVMEM_OK : HVMEM_E_STALE;
}

hvmem_status hvmem__passage_leave(struct hvmem_heap *heap, struct hvmem__passages *passages,
                                  hvmem_u64 kind, const struct hvmem__passage *passage,
                                  hvmem_status status, struct hvmem_cursor *cursor)
{
    struct hvmem__passage *to;
    hvmem_u64 state;

    memset(cursor, 0, sizeof *cursor);
    if (status != HVMEM_AGAIN)
        return status;
    state = hvmem__lock(&heap->host, &passages->lock, HVMEM__RANK_LEAF);
    passages->turn++;
    to = place(passages);
    if (to) {
        *to = *passage;
        to->serial = hvmem__next_serial(heap);
        to->turn = passages->turn;
        cursor->words[0] = kind;
        cursor->words[1] = to->serial;
    }
    hvmem__unlock(&heap->host, &passages->lock, HVMEM__RANK_LEAF, state);
    return to ? HVMEM_AGAIN : HVMEM_E_BUSY;
}
