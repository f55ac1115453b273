/* SPDX-License-Identifier: BSD-2-Clause */
/* bank.c: the directory, and the public bank calls. */
#include "bank.h"

#include "arena.h"
#include "claim.h"
#include "drain.h"
#include "flush.h"
#include "free.h"
#include "pcpu.h"
#include "run.h"
#include "settle.h"

#define MFN_LIMIT(heap) ((hvmem_u64)1 << (HVMEM_MADDR_BITS - (heap)->page_shift))

hvmem_status hvmem__bank_check(struct hvmem_heap *heap, const struct hvmem_bank *bank)
{
    if (!heap || !bank)
        return HVMEM_E_ARG;
    if (bank->size != sizeof *bank)
        return HVMEM_E_VERSION;
    if (bank->flags & ~(HVMEM_BANK_HOTPLUG | HVMEM_BANK_DIRTY))
        return HVMEM_E_ARG;
    if (!bank->frames)
        return HVMEM_E_COUNT;
    if (bank->base >= MFN_LIMIT(heap) || bank->frames > MFN_LIMIT(heap) - bank->base)
        return HVMEM_E_RANGE;
    if (bank->node >= HVMEM_NODE_LIMIT)
        return HVMEM_E_NODE;
    return HVMEM_OK;
}

/* ---- directory ------------------------------------------------------------------------------ */

