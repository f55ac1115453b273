/* SPDX-License-Identifier: BSD-2-Clause */
/* The player: order between CPUs, bounded waits, odd cases, meaning of flushes, malformed traces. */
#include "test_main.h"

#include "hosts/linux/replay/trace_text.h"
#include "hosts/common/player.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_LOG 64

/* An allocator that only hands out numbers, and a log of what the player asked for. */
struct fake {
    struct replay replay;
    struct replay_ops ops;
    void *trace;
    size_t size;
    void *slots;
    _Atomic uint64_t next;
    _Atomic uint64_t live;
    uint64_t room; /* allocations that succeed */
    int flushes;
    struct {
        uint32_t cpu, what, pages;
    } flush[MAX_LOG];
    hvmem_status flush_result;
};

static hvmem_status fake_alloc(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u32 use,
                               hvmem_u64 *handle)
{
    struct fake *fake = ctx;

    (void)cpu, (void)order, (void)use;
    if (atomic_load(&fake->next) >= fake->room)
        return HVMEM_E_NOMEM;
    *handle = atomic_fetch_add(&fake->next, 1);
    atomic_fetch_add(&fake->live, 1);
    return HVMEM_OK;
}

static hvmem_status fake_free(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u64 handle)
{
    struct fake *fake = ctx;

    (void)cpu, (void)order;
    if (handle >= atomic_load(&fake->next))
        return HVMEM_E_FOREIGN;
    atomic_fetch_sub(&fake->live, 1);
    return HVMEM_OK;
}

static hvmem_status fake_flush(void *ctx, hvmem_u32 cpu, hvmem_u32 what, hvmem_u32 pages)
{
    struct fake *fake = ctx;

    if (fake->flushes < MAX_LOG) {
        fake->flush[fake->flushes].cpu = cpu;
        fake->flush[fake->flushes].what = what;
        fake->flush[fake->flushes].pages = pages;
    }
    fake->flushes++;
    return fake->flush_result;
}

static hvmem_u64 fake_now(void *ctx)
{
    struct timespec now;

    (void)ctx;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (hvmem_u64)now.tv_sec * 1000u + (hvmem_u64)now.tv_nsec / 1000000u;
}

static void fake_relax(void *ctx)
{
    (void)ctx;
    sched_yield();
}

static void open_bytes(struct fake *fake, uint64_t limit_ms)
{
    size_t needed = replay_slot_bytes(fake->trace, fake->size);

    REQUIRE(needed != 0);
    fake->ops.alloc = fake_alloc;
    fake->ops.free = fake_free;
    fake->ops.flush = fake_flush;
    fake->ops.now = fake_now;
    fake->ops.relax = fake_relax;
    fake->slots = malloc(needed);
    REQUIRE(fake->slots != NULL);
    memset(fake->slots, 0xa5, needed);
    REQUIRE_EQ(replay_open(&fake->replay, fake->trace, fake->size, fake->slots, needed, &fake->ops,
                           fake, limit_ms),
               HVMEM_OK);
}

static struct fake *open_lines(const char *const *lines, uint64_t limit_ms)
{
    struct fake *fake = calloc(1, sizeof *fake);
    struct trace_text *text = trace_text_new();

    REQUIRE(fake != NULL && text != NULL);
    for (; *lines != NULL; lines++)
        REQUIRE_EQ(trace_text_line(text, *lines), TRACE_OK);
    REQUIRE_EQ(trace_text_finish(text, &fake->trace, &fake->size), TRACE_OK);
    trace_text_delete(text);
    fake->room = UINT64_MAX;
    open_bytes(fake, limit_ms);
    return fake;
}

static void close_fake(struct fake *fake)
{
    free(fake->slots);
    free(fake->trace);
    free(fake);
}

struct player {
    struct fake *fake;
    uint32_t cpu, to;
    hvmem_status status;
    struct replay_result result;
};

static void *play_thread(void *argument)
{
    struct player *player = argument;

    player->status =
        replay_play(&player->fake->replay, player->cpu, 0, player->to, &player->result);
    return NULL;
}

/* Both CPUs on threads of their own. */
static void play_both(struct fake *fake, struct player player[2], uint32_t to0, uint32_t to1)
{
    pthread_t thread[2];
    uint32_t cpu;

    memset(player, 0, 2 * sizeof *player);
    player[0].to = to0;
    player[1].to = to1;
    for (cpu = 0; cpu < 2; cpu++) {
        player[cpu].fake = fake;
        player[cpu].cpu = cpu;
        REQUIRE_EQ(pthread_create(&thread[cpu], NULL, play_thread, &player[cpu]), 0);
    }
    for (cpu = 0; cpu < 2; cpu++)
        pthread_join(thread[cpu], NULL);
}

