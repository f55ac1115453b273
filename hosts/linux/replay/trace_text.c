/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The converter. A map from frame to the allocation that holds it answers, in the order of the
 * recording, which slot a free belongs to and which blocks a new allocation proves to be gone.
 */
#include "trace_text.h"

#include "../../common/player.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NO_SLOT       UINT32_MAX
#define MAX_ORDER     10u /* largest block of a Linux page allocator */
#define FIRST_BUCKETS 4096u

struct stream {
    struct replay_record *record;
    uint32_t count, room;
};

struct slot {
    uint64_t pfn;
    uint32_t order;
};

/* Open addressing with linear probing; a frame that is no longer held keeps its key with NO_SLOT. */
struct frame_map {
    uint64_t *frame; /* key + 1; 0: empty */
    uint32_t *slot;
    uint32_t buckets, used;
};

struct trace_text {
    struct stream stream[REPLAY_MAX_CPUS];
    struct slot *slot;
    uint32_t slots, slot_room;
    struct frame_map map;
    uint64_t last_us;
    uint32_t peak_at[REPLAY_MAX_CPUS];
    struct trace_text_stats stats;
};

struct event {
    uint64_t us, pfn;
    uint32_t cpu, order, use, pages;
    char kind;
};

/* ---- map ---- */

static uint32_t bucket_of(const struct frame_map *map, uint64_t frame)
{
    uint32_t at = (uint32_t)(frame * 0x9e3779b97f4a7c15u >> 32) & (map->buckets - 1);

    while (map->frame[at] != 0 && map->frame[at] != frame + 1)
        at = (at + 1) & (map->buckets - 1);
    return at;
}

static bool map_init(struct frame_map *map, uint32_t buckets)
{
    map->frame = calloc(buckets, sizeof *map->frame);
    map->slot = calloc(buckets, sizeof *map->slot);
    map->buckets = buckets;
    map->used = 0;
    return map->frame != NULL && map->slot != NULL;
}

static void map_free(struct frame_map *map)
{
    free(map->frame);
    free(map->slot);
}

static void map_set(struct frame_map *map, uint64_t frame, uint32_t slot)
{
    uint32_t at = bucket_of(map, frame);

    map->used += map->frame[at] == 0;
    map->frame[at] = frame + 1;
    map->slot[at] = slot;
}

static uint32_t map_get(const struct frame_map *map, uint64_t frame)
{
    uint32_t at = bucket_of(map, frame);

    return map->frame[at] == 0 ? NO_SLOT : map->slot[at];
}

/* Room for `more` frames at a load of at most one half. */
static bool map_reserve(struct frame_map *map, uint32_t more)
{
    struct frame_map bigger;
    uint32_t i;

    if (map->used + more <= map->buckets / 2)
        return true;
    if (!map_init(&bigger, map->buckets * 2)) {
        map_free(&bigger);
        return false;
    }
    for (i = 0; i < map->buckets; i++)
        if (map->frame[i] != 0 && map->slot[i] != NO_SLOT)
            map_set(&bigger, map->frame[i] - 1, map->slot[i]);
    map_free(map);
    *map = bigger;
    return true;
}

/* ---- growing ---- */

static bool stream_reserve(struct stream *stream, uint32_t more)
{
    struct replay_record *bigger;
    uint32_t room = stream->room == 0 ? 1024 : stream->room * 2;

    if (stream->count + more <= stream->room)
        return true;
    while (room < stream->count + more)
        room *= 2;
    bigger = realloc(stream->record, room * sizeof *bigger);
    if (bigger == NULL)
        return false;
    stream->record = bigger;
    stream->room = room;
    return true;
}

static bool slot_reserve(struct trace_text *text)
{
    uint32_t room = text->slot_room == 0 ? 1024 : text->slot_room * 2;
    struct slot *bigger;

    if (text->slots < text->slot_room)
        return true;
    bigger = realloc(text->slot, room * sizeof *bigger);
    if (bigger == NULL)
        return false;
    text->slot = bigger;
    text->slot_room = room;
    return true;
}

static void append(struct trace_text *text, uint32_t cpu, uint32_t kind, uint32_t order,
                   uint32_t use, uint32_t value)
{
    struct stream *stream = &text->stream[cpu];
    struct replay_record *record = &stream->record[stream->count++];

    memset(record, 0, sizeof *record);
    record->kind = (uint8_t)kind;
    record->order = (uint8_t)order;
    record->use = (uint8_t)use;
    record->value = value;
}