/* Position of the first live bank with base > mfn. Admin lock held, or the caller checks. */
static hvmem_u32 upper_bound(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    hvmem_u32 lo = 0, hi = hvmem__load(&heap->banks);

    while (lo < hi) {
        hvmem_u32 mid = lo + (hi - lo) / 2;
        hvmem_u32 number = hvmem__load(&heap->order_of_banks[mid]);

        if (hvmem__load(&heap->bank[number].base) > mfn)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

struct hvmem__bank *hvmem__bank_of(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    for (;;) {
        hvmem_u32 before = hvmem__load_acquire(&heap->sequence);
        struct hvmem__bank *found = HVMEM_NULL;
        hvmem_u32 at;

        if (hvmem__unlikely(before & 1)) {
            hvmem__relax(&heap->host);
            continue;
        }
        at = upper_bound(heap, mfn);
        if (at) {
            found = &heap->bank[hvmem__load(&heap->order_of_banks[at - 1])];
            if (mfn - hvmem__load(&found->base) >= hvmem__load(&found->frames))
                found = HVMEM_NULL;
        }
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (hvmem__likely(hvmem__load(&heap->sequence) == before))
            return found;
    }
}

/* Begin and end a change of the directory: readers retry meanwhile. Admin lock held. */
static void directory_begin(struct hvmem_heap *heap)
{
    hvmem__store(&heap->sequence, heap->sequence + 1);
    if (heap->host.smp)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void directory_end(struct hvmem_heap *heap)
{
    hvmem__store_release(&heap->sequence, heap->sequence + 1);
}

/*
 * An arena of the node that another slot may share, or HVMEM__NO_ARENA: rather one that has no bank
 * now. Admin lock held.
 */
static hvmem_u32 arena_to_share(const struct hvmem_heap *heap, const struct hvmem__node *node)
{
    hvmem_u32 slot, found = HVMEM__NO_ARENA;

    for (slot = 0; slot < HVMEM__NODE_ARENAS; slot++) {
        hvmem_u32 index = node->arena[slot];

        if (index == HVMEM__NO_ARENA)
            continue;
        found = index;
        if (!heap->arena[index].first)
            break;
    }
    return found;
}

/*
 * The arena of a bank, made if its node has none in that slot yet. Arenas outlive their banks, for
 * others may be about to lock them: once there are as many as banks can be, slots of a node share, and
 * only a node that has none gets another. Admin lock held.
 */
static hvmem_u32 arena_for(struct hvmem_heap *heap, const struct hvmem__bank *b)
{
    hvmem_u32 slot = (hvmem_u32)(b->base >> heap->arena_order) & (HVMEM__NODE_ARENAS - 1);
    struct hvmem__node *node = &heap->node[b->node];
    hvmem_u32 index = node->arena[slot];

    if (index == HVMEM__NO_ARENA && heap->arenas >= heap->max_banks) {
        index = arena_to_share(heap, node);
        hvmem__store_release(&node->arena[slot], (hvmem_u16)index);
    }
    if (index == HVMEM__NO_ARENA) {
        struct hvmem__arena *arena = &heap->arena[heap->arenas];

        index = heap->arenas++;
        memset(arena, 0, sizeof *arena);
        arena->node = b->node;
        arena->slot = slot;
        arena->first = HVMEM_NULL;
        arena->counted = heap->claims_active;
        hvmem__arena_changed(arena);
        hvmem__store_release(&node->arena[slot], (hvmem_u16)index);
    }
    return index;
}

/* A bank comes into the directory, or leaves it. Admin lock held, and its arena's. */
static void enter_directory(struct hvmem_heap *heap, const struct hvmem__bank *b)
{
    hvmem_u32 at = upper_bound(heap, b->base), i;

    directory_begin(heap);
    for (i = heap->banks; i > at; i--)
        hvmem__store(&heap->order_of_banks[i], heap->order_of_banks[i - 1]);
    hvmem__store(&heap->order_of_banks[at], (hvmem_u32)(b - heap->bank));
    hvmem__store(&heap->banks, heap->banks + 1);
    directory_end(heap);
}

static void leave_directory(struct hvmem_heap *heap, const struct hvmem__bank *b)
{
    hvmem_u32 i = upper_bound(heap, b->base) - 1;

    directory_begin(heap);
    for (; i + 1 < heap->banks; i++)
        hvmem__store(&heap->order_of_banks[i], heap->order_of_banks[i + 1]);
    hvmem__store(&heap->banks, heap->banks - 1);
    directory_end(heap);
}

void hvmem__bank_link(struct hvmem_heap *heap, struct hvmem__bank *b)
{
    struct hvmem__bank **link, *before = HVMEM_NULL;
    struct hvmem__arena *arena;
    hvmem_u64 state;

    hvmem__store(&b->arena, arena_for(heap, b));
    arena = &heap->arena[b->arena];
    state = hvmem__lock_arena(heap, arena);
    for (link = &arena->first; *link && (*link)->base < b->base; link = &before->next)
        before = *link;
    b->next = *link;
    b->before = before;
    if (b->next)
        b->next->before = b;
    *link = b;
    hvmem__store_release(&b->live, 1u);
    hvmem__store(&arena->banks, arena->banks + 1);
    hvmem__arena_changed(arena);
    enter_directory(heap, b);
    hvmem__unlock_arena(heap, arena, state);
    heap->node[b->node].banks++;
    hvmem__store(&heap->node_mask, heap->node_mask | (hvmem_u64)1 << b->node);
}

hvmem_status hvmem__bank_unlink(struct hvmem_heap *heap, struct hvmem__bank *b)
{
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);
    hvmem_u64 state = hvmem__lock_arena(heap, arena);

    if (b->reserved_frames != b->frames) {
        hvmem__unlock_arena(heap, arena, state);
        return HVMEM_E_BUSY;
    }
    leave_directory(heap, b);
    if (b->before)
        b->before->next = b->next;
    else
        arena->first = b->next;
    if (b->next)
        b->next->before = b->before;
    hvmem__store(&b->live, 0u);
    hvmem__store(&arena->banks, arena->banks - 1);
    hvmem__arena_changed(arena);
    hvmem__unlock_arena(heap, arena, state);
    if (--heap->node[b->node].banks == 0)
        hvmem__store(&heap->node_mask, heap->node_mask & ~((hvmem_u64)1 << b->node));
    return HVMEM_OK;
}

void hvmem__bank_unmark(struct hvmem_heap *heap, struct hvmem__bank *b)
{
    hvmem_u64 state;
    struct hvmem__arena *arena = hvmem__bank_lock(heap, b, &state);

    if (!arena)
        return;
    hvmem__store(&b->marked, 0u);
    hvmem__table_changes(b->table);
    hvmem__unlock_arena(heap, arena, state);
}

/* A slot that no bank or hot-plug range uses, or NULL. Admin lock held. */
static struct hvmem__bank *unused_bank(struct hvmem_heap *heap)
{
    hvmem_u32 i;

    /* Slots are filled in order, so that the search rarely goes on. */
    for (i = 0; i < heap->max_banks; i++) {
        struct hvmem__bank *b = &heap->bank[(heap->next_bank + i) % heap->max_banks];

        if (!b->live && !b->leaving && !b->hotplug) {
            heap->next_bank = (hvmem_u32)(b - heap->bank) + 1;
            return b;
        }
    }
    return HVMEM_NULL;
}

/* Whether [base, base + frames) meets a bank, one that is leaving included. Admin lock held. */
static int overlaps(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames)
{
    hvmem_u32 at = upper_bound(heap, base + (frames - 1)), i;
    const struct hvmem__bank *b;

    for (i = 0; heap->leaving && i < heap->max_banks; i++) {
        b = &heap->bank[i];
        if (b->leaving && b->base < base + frames && base < b->base + b->frames)
            return 1;
    }
    if (!at)
        return 0;
    b = &heap->bank[heap->order_of_banks[at - 1]];
    return b->base + b->frames > base;
}

static hvmem_u32 unused_banks(const struct hvmem_heap *heap)
{
    return heap->max_banks - heap->banks - heap->hotplugs - heap->leaving;
}

/* Pieces and bytes of a whole bank. */
static hvmem_size measure(struct hvmem_heap *heap, const struct hvmem_bank *bank, hvmem_u64 *pieces)
{
    hvmem_mfn at = bank->base, end = bank->base + bank->frames;
    hvmem_size bytes = 0;

    *pieces = 0;
    while (at < end) {
        hvmem_u64 frames = hvmem__piece_frames(heap, at, end);
        /* Whole spans are all alike. */
        hvmem_u64 alike = frames >> heap->arena_order ? (end - at) >> heap->arena_order : 1;

        bytes += hvmem__piece_bytes(heap, at, frames) * (hvmem_size)alike;
        *pieces += alike;
        at += frames * alike;
    }
    return bytes;
}

/* Put every frame of a new bank into the free set: one step a max-order block. */
static void free_all(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_u32 owed)
{
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);
    hvmem_mfn at = b->base, end = b->base + b->frames;

    while (at < end) {
        hvmem_u32 order = hvmem__fit(heap, at, end - at);
        hvmem_u64 state;
        hvmem_u32 work;

        (void)HVMEM_TEST_POINT("bank_fill");
        state = hvmem__lock_arena(heap, arena);
        hvmem__claim_give(heap, arena, (hvmem_u64)1 << order);
        work = hvmem__arena_give(
            heap, arena, b, at,
            hvmem__rec_with_owed(hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0), owed));
        hvmem__unlock_arena(heap, arena, state);
        hvmem__give_on(heap, at, work);
        at += (hvmem_u64)1 << order;
    }
    hvmem__store(&b->filling, 0u);
}