TEST(a_free_waits_for_its_allocation, threads)
{
    static const char *const lines[] = {"1 0 t 0 0", "2 1 a 0 10 X 0", "3 0 f 0 10", "4 1 t 0 0",
                                        NULL};
    struct fake *fake = open_lines(lines, 20000);
    struct player player = {.fake = fake, .cpu = 0, .to = UINT32_MAX};
    struct replay_result other = {0};
    struct timespec some = {0, 50000000};
    pthread_t thread;

    REQUIRE_EQ(pthread_create(&thread, NULL, play_thread, &player), 0);
    nanosleep(&some, NULL);
    CHECK_EQ(atomic_load(&fake->live), 0);
    CHECK_EQ(replay_play(&fake->replay, 1, 0, UINT32_MAX, &other), HVMEM_OK);
    pthread_join(thread, NULL);
    CHECK_EQ(player.status, HVMEM_OK);
    CHECK_EQ(player.result.frees, 1);
    CHECK_EQ(player.result.waits, 1);
    CHECK(player.result.wait_time >= 10);
    CHECK_EQ(other.allocs, 1);
    CHECK_EQ(atomic_load(&fake->live), 0);
    close_fake(fake);
}

TEST(a_wait_that_cannot_end_is_bounded, threads)
{
    static const char *const lines[] = {"2 1 a 0 10 X 0", "3 0 f 0 10", NULL};
    struct fake *fake = open_lines(lines, 30);
    struct replay_result result = {0};

    CHECK_EQ(replay_play(&fake->replay, 0, 0, UINT32_MAX, &result), HVMEM_E_TIMEOUT);
    CHECK_EQ(result.frees, 0);
    CHECK_EQ(result.waits, 1);
    CHECK(result.wait_time >= 30);
    close_fake(fake);
}

TEST(an_error_on_one_cpu_ends_the_wait_of_the_other, threads)
{
    /* CPU 1's flush fails, so its allocation never comes. */
    static const char *const lines[] = {"1 1 t 3 1", "2 1 a 0 10 X 0", "3 0 f 0 10", NULL};
    struct fake *fake = open_lines(lines, 20000);
    struct player player[2];

    fake->flush_result = HVMEM_E_HOST;
    play_both(fake, player, UINT32_MAX, UINT32_MAX);
    CHECK_EQ(player[1].status, HVMEM_E_HOST);
    CHECK_EQ(player[0].status, HVMEM_E_BUSY);
    close_fake(fake);
}

TEST(odd_cases_are_counted)
{
    static const char *const lines[] = {"1 0 f 0 99", "2 0 a 0 10 X 0", "3 0 a 0 10 X 0",
                                        "4 0 f 0 10", "5 0 a 1 20 X 1", NULL};
    struct fake *fake = open_lines(lines, 1000);
    struct replay_result result = {0};
    hvmem_u64 handle, freed = 0;
    hvmem_u32 cursor = 0, order;

    CHECK_EQ(replay_play(&fake->replay, 0, 0, UINT32_MAX, &result), HVMEM_OK);
    CHECK_EQ(result.allocs, 3);
    CHECK_EQ(result.frees, 2);
    CHECK_EQ(result.freed_first, 1);
    CHECK_EQ(result.foreign, 1);
    CHECK_EQ(result.waits, 0);
    CHECK_EQ(replay_live(&fake->replay, &cursor, &handle, &order), 1);
    CHECK_EQ(handle, 2);
    CHECK_EQ(order, 1);
    CHECK_EQ(replay_live(&fake->replay, &cursor, &handle, &order), 0);
    CHECK_EQ(replay_free_rest(&fake->replay, 0, &freed), HVMEM_OK);
    CHECK_EQ(freed, 1);
    CHECK_EQ(atomic_load(&fake->live), 0);
    CHECK_EQ(replay_free_rest(&fake->replay, 0, &freed), HVMEM_OK);
    CHECK_EQ(freed, 1);
    close_fake(fake);
}

