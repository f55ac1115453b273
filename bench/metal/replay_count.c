/* SPDX-License-Identifier: BSD-2-Clause */
/* A back-end that counts its TLB requests and hands them to the real one. */
#include "replay.h"

#include "test/metal/subject.h"

#define MAX_NAMES 16u

/* Never 0: bit 63 is set. */
static uint64_t key_of(const struct hvmem_tlb_flush *flush)
{
    uint64_t key = 1ull << 63 | (uint64_t)flush->what << 56 | (uint64_t)flush->scope << 48 |
                   (uint64_t)flush->space.regime << 40;

    if (flush->what == HVMEM_FLUSH_RANGES && flush->count == 1)
        key |= flush->ranges->pages & 0xffffffffu;
    return key;
}

static void count_key(struct replay_counter *counter, uint64_t key)
{
    uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 57);

    for (uint32_t turn = 0; turn < REPLAY_METAL_KINDS; turn++) {
        uint64_t *slot = &counter->key[at];
        uint64_t found = 0;

        if (__atomic_compare_exchange_n(slot, &found, key, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
            found == key) {
            __atomic_fetch_add(&counter->count[at], 1, __ATOMIC_RELAXED);
            return;
        }
        at = (at + 1) % REPLAY_METAL_KINDS;
    }
    __atomic_fetch_add(&counter->uncounted, 1, __ATOMIC_RELAXED);
}

static hvmem_status counted_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct replay_counter *counter = (struct replay_counter *)(void *)be; /* its first member */

    if (flush->what != HVMEM_FLUSH_RANGES) {
        __atomic_fetch_add(&counter->whole, 1, __ATOMIC_RELAXED);
    } else {
        for (hvmem_u32 i = 0; i < flush->count; i++)
            __atomic_fetch_add(&counter->pages, flush->ranges[i].pages, __ATOMIC_RELAXED);
        __atomic_fetch_add(&counter->ranges, flush->count, __ATOMIC_RELAXED);
    }
    if (flush->what == HVMEM_FLUSH_RANGES && flush->count != 1)
        __atomic_fetch_add(&counter->uncounted, 1, __ATOMIC_RELAXED);
    else
        count_key(counter, key_of(flush));
    return counter->real->ops->tlb_flush(counter->real, flush);
}

void replay_counter_init(struct replay_counter *counter, struct hvmem_backend *real)
{
    *counter = (struct replay_counter){.backend = *real, .ops = *real->ops, .real = real};
    counter->ops.tlb_flush = counted_flush;
    counter->backend.ops = &counter->ops;
}

void replay_counter_clear(struct replay_counter *counter)
{
    struct hvmem_backend *real = counter->real;

    replay_counter_init(counter, real);
}

struct names {
    const char *name[MAX_NAMES];
    uint64_t count[MAX_NAMES];
    uint32_t used;
};

static void add_name(struct names *names, const char *name, uint64_t count)
{
    uint32_t i = 0;

    while (i < names->used && names->name[i] != name)
        i++;
    if (i == MAX_NAMES)
        return;
    if (i == names->used) {
        names->name[i] = name;
        names->count[i] = 0;
        names->used++;
    }
    names->count[i] += count;
}

/* One request of the kind, to the recording twin. 0: the log was too short for it. */
static int record_kind(struct names *names, uint64_t key, uint64_t count)
{
    struct hvmem_tlb_range range = {.start = metal_window(),
                                    .pages = key & 0xffffffffu,
                                    .stride_shift = METAL_PAGE_SHIFT,
                                    .level = 3,
                                    .flags = HVMEM_RANGE_LEAF};
    struct hvmem_tlb_flush flush = {.size = sizeof flush,
                                    .what = (hvmem_u16)(key >> 56 & 0x7f),
                                    .scope = (hvmem_u16)(key >> 48 & 0xff),
                                    .space.regime = (hvmem_u32)(key >> 40 & 0xff)};
    struct hvmem_record *log;
    struct hvmem_backend *twin = subject_twin(&log);

    if (flush.what == HVMEM_FLUSH_RANGES) {
        flush.ranges = &range;
        flush.count = 1;
    }
    hvmem_record_clear(log);
    if (twin->ops->tlb_flush(twin, &flush) != HVMEM_OK || log->lost != 0)
        return 0;
    for (uint32_t i = 0; i < log->count; i++) {
        const char *name = subject_insn_name(log->events[i].code);

        if (name != NULL)
            add_name(names, name, count);
    }
    return 1;
}

void replay_counter_print(const struct replay_counter *counter)
{
    struct names names = {.used = 0};
    uint64_t left_out = counter->uncounted;

    for (uint32_t i = 0; i < REPLAY_METAL_KINDS; i++)
        if (counter->key[i] != 0 && !record_kind(&names, counter->key[i], counter->count[i]))
            left_out += counter->count[i];
    metal_printf("{");
    for (uint32_t i = 0; i < names.used; i++)
        metal_printf("%s\"%s\": %llu", i == 0 ? "" : ", ", names.name[i],
                     (unsigned long long)names.count[i]);
    if (left_out != 0)
        metal_printf("%s\"requests not counted\": %llu", names.used == 0 ? "" : ", ",
                     (unsigned long long)left_out);
    metal_printf("}");
}