hvmem_status hvmem__bank_admit(struct hvmem_heap *heap, const struct hvmem_bank *bank, void *table,
                               hvmem_size bytes)
{
    hvmem_u64 pieces;

    if (bank->flags & HVMEM_BANK_HOTPLUG)
        return unused_banks(heap) ? HVMEM_OK : HVMEM_E_COUNT;
    if (overlaps(heap, bank->base, bank->frames))
        return HVMEM_E_OVERLAP;
    if (!table || ((hvmem_uptr)table & (HVMEM_LINE - 1)) || bytes < measure(heap, bank, &pieces))
        return HVMEM_E_BUFFER;
    return pieces <= unused_banks(heap) ? HVMEM_OK : HVMEM_E_COUNT;
}

struct hvmem__bank *hvmem__bank_make(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                                     hvmem_mfn base, hvmem_u64 frames)
{
    struct hvmem__bank *b = unused_bank(heap);

    HVMEM__ASSERT(&heap->host, b);
    /* The sets are laid out later; what is before is looked at by whoever found the bank that was here. */
    memset(&b->next, 0,
           __builtin_offsetof(struct hvmem__bank, head) -
               __builtin_offsetof(struct hvmem__bank, next));
    hvmem__store(&b->base, base);
    hvmem__store(&b->frames, frames);
    hvmem__store(&b->node, bank->node);
    b->group_base = bank->base;
    b->group_frames = bank->frames;
    return b;
}

