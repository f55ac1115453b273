/* SPDX-License-Identifier: BSD-2-Clause */
/* The converter: every kind of line, every odd case, and the recorded traces against their README. */
#include "test_main.h"

#include "hosts/linux/replay/trace_text.h"
#include "hosts/common/player.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct compact {
    struct trace_text_stats stats;
    struct replay_header *header;
    struct replay_record *record[REPLAY_MAX_CPUS];
    size_t size;
};

static struct compact finish(struct trace_text *text)
{
    struct compact compact;
    struct replay_record *next;
    void *bytes = NULL;
    int cpu;

    trace_text_stats(text, &compact.stats);
    REQUIRE_EQ(trace_text_finish(text, &bytes, &compact.size), TRACE_OK);
    trace_text_delete(text);
    compact.header = bytes;
    next = (struct replay_record *)(compact.header + 1);
    for (cpu = 0; cpu < (int)REPLAY_MAX_CPUS; cpu++) {
        compact.record[cpu] = next;
        next += compact.header->records[cpu];
    }
    CHECK_EQ((char *)next - (char *)bytes, compact.size);
    CHECK(replay_slot_bytes(bytes, compact.size) > 0);
    return compact;
}

static struct compact convert(const char *const *lines)
{
    struct trace_text *text = trace_text_new();

    REQUIRE(text != NULL);
    for (; *lines != NULL; lines++)
        CHECK_EQ(trace_text_line(text, *lines), TRACE_OK);
    return finish(text);
}

static void check_record(const struct replay_record *record, unsigned kind, unsigned order,
                         unsigned use, unsigned value)
{
    CHECK_EQ(record->kind, kind);
    CHECK_EQ(record->order, order);
    CHECK_EQ(record->use, use);
    CHECK_EQ(record->value, value);
}

TEST(events_become_records)
{
    static const char *const lines[] = {"# comment\n",
                                        "\n",
                                        "0 1 a 2 2931b4 KERNEL_ACCOUNT|__ZERO|__COMP 0\n",
                                        "3 0 a 0 ffff HIGHUSER_MOVABLE|__COMP 1",
                                        "4 0 f 2 2931b4\n",
                                        "5 1 t 3 -1\n",
                                        "5 1 t 4 33\n",
                                        "6 1 t 0 0\n",
                                        NULL};
    struct compact got = convert(lines);

    CHECK_EQ(got.header->cpus, 2);
    CHECK_EQ(got.header->slots, 2);
    CHECK_EQ(got.header->peak_pages, 5);
    CHECK_EQ(got.header->last_us, 6);
    CHECK_EQ(got.header->peak_at[0], 1);
    CHECK_EQ(got.header->peak_at[1], 1);
    REQUIRE_EQ(got.header->records[0], 2);
    REQUIRE_EQ(got.header->records[1], 4);
    check_record(&got.record[1][0], REPLAY_ALLOC, 2, REPLAY_USE_KERNEL | REPLAY_USE_ZERO, 0);
    check_record(&got.record[0][0], REPLAY_ALLOC, 0, REPLAY_USE_USER, 1);
    check_record(&got.record[0][1], REPLAY_FREE, 2, 0, 0);
    check_record(&got.record[1][1], REPLAY_FLUSH, 0, 3, REPLAY_FULL);
    check_record(&got.record[1][2], REPLAY_FLUSH, 0, 4, 33);
    check_record(&got.record[1][3], REPLAY_FLUSH, 0, 0, 0);
    free(got.header);
}

TEST(free_of_older_block_is_foreign)
{
    static const char *const lines[] = {"1 0 f 0 10", "2 0 a 0 10 X 0", "3 0 f 0 10", "4 0 f 0 10",
                                        NULL};
    struct compact got = convert(lines);

    CHECK_EQ(got.stats.foreign, 2);
    CHECK_EQ(got.stats.odd, 0);
    CHECK_EQ(got.stats.frees, 1);
    CHECK_EQ(got.record[0][0].kind, REPLAY_FOREIGN);
    CHECK_EQ(got.record[0][2].kind, REPLAY_FREE);
    CHECK_EQ(got.record[0][3].kind, REPLAY_FOREIGN);
    free(got.header);
}

TEST(second_allocation_frees_first)
{
    static const char *const lines[] = {"1 0 a 0 10 X 0", "2 1 a 0 10 X 0", "3 0 f 0 10", NULL};
    struct compact got = convert(lines);

    CHECK_EQ(got.stats.freed_first, 1);
    CHECK_EQ(got.stats.live, 0);
    CHECK_EQ(got.stats.peak, 1);
    check_record(&got.record[1][0], REPLAY_FREE_FIRST, 0, 0, 0);
    check_record(&got.record[1][1], REPLAY_ALLOC, 0, 0, 1);
    check_record(&got.record[0][1], REPLAY_FREE, 0, 0, 1);
    free(got.header);
}

TEST(overlap_frees_every_block_it_hits)
{
    /* Order 2 over three single pages and the head of an order 1 block; then a page inside it. */
    static const char *const lines[] = {"1 0 a 0 10 X 0", "1 0 a 0 11 X 0", "1 0 a 0 12 X 0",
                                        "1 0 a 1 13 X 0", "2 0 a 2 10 X 0", "3 0 a 0 12 X 0",
                                        "4 0 f 2 10",     "5 0 f 0 12",     NULL};
    struct compact got = convert(lines);

    CHECK_EQ(got.stats.freed_first, 5);
    CHECK_EQ(got.stats.peak, 5);
    CHECK_EQ(got.stats.live, 0);
    CHECK_EQ(got.stats.foreign, 1); /* the order 2 block was proved gone before its free */
    check_record(&got.record[0][7], REPLAY_FREE_FIRST, 1, 0, 3);
    check_record(&got.record[0][8], REPLAY_ALLOC, 2, 0, 4);
    check_record(&got.record[0][9], REPLAY_FREE_FIRST, 2, 0, 4);
    free(got.header);
}