/* ---- one line ---- */

/* A number in `base` that ends at a space or the end of the line; moves *at behind it. */
static bool number(const char **at, int base, uint64_t limit, uint64_t *value)
{
    char *end;

    while (**at == ' ')
        (*at)++;
    if (!isxdigit((unsigned char)**at))
        return false;
    *value = strtoull(*at, &end, base);
    if (end == *at || (*end != ' ' && *end != '\n' && *end != '\0') || *value > limit)
        return false;
    *at = end;
    return true;
}

static bool parse_block(const char **at, struct event *event)
{
    uint64_t order;

    if (!number(at, 10, MAX_ORDER, &order) || !number(at, 16, (uint64_t)1 << 40, &event->pfn))
        return false;
    event->order = (uint32_t)order;
    return true;
}

/* GFP flags and migrate type, behind the block of an allocation. */
static bool parse_use(const char **at, struct event *event)
{
    const char *flags;
    size_t length;
    uint64_t type;

    while (**at == ' ')
        (*at)++;
    flags = *at;
    length = strcspn(flags, " \n");
    *at += length;
    if (length == 0 || !number(at, 10, REPLAY_USE_MASK, &type))
        return false;
    event->use = (uint32_t)type;
    for (; length >= 6; flags++, length--)
        if (strncmp(flags, "__ZERO", 6) == 0)
            event->use |= REPLAY_USE_ZERO;
    return true;
}

static bool parse_flush(const char **at, struct event *event)
{
    uint64_t reason, pages;

    if (!number(at, 10, 255, &reason))
        return false;
    event->use = (uint32_t)reason;
    while (**at == ' ')
        (*at)++;
    if (strncmp(*at, "-1", 2) == 0) {
        event->pages = REPLAY_FULL;
        *at += 2;
        return true;
    }
    if (!number(at, 10, REPLAY_FULL - 1, &pages))
        return false;
    event->pages = (uint32_t)pages;
    return true;
}

static bool parse(const char *at, struct event *event)
{
    uint64_t cpu;
    bool good;

    memset(event, 0, sizeof *event);
    if (!number(&at, 10, UINT32_MAX, &event->us) || !number(&at, 10, UINT32_MAX, &cpu))
        return false;
    event->cpu = (uint32_t)cpu;
    at += strspn(at, " ");
    event->kind = *at;
    if (*at == '\0' || at[1] != ' ')
        return false;
    at++;
    if (event->kind == 'a')
        good = parse_block(&at, event) && parse_use(&at, event);
    else if (event->kind == 'f')
        good = parse_block(&at, event);
    else
        good = event->kind == 't' && parse_flush(&at, event);
    at += strspn(at, " \n");
    return good && *at == '\0';
}

/* The frames of a slot are held by nobody from here on. */
static void release(struct trace_text *text, uint32_t slot)
{
    const struct slot *block = &text->slot[slot];
    uint64_t i;

    for (i = 0; i < (uint64_t)1 << block->order; i++)
        map_set(&text->map, block->pfn + i, NO_SLOT);
    text->stats.live -= (uint64_t)1 << block->order;
}

static void take_alloc(struct trace_text *text, const struct event *event)
{
    uint32_t slot = text->slots++;
    uint64_t pages = (uint64_t)1 << event->order;
    uint64_t i;
    uint32_t cpu;

    for (i = 0; i < pages; i++) {
        uint32_t old = map_get(&text->map, event->pfn + i);

        if (old == NO_SLOT)
            continue;
        release(text, old);
        append(text, event->cpu, REPLAY_FREE_FIRST, text->slot[old].order, 0, old);
        text->stats.freed_first++;
    }
    text->slot[slot].pfn = event->pfn;
    text->slot[slot].order = event->order;
    for (i = 0; i < pages; i++)
        map_set(&text->map, event->pfn + i, slot);
    append(text, event->cpu, REPLAY_ALLOC, event->order, event->use, slot);
    text->stats.allocs++;
    text->stats.live += pages;
    if (text->stats.live <= text->stats.peak)
        return;
    text->stats.peak = text->stats.live;
    for (cpu = 0; cpu < REPLAY_MAX_CPUS; cpu++)
        text->peak_at[cpu] = text->stream[cpu].count;
}

