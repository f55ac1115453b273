/* SPDX-License-Identifier: BSD-2-Clause */
/* The result of a replay, in the form of hosts/linux/replay/README.md, each line after "json ". */
#include "replay.h"

#include "test/metal/subject.h"

static void sort(uint64_t *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = i; j > 0 && values[j - 1] > values[j]; j--) {
            const uint64_t swap = values[j];

            values[j] = values[j - 1];
            values[j - 1] = swap;
        }
}

static uint64_t median(const uint64_t *values, uint32_t count)
{
    uint64_t sorted[REPLAY_METAL_ROUNDS];

    if (count == 0)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = values[i];
    sort(sorted, count);
    return count % 2 != 0 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* "name": value / 1000 with three digits */
static void print_milli(const char *name, uint64_t value)
{
    metal_printf("\"%s\": %llu.%03llu", name, (unsigned long long)(value / 1000),
                 (unsigned long long)(value % 1000));
}

static void print_times(const struct replay_run *run)
{
    const uint64_t operations = run->result.allocs + run->result.frees;
    const uint64_t per_ms = metal_cycles_per_ms();

    if (run->rounds == 0 || operations == 0 || per_ms == 0)
        return;
    metal_printf("json   ");
    /* cycles to picoseconds an operation: cycles / per_ms is ms; the product stays below 2^64 */
    print_milli("ns_per_op", median(run->busy, run->rounds) * 1000 / per_ms * 1000000 / operations);
    metal_printf(", ");
    print_milli("wall_ms", median(run->passed, run->rounds) * 1000 / per_ms);
    metal_printf(",\n");
}

static void print_flushes(const struct replay_run *run)
{
    const struct replay_result *r = &run->result;
    const struct replay_counter *c = &run->counter;

    metal_printf(
        "json   \"flushes\": {\"made\": true, \"local_full\": %llu, \"local_range\": %llu, "
        "\"local_pages\": %llu,\n",
        (unsigned long long)r->flush_full[0], (unsigned long long)r->flush_range[0],
        (unsigned long long)r->flush_pages[0]);
    metal_printf("json    \"other_full\": %llu, \"other_range\": %llu, \"other_pages\": %llu, "
                 "\"nothing\": %llu, \"counted\": %llu,\n",
                 (unsigned long long)r->flush_full[1], (unsigned long long)r->flush_range[1],
                 (unsigned long long)r->flush_pages[1], (unsigned long long)r->flush_nothing,
                 (unsigned long long)r->flush_counted);
    metal_printf("json    \"settle\": %llu, \"backend_full\": %llu, \"backend_ranges\": %llu, "
                 "\"backend_pages\": %llu},\n",
                 (unsigned long long)run->settle, (unsigned long long)c->whole,
                 (unsigned long long)c->ranges, (unsigned long long)c->pages);
}

static void print_name(const struct replay_run *run)
{
#if defined(__x86_64__)
    const char *key = "x86", *machine = "x86-64";
#else
    const char *key = "arm64", *machine = "arm64";
#endif
    const char *emulator = metal_emulator();

    metal_printf("json  {\"trace\": \"");
    for (size_t i = 0; i < run->trace_length; i++)
        metal_putc(run->trace[i]);
    metal_printf("\", \"run\": \"hvmem-%s%s\", \"name\": \"hvmem unikernel %s", key,
                 run->debts ? "-debts" : "", machine);
    if (subject_level()[0] != 'x')
        metal_printf(" %s", subject_level());
    metal_printf("%s%s\", \"emulated\": %s,\n", run->debts ? ", debts settled" : ", flushes",
                 emulator != NULL ? ", under emulation" : "", emulator != NULL ? "true" : "false");
}

void replay_print(const struct replay_run *run)
{
    const struct replay_result *r = &run->result;

    print_name(run);
    metal_printf("json   \"operations\": %llu, \"rounds\": %u, \"freed_first\": %llu, "
                 "\"foreign\": %llu, \"no_memory\": %llu, \"waits\": %llu,\n",
                 (unsigned long long)(r->allocs + r->frees), run->rounds,
                 (unsigned long long)r->freed_first, (unsigned long long)r->foreign,
                 (unsigned long long)r->no_memory, (unsigned long long)r->waits);
    print_times(run);
    print_flushes(run);
    metal_printf("json   \"instructions\": ");
    replay_counter_print(&run->counter);
    metal_printf(",\njson   \"peak_pages\": %llu, \"regions\": %llu, \"regions_least\": %llu, "
                 "\"metadata_bytes\": %llu,\n",
                 (unsigned long long)run->peak.pages, (unsigned long long)run->peak.regions,
                 (unsigned long long)run->peak.regions_least,
                 (unsigned long long)(run->heap.table_frames * METAL_PAGE_BYTES));
    metal_printf("json   \"free_large\": %llu, \"possible_large\": %llu, \"verified\": true}\n",
                 (unsigned long long)run->peak.free_large,
                 (unsigned long long)run->peak.possible_large);
}