TEST(without_memory_the_free_is_left_out)
{
    static const char *const lines[] = {"1 0 a 0 10 X 0", "2 0 a 0 11 X 0", "3 0 f 0 10",
                                        "4 0 f 0 11", NULL};
    struct fake *fake = open_lines(lines, 1000);
    struct replay_result result = {0};

    fake->room = 1;
    CHECK_EQ(replay_play(&fake->replay, 0, 0, UINT32_MAX, &result), HVMEM_OK);
    CHECK_EQ(result.allocs, 1);
    CHECK_EQ(result.no_memory, 1);
    CHECK_EQ(result.frees, 1);
    CHECK_EQ(result.lost_frees, 1);
    CHECK_EQ(result.waits, 0);
    close_fake(fake);
}

TEST(flushes_mean_what_the_readme_says)
{
    static const char *const lines[] = {"1 1 t 0 -1", "2 1 t 0 0",  "3 1 t 0 7",   "4 1 t 1 3",
                                        "5 1 t 2 5",  "6 1 t 2 -1", "7 1 t 3 1",   "8 1 t 3 -1",
                                        "9 1 t 3 0",  "10 1 t 4 2", "11 1 t 4 -1", "12 1 t 4 0",
                                        "13 1 t 5 0", "14 1 t 5 9", "15 1 t 6 1",  NULL};
    static const struct {
        uint32_t what, pages;
    } expected[] = {{REPLAY_LOCAL, REPLAY_FULL}, {REPLAY_LOCAL, 5},
                    {REPLAY_LOCAL, REPLAY_FULL}, {REPLAY_LOCAL, 1},
                    {REPLAY_LOCAL, REPLAY_FULL}, {REPLAY_OTHER, 2},
                    {REPLAY_OTHER, REPLAY_FULL}};
    struct fake *fake = open_lines(lines, 1000);
    struct replay_result result = {0}, twice = {0};
    int i;

    CHECK_EQ(replay_play(&fake->replay, 1, 0, UINT32_MAX, &result), HVMEM_OK);
    REQUIRE_EQ(fake->flushes, 7);
    for (i = 0; i < 7; i++) {
        CHECK_EQ(fake->flush[i].cpu, 1);
        CHECK_EQ(fake->flush[i].what, expected[i].what);
        CHECK_EQ(fake->flush[i].pages, expected[i].pages);
    }
    CHECK_EQ(result.flush_full[REPLAY_LOCAL], 3);
    CHECK_EQ(result.flush_range[REPLAY_LOCAL], 2);
    CHECK_EQ(result.flush_pages[REPLAY_LOCAL], 6);
    CHECK_EQ(result.flush_full[REPLAY_OTHER], 1);
    CHECK_EQ(result.flush_range[REPLAY_OTHER], 1);
    CHECK_EQ(result.flush_pages[REPLAY_OTHER], 2);
    CHECK_EQ(result.flush_nothing, 4);
    CHECK_EQ(result.flush_counted, 3);
    CHECK_EQ(result.flush_unknown, 1);
    replay_add(&twice, &result);
    replay_add(&twice, &result);
    CHECK_EQ(twice.flush_pages[REPLAY_LOCAL], 12);
    fake->ops.flush = NULL;
    CHECK_EQ(replay_play(&fake->replay, 1, 0, UINT32_MAX, &result), HVMEM_OK);
    CHECK_EQ(fake->flushes, 7);
    close_fake(fake);
}

TEST(played_twice_or_out_of_range_is_refused)
{
    static const char *const lines[] = {"1 0 a 0 10 X 0", "2 0 f 0 10", NULL};
    struct fake *fake = open_lines(lines, 1000);
    struct replay_result result = {0};

    CHECK_EQ(replay_play(&fake->replay, 1, 0, 1, &result), HVMEM_E_CPU);
    CHECK_EQ(replay_play(&fake->replay, 0, 3, 4, &result), HVMEM_E_RANGE);
    CHECK_EQ(replay_play(&fake->replay, 0, 0, 1, &result), HVMEM_OK);
    CHECK_EQ(replay_play(&fake->replay, 0, 0, 1, &result), HVMEM_E_ARG);
    CHECK_EQ(replay_play(&fake->replay, 0, 1, 2, &result), HVMEM_OK);
    CHECK_EQ(replay_play(&fake->replay, 0, 1, 2, &result), HVMEM_E_ARG);
    CHECK_EQ(result.allocs, 1);
    CHECK_EQ(result.frees, 1);
    close_fake(fake);
}

