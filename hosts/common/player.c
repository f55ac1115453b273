/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The player: one pass over a CPU's records. A slot word goes from empty to live (or failed) on the
 * CPU that allocates, and from live to freed on the one CPU that frees.
 */
#include "player.h"

/* Slot words. Live: handle << 6 | order << 1 | 1. */
#define SLOT_EMPTY  0u
#define SLOT_FREED  2u
#define SLOT_FAILED 4u
#define ORDER_LIMIT 31u
#define HANDLE_BITS 58

/* How often a wait turns before it looks at the clock again. */
#define TURNS_PER_LOOK 64u

static hvmem_u64 live_word(hvmem_u64 handle, hvmem_u32 order)
{
    return handle << 6 | (hvmem_u64)order << 1 | 1u;
}

static int is_live(hvmem_u64 word)
{
    return (int)(word & 1u);
}

static hvmem_u32 word_order(hvmem_u64 word)
{
    return (hvmem_u32)(word >> 1) & ORDER_LIMIT;
}

static int header_is_sound(const struct replay_header *header, hvmem_size bytes)
{
    hvmem_size left;
    hvmem_u32 cpu;

    if (bytes < sizeof *header || header->magic != REPLAY_MAGIC ||
        header->bytes != sizeof *header || header->cpus == 0 || header->cpus > REPLAY_MAX_CPUS)
        return 0;
    left = (bytes - sizeof *header) / sizeof(struct replay_record);
    for (cpu = 0; cpu < REPLAY_MAX_CPUS; cpu++) {
        if (header->records[cpu] > left || header->peak_at[cpu] > header->records[cpu])
            return 0;
        if (cpu >= header->cpus && header->records[cpu] != 0)
            return 0;
        left -= header->records[cpu];
    }
    return left == 0 && (bytes - sizeof *header) % sizeof(struct replay_record) == 0;
}

hvmem_size replay_slot_bytes(const void *trace, hvmem_size bytes)
{
    const struct replay_header *header = trace;

    if (trace == (const void *)0 || (hvmem_uptr)trace % 8 != 0 || !header_is_sound(header, bytes))
        return 0;
    return ((hvmem_size)header->slots + 1) * sizeof(hvmem_u64);
}

hvmem_status replay_open(struct replay *replay, const void *trace, hvmem_size bytes, void *slots,
                         hvmem_size slot_bytes, const struct replay_ops *ops, void *ctx,
                         hvmem_u64 wait_limit)
{
    const struct replay_record *next;
    hvmem_size needed;
    hvmem_u32 i;

    if (replay == (void *)0 || trace == (const void *)0 || slots == (void *)0 ||
        ops == (const void *)0)
        return HVMEM_E_ARG;
    if ((hvmem_uptr)trace % 8 != 0 || (hvmem_uptr)slots % 8 != 0)
        return HVMEM_E_ALIGN;
    needed = replay_slot_bytes(trace, bytes);
    if (needed == 0)
        return HVMEM_E_ARG;
    if (slot_bytes < needed)
        return HVMEM_E_BUFFER;
    replay->header = trace;
    next = (const struct replay_record *)(const void *)(replay->header + 1);
    for (i = 0; i < REPLAY_MAX_CPUS; i++) {
        replay->stream[i] = next;
        next += replay->header->records[i];
    }
    replay->slot = slots;
    for (i = 0; i < replay->header->slots; i++)
        replay->slot[i] = SLOT_EMPTY;
    replay->ops = ops;
    replay->ctx = ctx;
    replay->wait_limit = wait_limit;
    replay->stopped = 0;
    return HVMEM_OK;
}

static hvmem_status play_alloc(struct replay *replay, hvmem_u32 cpu,
                               const struct replay_record *record, struct replay_result *result)
{
    hvmem_u64 *slot = &replay->slot[record->value];
    hvmem_u64 handle = 0;
    hvmem_status status;

    if (*slot != SLOT_EMPTY || record->order > ORDER_LIMIT)
        return HVMEM_E_ARG;
    status = replay->ops->alloc(replay->ctx, cpu, record->order, record->use, &handle);
    if (status == HVMEM_OK && handle >> HANDLE_BITS != 0)
        return HVMEM_E_RANGE;
    if (status == HVMEM_OK) {
        result->allocs++;
        __atomic_store_n(slot, live_word(handle, record->order), __ATOMIC_RELEASE);
    } else if (status == HVMEM_E_NOMEM) {
        result->no_memory++;
        __atomic_store_n(slot, (hvmem_u64)SLOT_FAILED, __ATOMIC_RELEASE);
        status = HVMEM_OK;
    }
    return status;
}

/* Wait until the slot is no longer empty; bounded by wait_limit. */
static hvmem_status wait_for(struct replay *replay, const hvmem_u64 *slot, hvmem_u64 *word,
                             struct replay_result *result)
{
    hvmem_u64 begin = replay->ops->now(replay->ctx);
    hvmem_u64 passed = 0;
    hvmem_status status = HVMEM_E_TIMEOUT;
    hvmem_u32 turn;

    result->waits++;
    do {
        for (turn = 0; turn < TURNS_PER_LOOK; turn++) {
            *word = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
            if (*word != SLOT_EMPTY || __atomic_load_n(&replay->stopped, __ATOMIC_RELAXED) != 0) {
                status = *word != SLOT_EMPTY ? HVMEM_OK : HVMEM_E_BUSY;
                break;
            }
            replay->ops->relax(replay->ctx);
        }
        passed = replay->ops->now(replay->ctx) - begin;
    } while (status == HVMEM_E_TIMEOUT && passed <= replay->wait_limit);
    result->wait_time += passed;
    return status;
}

