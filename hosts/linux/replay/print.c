/* SPDX-License-Identifier: BSD-2-Clause */
/* Medians and the JSON file of results (its form: hosts/linux/replay/README.md). */
#include "runner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

double median(const double *values, unsigned count)
{
    double sorted[MAX_ROUNDS];

    if (count == 0)
        return 0;
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare);
    return count % 2 != 0 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static void write_flushes(FILE *file, const struct outcome *run)
{
    const struct replay_result *got = &run->result;
    bool made = run->allocator->ops.flush != NULL;

    fprintf(file,
            "   \"flushes\": {\"made\": %s, \"local_full\": %" PRIu64 ", \"local_range\": %" PRIu64
            ", \"local_pages\": %" PRIu64 ",\n"
            "    \"other_full\": %" PRIu64 ", \"other_range\": %" PRIu64
            ", \"other_pages\": %" PRIu64 ", \"nothing\": %" PRIu64 ", \"counted\": %" PRIu64
            ",\n    \"settle\": %" PRIu64 ", \"backend_full\": %" PRIu64
            ", \"backend_ranges\": %" PRIu64 ", \"backend_pages\": %" PRIu64 "},\n",
            made ? "true" : "false", (uint64_t)got->flush_full[0], (uint64_t)got->flush_range[0],
            (uint64_t)got->flush_pages[0], (uint64_t)got->flush_full[1],
            (uint64_t)got->flush_range[1], (uint64_t)got->flush_pages[1],
            (uint64_t)got->flush_nothing, (uint64_t)got->flush_counted, run->settle_flushes,
            run->backend_all, run->backend_ranges, run->backend_pages);
}

static void write_instructions(FILE *file, const struct outcome *run)
{
    const char *comma = "";
    unsigned kind;

    fprintf(file, "   \"instructions\": {");
    for (kind = 0; kind < RECORD_KINDS; kind++) {
        if (run->instructions[kind] == 0 || recorders_word(kind) == NULL)
            continue;
        fprintf(file, "%s\"%s\": %" PRIu64, comma, recorders_word(kind), run->instructions[kind]);
        comma = ", ";
    }
    fprintf(file, "},\n");
}

static void write_run(FILE *file, const struct outcome *run)
{
    const struct replay_result *got = &run->result;
    const struct peak *peak = &run->peak;

    fprintf(file,
            "  {\"trace\": \"%s\", \"run\": \"%s\", \"name\": \"%s\",\n"
            "   \"operations\": %" PRIu64 ", \"rounds\": %u, \"ns_per_op\": %.2f, "
            "\"wall_ms\": %.3f,\n",
            run->trace->name, run->allocator->key, run->allocator->name,
            (uint64_t)(got->allocs + got->frees), run->rounds, median(run->ns, run->rounds),
            median(run->wall_ms, run->rounds));
    fprintf(file,
            "   \"freed_first\": %" PRIu64 ", \"foreign\": %" PRIu64 ", \"no_memory\": %" PRIu64
            ", \"waits\": %" PRIu64 ",\n",
            (uint64_t)got->freed_first, (uint64_t)got->foreign, (uint64_t)got->no_memory,
            (uint64_t)got->waits);
    write_flushes(file, run);
    write_instructions(file, run);
    fprintf(file,
            "   \"peak_pages\": %" PRIu64 ", \"regions\": %" PRIu64 ", \"regions_least\": %" PRIu64
            ", \"metadata_bytes\": %" PRIu64 ",\n",
            peak->pages, peak->regions, peak->regions_least, peak->metadata);
    if (run->allocator->session != NULL)
        fprintf(file, "   \"free_large\": %" PRIu64 ", \"possible_large\": %" PRIu64 ",\n",
                peak->free_large, peak->possible_large);
    fprintf(file, "   \"verified\": %s}", run->verified ? "true" : "false");
}

int write_json(const char *path, const struct outcome *list, size_t count)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    size_t i;
    int bad;

    if (file == NULL) {
        perror(path);
        return 1;
    }
    fprintf(file, "{\"results\": [\n");
    for (i = 0; i < count; i++) {
        write_run(file, &list[i]);
        fprintf(file, "%s\n", i + 1 < count ? "," : "");
    }
    fprintf(file, "]}\n");
    bad = ferror(file);
    if (file != stdout)
        bad |= fclose(file);
    if (bad)
        perror(path);
    return bad != 0;
}