TEST(malformed_traces_are_refused)
{
    static const char *const lines[] = {"1 0 a 0 10 X 0", "2 1 f 0 10", NULL};
    struct fake *fake = open_lines(lines, 1000);
    struct replay_header *header = fake->trace;
    struct replay_header good = *header;
    struct replay_record *record = (struct replay_record *)(header + 1);
    struct replay_result result = {0};
    struct replay replay;
    uint64_t slots[4];

    CHECK_EQ(replay_slot_bytes(NULL, fake->size), 0);
    CHECK_EQ(replay_slot_bytes((char *)fake->trace + 4, fake->size), 0);
    CHECK_EQ(replay_slot_bytes(header, fake->size - 1), 0);
    CHECK_EQ(replay_slot_bytes(header, fake->size - sizeof *record), 0);
    CHECK_EQ(replay_slot_bytes(header, sizeof *header - 1), 0);
#define SPOIL(member, value)                                                                       \
    header->member = (value);                                                                      \
    CHECK_EQ(replay_slot_bytes(header, fake->size), 0);                                            \
    *header = good
    SPOIL(magic, 1);
    SPOIL(bytes, 8);
    SPOIL(cpus, 0);
    SPOIL(cpus, 1);
    SPOIL(cpus, REPLAY_MAX_CPUS + 1);
    SPOIL(records[0], UINT32_MAX);
    SPOIL(records[1], 0);
    SPOIL(peak_at[0], 2);
#undef SPOIL
    CHECK_EQ(replay_open(&replay, header, fake->size, slots, 8, &fake->ops, fake, 1),
             HVMEM_E_BUFFER);
    CHECK_EQ(replay_open(&replay, header, fake->size, NULL, 32, &fake->ops, fake, 1), HVMEM_E_ARG);
    CHECK_EQ(replay_open(&replay, (char *)header + 4, fake->size, slots, 32, &fake->ops, fake, 1),
             HVMEM_E_ALIGN);
    record[0].kind = 9;
    CHECK_EQ(replay_play(&fake->replay, 0, 0, 1, &result), HVMEM_E_ARG);
    record[0].kind = REPLAY_ALLOC;
    record[0].value = 1;
    CHECK_EQ(replay_play(&fake->replay, 0, 0, 1, &result), HVMEM_E_ARG);
    close_fake(fake);
}

/* The whole recorded trace on two threads, stopped at its peak: exactly the recorded pages live. */
TEST(recorded_trace_plays_to_its_peak_and_end, threads)
{
    struct fake *fake = calloc(1, sizeof *fake);
    struct trace_text *text = trace_text_new();
    struct replay_result sum = {0};
    struct player player[2];
    hvmem_u64 handle, pages = 0, freed = 0;
    hvmem_u32 cursor = 0, order;
    unsigned long line;
    uint32_t cpu;

    REQUIRE(fake != NULL && text != NULL);
    REQUIRE_EQ(trace_text_file(text, HVMEM_TEST_DATA "/linux-cmake-build.trace.gz", &line),
               TRACE_OK);
    REQUIRE_EQ(trace_text_finish(text, &fake->trace, &fake->size), TRACE_OK);
    trace_text_delete(text);
    fake->room = UINT64_MAX;
    open_bytes(fake, 50000);
    fake->ops.flush = NULL;
    play_both(fake, player, fake->replay.header->peak_at[0], fake->replay.header->peak_at[1]);
    CHECK_EQ(player[0].status, HVMEM_OK);
    CHECK_EQ(player[1].status, HVMEM_OK);
    while (replay_live(&fake->replay, &cursor, &handle, &order))
        pages += 1u << order;
    CHECK_EQ(pages, 26303);
    for (cpu = 0; cpu < 2; cpu++)
        replay_add(&sum, &player[cpu].result);
    /* From the start again, to the end. */
    REQUIRE_EQ(replay_open(&fake->replay, fake->trace, fake->size, fake->slots,
                           replay_slot_bytes(fake->trace, fake->size), &fake->ops, fake, 50000),
               HVMEM_OK);
    play_both(fake, player, UINT32_MAX, UINT32_MAX);
    CHECK_EQ(player[0].status, HVMEM_OK);
    CHECK_EQ(player[1].status, HVMEM_OK);
    memset(&sum, 0, sizeof sum);
    for (cpu = 0; cpu < 2; cpu++)
        replay_add(&sum, &player[cpu].result);
    CHECK_EQ(sum.allocs, 141122);
    CHECK_EQ(sum.frees, 118007 + 2269);
    CHECK_EQ(sum.freed_first, 2269);
    CHECK_EQ(sum.foreign, 17);
    CHECK_EQ(sum.no_memory, 0);
    CHECK_EQ(replay_free_rest(&fake->replay, 0, &freed), HVMEM_OK);
    CHECK_EQ(freed, 20846);
    close_fake(fake);
}