TEST(odd_frees_are_left_out_and_counted)
{
    static const char *const lines[] = {"1 0 a 2 10 X 0", "2 0 f 0 10", "3 0 f 0 11", "4 0 f 2 10",
                                        NULL};
    struct compact got = convert(lines);

    CHECK_EQ(got.stats.odd, 2);
    CHECK_EQ(got.stats.foreign, 2);
    CHECK_EQ(got.stats.frees, 1);
    CHECK_EQ(got.stats.live, 0);
    free(got.header);
}

TEST(bad_lines_are_refused)
{
    static const char *const bad[] = {"x",
                                      "1 0",
                                      "1 0 a",
                                      "1 0 a 0",
                                      "1 0 a 0 10",
                                      "1 0 a 0 10 X",
                                      "1 0 a 0 10 X 4",
                                      "1 0 a 11 10 X 0",
                                      "1 0 a 0 10 X 0 more",
                                      "1 0 a -1 10 X 0",
                                      "1 0 a 0 fffffffffffffffff X 0",
                                      "1 0 f 0",
                                      "1 0 f 0 zz",
                                      "1 0 f 0 10 more",
                                      "1 0 t 0",
                                      "1 0 t 0 -2",
                                      "1 0 t 0 -12",
                                      "1 0 t 256 0",
                                      "1 0 q 0 10",
                                      "1 0 aa 0 10 X 0",
                                      "4294967296 0 t 0 0",
                                      NULL};
    struct trace_text *text = trace_text_new();
    struct trace_text_stats stats;
    int i;

    REQUIRE(text != NULL);
    CHECK_EQ(trace_text_line(text, "9 0 t 0 0"), TRACE_OK);
    for (i = 0; bad[i] != NULL; i++)
        if (!CHECK_EQ(trace_text_line(text, bad[i]), TRACE_E_SYNTAX))
            test_note("line: %s", bad[i]);
    CHECK_EQ(trace_text_line(text, "8 0 t 0 0"), TRACE_E_ORDER);
    CHECK_EQ(trace_text_line(text, "9 8 t 0 0"), TRACE_E_CPU);
    trace_text_stats(text, &stats);
    CHECK_EQ(stats.events, 1);
    trace_text_delete(text);
}

TEST(many_blocks_against_a_flat_table)
{
    enum { FRAMES = 3000, EVENTS = 20000 };
    static unsigned char held[FRAMES];
    struct trace_text *text = trace_text_new();
    struct trace_text_stats stats;
    struct test_rng rng = test_rng(0);
    uint64_t live = 0, peak = 0, again = 0, foreign = 0;
    char line[64];
    int i;

    REQUIRE(text != NULL);
    memset(held, 0, sizeof held);
    for (i = 0; i < EVENTS; i++) {
        unsigned frame = (unsigned)test_below(&rng, FRAMES);

        if (test_below(&rng, 2) == 0) {
            snprintf(line, sizeof line, "%d 0 a 0 %x X 0", i, frame + 0x100000);
            again += held[frame];
            live += !held[frame];
            held[frame] = 1;
        } else {
            snprintf(line, sizeof line, "%d 1 f 0 %x", i, frame + 0x100000);
            foreign += !held[frame];
            live -= held[frame];
            held[frame] = 0;
        }
        peak = live > peak ? live : peak;
        REQUIRE_EQ(trace_text_line(text, line), TRACE_OK);
    }
    trace_text_stats(text, &stats);
    CHECK_EQ(stats.live, live);
    CHECK_EQ(stats.peak, peak);
    CHECK_EQ(stats.freed_first, again);
    CHECK_EQ(stats.foreign, foreign);
    trace_text_delete(text);
}

static struct trace_text_stats recorded(const char *path)
{
    struct trace_text *text = trace_text_new();
    struct trace_text_stats stats;
    unsigned long line = 1;

    REQUIRE(text != NULL);
    CHECK_EQ(trace_text_file(text, path, &line), TRACE_OK);
    CHECK_EQ(line, 0);
    trace_text_stats(text, &stats);
    trace_text_delete(text);
    return stats;
}

TEST(recorded_traces_hold_what_their_readme_says)
{
    struct trace_text_stats build = recorded(HVMEM_TEST_DATA "/linux-cmake-build.trace.gz");
    struct trace_text_stats sort = recorded(HVMEM_TEST_DATA "/linux-jemalloc-sort.trace.gz");

    CHECK_EQ(build.events, 276740);
    CHECK_EQ(build.peak, 26303);
    CHECK_EQ(build.freed_first, 2269);
    CHECK_EQ(build.foreign, 17);
    CHECK_EQ(build.odd, 0);
    CHECK_EQ(sort.events, 224018);
    CHECK_EQ(sort.peak, 20683);
    CHECK_EQ(sort.freed_first, 837);
    CHECK_EQ(sort.foreign, 17);
    CHECK_EQ(sort.odd, 0);
}

TEST(bad_files_are_refused)
{
    struct trace_text *text = trace_text_new();
    unsigned long line = 99;

    REQUIRE(text != NULL);
    CHECK_EQ(trace_text_file(text, HVMEM_TEST_DATA "/no-such-file", &line), TRACE_E_SYNTAX);
    CHECK_EQ(line, 0);
    CHECK_EQ(trace_text_file(text, HVMEM_TEST_DATA "/memory-maps.txt", &line), TRACE_E_SYNTAX);
    CHECK(line > 0);
    trace_text_delete(text);
}