static hvmem_status play_free(struct replay *replay, hvmem_u32 cpu,
                              const struct replay_record *record, struct replay_result *result)
{
    hvmem_u64 *slot = &replay->slot[record->value];
    hvmem_u64 word = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    hvmem_status status = HVMEM_OK;

    if (word == SLOT_EMPTY)
        status = wait_for(replay, slot, &word, result);
    if (status != HVMEM_OK)
        return status;
    if (word == SLOT_FAILED) {
        result->lost_frees++;
        *slot = SLOT_FREED;
        return HVMEM_OK;
    }
    if (!is_live(word) || word_order(word) != record->order)
        return HVMEM_E_ARG;
    status = replay->ops->free(replay->ctx, cpu, record->order, word >> 6);
    if (status != HVMEM_OK)
        return status;
    *slot = SLOT_FREED;
    result->frees++;
    result->freed_first += record->kind == REPLAY_FREE_FIRST;
    return HVMEM_OK;
}

static hvmem_status play_flush(struct replay *replay, hvmem_u32 cpu,
                               const struct replay_record *record, struct replay_result *result)
{
    hvmem_u32 pages = record->value;
    hvmem_u32 what = record->use == 4 ? REPLAY_OTHER : REPLAY_LOCAL;

    if (record->use == 1 || record->use == 5) {
        result->flush_counted++;
        return HVMEM_OK;
    }
    if (record->use > 5) {
        result->flush_unknown++;
        return HVMEM_OK;
    }
    /* A task switch either flushes everything or nothing: it has no addresses. */
    if (pages == 0 || (record->use == 0 && pages != REPLAY_FULL)) {
        result->flush_nothing++;
        return HVMEM_OK;
    }
    if (pages == REPLAY_FULL) {
        result->flush_full[what]++;
    } else {
        result->flush_range[what]++;
        result->flush_pages[what] += pages;
    }
    if (!replay->ops->flush)
        return HVMEM_OK;
    return replay->ops->flush(replay->ctx, cpu, what, pages);
}

static hvmem_status play_record(struct replay *replay, hvmem_u32 cpu,
                                const struct replay_record *record, struct replay_result *result)
{
    if (record->kind == REPLAY_FLUSH)
        return play_flush(replay, cpu, record, result);
    if (record->kind == REPLAY_FOREIGN) {
        result->foreign++;
        return HVMEM_OK;
    }
    if (record->value >= replay->header->slots)
        return HVMEM_E_ARG;
    if (record->kind == REPLAY_ALLOC)
        return play_alloc(replay, cpu, record, result);
    if (record->kind == REPLAY_FREE || record->kind == REPLAY_FREE_FIRST)
        return play_free(replay, cpu, record, result);
    return HVMEM_E_ARG;
}

hvmem_status replay_play(struct replay *replay, hvmem_u32 cpu, hvmem_u32 from, hvmem_u32 to,
                         struct replay_result *result)
{
    const struct replay_record *record;
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i;

    if (cpu >= replay->header->cpus)
        return HVMEM_E_CPU;
    if (from > replay->header->records[cpu])
        return HVMEM_E_RANGE;
    if (to > replay->header->records[cpu])
        to = replay->header->records[cpu];
    record = replay->stream[cpu];
    for (i = from; i < to && status == HVMEM_OK; i++)
        status = play_record(replay, cpu, &record[i], result);
    if (status != HVMEM_OK)
        __atomic_store_n(&replay->stopped, 1u, __ATOMIC_RELAXED);
    return status;
}

hvmem_status replay_free_rest(struct replay *replay, hvmem_u32 cpu, hvmem_u64 *freed)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i;

    for (i = 0; i < replay->header->slots && status == HVMEM_OK; i++) {
        hvmem_u64 word = replay->slot[i];

        if (!is_live(word))
            continue;
        status = replay->ops->free(replay->ctx, cpu, word_order(word), word >> 6);
        if (status == HVMEM_OK) {
            replay->slot[i] = SLOT_FREED;
            (*freed)++;
        }
    }
    return status;
}

int replay_live(const struct replay *replay, hvmem_u32 *cursor, hvmem_u64 *handle, hvmem_u32 *order)
{
    while (*cursor < replay->header->slots) {
        hvmem_u64 word = replay->slot[(*cursor)++];

        if (is_live(word)) {
            *handle = word >> 6;
            *order = word_order(word);
            return 1;
        }
    }
    return 0;
}

void replay_add(struct replay_result *sum, const struct replay_result *part)
{
    hvmem_u32 what;

    sum->allocs += part->allocs;
    sum->frees += part->frees;
    sum->freed_first += part->freed_first;
    sum->foreign += part->foreign;
    sum->no_memory += part->no_memory;
    sum->lost_frees += part->lost_frees;
    sum->waits += part->waits;
    sum->wait_time += part->wait_time;
    for (what = 0; what < 2; what++) {
        sum->flush_full[what] += part->flush_full[what];
        sum->flush_range[what] += part->flush_range[what];
        sum->flush_pages[what] += part->flush_pages[what];
    }
    sum->flush_nothing += part->flush_nothing;
    sum->flush_counted += part->flush_counted;
    sum->flush_unknown += part->flush_unknown;
}
