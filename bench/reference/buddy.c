/* SPDX-License-Identifier: BSD-2-Clause */
/* The textbook buddy allocator; see buddy.h. */
#include "buddy.h"

static void lock(struct buddy *buddy)
{
    while (__atomic_exchange_n(&buddy->lock, 1, __ATOMIC_ACQUIRE) != 0) {
        while (__atomic_load_n(&buddy->lock, __ATOMIC_RELAXED) != 0)
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
}

static void unlock(struct buddy *buddy)
{
    __atomic_store_n(&buddy->lock, 0, __ATOMIC_RELEASE);
}

static void push(struct buddy *buddy, uint32_t frame, unsigned order)
{
    struct buddy_page *page = &buddy->page[frame];
    uint32_t first = buddy->head[order];

    page->next = first;
    page->prev = BUDDY_NONE;
    page->order = (uint8_t)order;
    page->free = 1;
    if (first != BUDDY_NONE)
        buddy->page[first].prev = frame;
    buddy->head[order] = frame;
    buddy->nonempty |= 1u << order;
}

static void unlink_block(struct buddy *buddy, uint32_t frame, unsigned order)
{
    struct buddy_page *page = &buddy->page[frame];

    if (page->next != BUDDY_NONE)
        buddy->page[page->next].prev = page->prev;
    if (page->prev != BUDDY_NONE)
        buddy->page[page->prev].next = page->next;
    else
        buddy->head[order] = page->next;
    if (buddy->head[order] == BUDDY_NONE)
        buddy->nonempty &= ~(1u << order);
    page->free = 0;
}

size_t buddy_bytes(uint32_t frames)
{
    return sizeof(struct buddy) + 64 + (size_t)frames * sizeof(struct buddy_page);
}

struct buddy *buddy_init(void *memory, uint32_t frames)
{
    struct buddy *buddy = memory;
    uint32_t frame;
    unsigned order;

    buddy->lock = 0;
    buddy->frames = frames;
    buddy->free_frames = frames;
    buddy->nonempty = 0;
    buddy->page = (struct buddy_page *)(((uintptr_t)(buddy + 1) + 63) & ~(uintptr_t)63);
    for (order = 0; order <= BUDDY_MAX_ORDER; order++)
        buddy->head[order] = BUDDY_NONE;
    for (frame = 0; frame < frames; frame++)
        buddy->page[frame] = (struct buddy_page){.next = BUDDY_NONE, .prev = BUDDY_NONE};
    /* From the top down, so that the lists begin with the lowest address. */
    while (frame > 0) {
        order = (unsigned)__builtin_ctz(frame);
        if (order > BUDDY_MAX_ORDER)
            order = BUDDY_MAX_ORDER;
        frame -= 1u << order;
        push(buddy, frame, order);
    }
    return buddy;
}

uint32_t buddy_alloc(struct buddy *buddy, unsigned order)
{
    uint32_t frame = BUDDY_NONE;
    uint32_t fit;
    unsigned k;

    lock(buddy);
    fit = buddy->nonempty >> order << order;
    if (fit != 0) {
        k = (unsigned)__builtin_ctz(fit);
        frame = buddy->head[k];
        unlink_block(buddy, frame, k);
        while (k > order) {
            k--;
            push(buddy, frame + (1u << k), k);
        }
        buddy->page[frame].order = (uint8_t)order;
        buddy->free_frames -= 1u << order;
    }
    unlock(buddy);
    return frame;
}

void buddy_free(struct buddy *buddy, uint32_t frame, unsigned order)
{
    lock(buddy);
    buddy->free_frames += 1u << order;
    while (order < BUDDY_MAX_ORDER) {
        uint32_t other = frame ^ (1u << order);

        if (other >= buddy->frames || !buddy->page[other].free || buddy->page[other].order != order)
            break;
        unlink_block(buddy, other, order);
        frame &= ~(1u << order);
        order++;
    }
    push(buddy, frame, order);
    unlock(buddy);
}