/* A range for node look-up only. Admin lock held. */
static void make_hotplug(struct hvmem_heap *heap, const struct hvmem_bank *bank)
{
    hvmem__store(&hvmem__bank_make(heap, bank, bank->base, bank->frames)->hotplug, 1);
    heap->hotplugs++;
}

/* Cut a bank that was admitted into pieces, lay them out and link them. Admin lock held. */
static void add_pieces(struct hvmem_heap *heap, const struct hvmem_bank *bank, void *table)
{
    hvmem_mfn at = bank->base, end = bank->base + bank->frames;
    hvmem_u32 owed = bank->flags & HVMEM_BANK_DIRTY ? hvmem__owed_by_unknown(heap) : 0;
    hvmem_u8 *memory = table;

    while (at < end) {
        hvmem_u64 frames = hvmem__piece_frames(heap, at, end);
        struct hvmem__bank *b = hvmem__bank_make(heap, bank, at, frames);

        hvmem__bank_layout(heap, b, memory, 1);
        memory += hvmem__piece_bytes(heap, at, frames);
        hvmem__store(&b->filling, 1u);
        hvmem__bank_link(heap, b);
        free_all(heap, b, owed);
        at += frames;
    }
}

/* ---- public --------------------------------------------------------------------------------- */

hvmem_status hvmem_bank_size(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                             hvmem_size *bytes)
{
    hvmem_status status = bytes ? hvmem__bank_check(heap, bank) : HVMEM_E_ARG;
    hvmem_u64 pieces;

    if (!heap)
        return HVMEM_E_ARG;
    if (status)
        return hvmem__refuse(heap, status, bank ? bank->base : 0, HVMEM_ORDER_ANY, 0);
    *bytes = bank->flags & HVMEM_BANK_HOTPLUG ? 0 : measure(heap, bank, &pieces);
    return HVMEM_OK;
}

hvmem_status hvmem_bank_add(struct hvmem_heap *heap, const struct hvmem_bank *bank, void *table,
                            hvmem_size bytes)
{
    hvmem_status status = hvmem__bank_check(heap, bank);
    hvmem_u64 state, nodes;

    if (!heap)
        return HVMEM_E_ARG;
    if (!status && heap->adopting)
        status = HVMEM_E_PHASE;
    if (status)
        return hvmem__refuse(heap, status, bank ? bank->base : 0, HVMEM_ORDER_ANY, 0);
    state = hvmem__lock_admin(heap);
    nodes = heap->node_mask;
    status = hvmem__bank_admit(heap, bank, table, bytes);
    if (!status && (bank->flags & HVMEM_BANK_HOTPLUG))
        make_hotplug(heap, bank);
    else if (!status)
        add_pieces(heap, bank, table);
    nodes ^= heap->node_mask;
    hvmem__unlock_admin(heap, state);
    /* CPUs near a node that had no memory so far cache frames of another, and free to there. */
    if (nodes) {
        /* A cache that cannot be entered does both by itself before it is used again. */
        (void)hvmem__pcpu_forget_banks(heap);
        (void)hvmem__pcpu_drain_all(heap);
    }
    if (!status)
        hvmem__watch(heap);
    return status ? hvmem__refuse(heap, status, bank->base, HVMEM_ORDER_ANY, bank->frames)
                  : HVMEM_OK;
}

hvmem_status hvmem_node_of(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_node *node)
{
    struct hvmem__bank *b;
    hvmem_u32 i;

    if (!heap)
        return HVMEM_E_ARG;
    if (!node)
        return hvmem__refuse(heap, HVMEM_E_ARG, mfn, HVMEM_ORDER_ANY, 0);
    b = hvmem__bank_of(heap, mfn);
    for (i = 0; !b && i < heap->max_banks; i++)
        if (heap->bank[i].hotplug && hvmem__bank_holds(&heap->bank[i], mfn))
            b = &heap->bank[i];
    if (!b)
        return hvmem__refuse(heap, HVMEM_E_FOREIGN, mfn, HVMEM_ORDER_ANY, 0);
    *node = b->node;
    return HVMEM_OK;
}