static void take_free(struct trace_text *text, const struct event *event)
{
    uint32_t slot = map_get(&text->map, event->pfn);

    if (slot != NO_SLOT && text->slot[slot].pfn == event->pfn &&
        text->slot[slot].order == event->order) {
        release(text, slot);
        append(text, event->cpu, REPLAY_FREE, event->order, 0, slot);
        text->stats.frees++;
        return;
    }
    append(text, event->cpu, REPLAY_FOREIGN, event->order, 0, 0);
    text->stats.foreign++;
    text->stats.odd += slot != NO_SLOT;
}

int trace_text_line(struct trace_text *text, const char *line)
{
    struct event event;
    uint32_t pages;

    if (line[strspn(line, " \n")] == '\0' || line[0] == '#')
        return TRACE_OK;
    if (!parse(line, &event))
        return TRACE_E_SYNTAX;
    if (event.us < text->last_us)
        return TRACE_E_ORDER;
    if (event.cpu >= REPLAY_MAX_CPUS)
        return TRACE_E_CPU;
    pages = (uint32_t)1 << event.order;
    if (text->slots >= UINT32_MAX / 4 || text->stream[event.cpu].count >= UINT32_MAX / 4)
        return TRACE_E_FULL;
    if (!stream_reserve(&text->stream[event.cpu], pages + 1) || !slot_reserve(text) ||
        !map_reserve(&text->map, pages))
        return TRACE_E_MEMORY;
    text->last_us = event.us;
    text->stats.events++;
    if (event.cpu >= text->stats.cpus)
        text->stats.cpus = event.cpu + 1;
    if (event.kind == 'a') {
        take_alloc(text, &event);
    } else if (event.kind == 'f') {
        take_free(text, &event);
    } else {
        append(text, event.cpu, REPLAY_FLUSH, 0, event.use, event.pages);
        text->stats.flushes++;
    }
    return TRACE_OK;
}

/* ---- whole traces ---- */

struct trace_text *trace_text_new(void)
{
    struct trace_text *text = calloc(1, sizeof *text);

    if (text != NULL && !map_init(&text->map, FIRST_BUCKETS)) {
        trace_text_delete(text);
        return NULL;
    }
    return text;
}

void trace_text_delete(struct trace_text *text)
{
    uint32_t cpu;

    if (text == NULL)
        return;
    for (cpu = 0; cpu < REPLAY_MAX_CPUS; cpu++)
        free(text->stream[cpu].record);
    map_free(&text->map);
    free(text->slot);
    free(text);
}

int trace_text_finish(const struct trace_text *text, void **bytes, size_t *size)
{
    struct replay_header *header;
    char *at;
    size_t total = sizeof *header;
    uint32_t cpu;

    for (cpu = 0; cpu < REPLAY_MAX_CPUS; cpu++)
        total += text->stream[cpu].count * sizeof(struct replay_record);
    header = calloc(1, total);
    if (header == NULL)
        return TRACE_E_MEMORY;
    header->magic = REPLAY_MAGIC;
    header->bytes = sizeof *header;
    header->cpus = text->stats.cpus == 0 ? 1 : text->stats.cpus;
    header->slots = text->slots;
    header->peak_pages = (uint32_t)text->stats.peak;
    header->last_us = (uint32_t)text->last_us;
    at = (char *)(header + 1);
    for (cpu = 0; cpu < REPLAY_MAX_CPUS; cpu++) {
        size_t length = text->stream[cpu].count * sizeof(struct replay_record);

        header->records[cpu] = text->stream[cpu].count;
        header->peak_at[cpu] = text->peak_at[cpu];
        if (length != 0)
            memcpy(at, text->stream[cpu].record, length);
        at += length;
    }
    *bytes = header;
    *size = total;
    return TRACE_OK;
}

void trace_text_stats(const struct trace_text *text, struct trace_text_stats *stats)
{
    *stats = text->stats;
}

const char *trace_text_words(int result)
{
    switch (result) {
    case TRACE_OK:
        return "good";
    case TRACE_E_SYNTAX:
        return "not an event this converter knows";
    case TRACE_E_ORDER:
        return "earlier than the event before it";
    case TRACE_E_CPU:
        return "CPU number too large";
    case TRACE_E_FULL:
        return "too many events";
    case TRACE_E_MEMORY:
        return "out of memory";
    default:
        return "unknown result";
    }
}
