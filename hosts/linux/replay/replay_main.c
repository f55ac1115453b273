/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem-replay: plays recorded traces through hvmem, jemalloc and glibc, in interleaved rounds on the
 * same two threads, checks hvmem's heap after each, and tells what each of them took.
 */
#include "runner.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ROUNDS   9u
#define FIGURE_ROUNDS    31u
#define FIGURE_SECONDS   10u
#define LEAST_ROUNDS     1u
#define DEFAULT_TOPOLOGY "numa:2 pu:1"
#define DEFAULT_FRAMES   32768u /* 128 MiB a node: peaks of the traces are 103 and 81 MiB */
#define MAX_TRACES       8

struct options {
    unsigned rounds, seconds;
    const char *topology, *json, *dump, *figure, *only;
    uint64_t node_frames;
    bool quiet;
};

/* Figures and the traces they are of. */
static const struct {
    const char *figure, *file;
} figures[] = {
    {"trace.build_ns_per_op", "linux-cmake-build.hvt"},
    {"trace.sort_ns_per_op", "linux-jemalloc-sort.hvt"},
};

static const char usage_text[] =
    "usage: hvmem-replay [OPTION...] TRACE.hvt...\n"
    "       hvmem-replay --figure NAME\n"
    "  --rounds N        timed rounds of each allocator, interleaved (default 9)\n"
    "  --seconds N       no further round of a trace after N seconds, but at least one\n"
    "  --only KEY,...    of hvmem, hvmem-flushes, hvmem-debts, jemalloc-mallocx, jemalloc-malloc,\n"
    "                    glibc-aligned (default: all)\n"
    "  --topology WORDS  hwloc description of the heap's nodes (default \"numa:2 pu:1\")\n"
    "  --node-frames N   frames of each node (default 32768)\n"
    "  --json FILE       results (- for standard output)\n"
    "  --dump DIR        DIR/TRACE.dump: hvmem's blocks at the peak, for draw-heap\n"
    "  --figure NAME     trace.build_ns_per_op or trace.sort_ns_per_op: prints NAME VALUE ns, of "
    "key\n"
    "                    hvmem on the trace that the build made\n"
    "  --quiet           no progress\n";

static int parse_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"rounds", required_argument, NULL, 'r'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"only", required_argument, NULL, 'o'},
                                          {"topology", required_argument, NULL, 't'},
                                          {"node-frames", required_argument, NULL, 'n'},
                                          {"json", required_argument, NULL, 'j'},
                                          {"dump", required_argument, NULL, 'd'},
                                          {"figure", required_argument, NULL, 'f'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'r')
            options->rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 's')
            options->seconds = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'o')
            options->only = optarg;
        else if (option == 't')
            options->topology = optarg;
        else if (option == 'n')
            options->node_frames = strtoull(optarg, NULL, 0);
        else if (option == 'j')
            options->json = optarg;
        else if (option == 'd')
            options->dump = optarg;
        else if (option == 'f')
            options->figure = optarg;
        else if (option == 'q')
            options->quiet = true;
        else
            return 1;
    }
    if (options->rounds == 0 || options->rounds > MAX_ROUNDS || argc - optind > MAX_TRACES)
        return 1;
    return options->figure != NULL ? optind != argc : optind == argc;
}

/* The sessions of hvmem's three ways to play, in the order of their columns. */
static const struct {
    const char *key, *name;
    unsigned flags;
    unsigned most_rounds; /* 0: any number */
} ways[] = {
    {"hvmem", "hvmem", 0, 0},
    {"hvmem-flushes", "hvmem, recorded flushes made", SESSION_FLUSHES, 0},
    {"hvmem-debts", "hvmem, user memory a domain, debts deferred", SESSION_FLUSHES | SESSION_DEBTS,
     1},
};
#define WAYS (sizeof ways / sizeof ways[0])

static bool selected(const struct options *options, const char *key)
{
    const char *at = options->only;
    size_t length = strlen(key);

    if (at == NULL)
        return true;
    while (strncmp(at, key, length) != 0 || (at[length] != ',' && at[length] != '\0')) {
        at = strchr(at, ',');
        if (at == NULL)
            return false;
        at++;
    }
    return true;
}

/* Allocators asked for; sessions that are not needed stay closed. 0 on success. */
static int open_all(const struct options *options, struct heap_session *session,
                    struct allocator *list, size_t *count)
{
    struct allocator other[MAX_RUNS];
    size_t others = malloc_allocators(other, MAX_RUNS);
    size_t i;

    *count = 0;
    for (i = 0; i < WAYS; i++) {
        if (!selected(options, ways[i].key))
            continue;
        if (session_open(&session[i], options->topology, options->node_frames, ways[i].flags) != 0)
            return 1;
        session_allocator(&session[i], &list[*count]);
        list[*count].key = ways[i].key;
        list[*count].name = ways[i].name;
        list[*count].most_rounds = ways[i].most_rounds;
        ++*count;
    }
    for (i = 0; i < others && *count < MAX_RUNS; i++)
        if (selected(options, other[i].key))
            list[(*count)++] = other[i];
    return *count == 0;
}

/* All rounds and the look at the peak, of one trace. */
static int play_trace(const struct options *options, struct hvmem_linux_host *threads,
                      const struct trace *trace, const struct allocator *list, size_t count,
                      struct outcome *outcome)
{
    uint64_t end = wall_ns() + options->seconds * 1000000000ull;
    char path[512];
    unsigned round;
    size_t i;

    for (i = 0; i < count; i++) {
        bool dump = options->dump != NULL && strcmp(list[i].key, "hvmem-debts") == 0;

        outcome[i].allocator = &list[i];
        outcome[i].trace = trace;
        if (dump)
            snprintf(path, sizeof path, "%s/%s.dump", options->dump, trace->name);
        if (!options->quiet)
            fprintf(stderr, "  %s: %s: to the peak and to the end\n", trace->name, list[i].name);
        if (play_peak(threads, trace, &list[i], &outcome[i], dump ? path : NULL) != 0)
            return 1;
    }
    for (round = 0; round < options->rounds; round++) {
        if (options->seconds != 0 && round >= LEAST_ROUNDS && wall_ns() > end)
            break;
        if (!options->quiet)
            fprintf(stderr, "  %s: round %u of %u\n", trace->name, round + 1, options->rounds);
        for (i = 0; i < count; i++)
            if ((list[i].most_rounds == 0 || round < list[i].most_rounds) &&
                play_round(threads, trace, &list[i], &outcome[i]) != 0)
                return 1;
    }
    return 0;
}

static void print_short(const struct outcome *list, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++)
        printf("%-20s %-45s %8.1f ns/op %8.1f ms\n", list[i].trace->name, list[i].allocator->name,
               median(list[i].ns, list[i].rounds), median(list[i].wall_ms, list[i].rounds));
}

static int run(const struct options *options, char **paths, size_t paths_count)
{
    static struct heap_session session[WAYS];
    static struct outcome outcome[MAX_TRACES * MAX_RUNS];
    static struct trace trace[MAX_TRACES];
    struct hvmem_linux_host_config config = {.cpus = REPLAY_MAX_CPUS, .flags = HVMEM_LINUX_PIN};
    struct allocator list[MAX_RUNS];
    struct hvmem_linux_host *threads = NULL;
    size_t count = 0, i;
    int bad = hvmem_linux_host_create(&config, &threads) != HVMEM_OK;

    if (!bad)
        bad = open_all(options, session, list, &count);
    for (i = 0; i < paths_count && !bad; i++) {
        bad = trace_load(&trace[i], paths[i]);
        if (!bad)
            bad = play_trace(options, threads, &trace[i], list, count, &outcome[i * count]);
    }
    if (!bad && options->figure != NULL)
        printf("%s %.1f ns\n", options->figure, median(outcome[0].ns, outcome[0].rounds));
    else if (!bad && (options->json == NULL || strcmp(options->json, "-") != 0))
        print_short(outcome, paths_count * count);
    if (!bad && options->json != NULL)
        bad = write_json(options->json, outcome, paths_count * count);
    for (i = 0; i < MAX_TRACES; i++)
        trace_unload(&trace[i]);
    for (i = 0; i < WAYS; i++)
        session_close(&session[i]);
    hvmem_linux_host_destroy(threads);
    return bad;
}

static int run_figure(struct options *options)
{
    char path[512];
    char *paths[] = {path};
    size_t i;

    for (i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        if (strcmp(options->figure, figures[i].figure) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", HVMEM_TRACE_DIR, figures[i].file);
        options->only = "hvmem";
        options->quiet = true;
        options->rounds = FIGURE_ROUNDS;
        options->seconds = FIGURE_SECONDS;
        return run(options, paths, 1);
    }
    fprintf(stderr, "hvmem-replay: no figure %s\n", options->figure);
    return 2;
}

int main(int argc, char **argv)
{
    struct options options = {
        .rounds = DEFAULT_ROUNDS, .topology = DEFAULT_TOPOLOGY, .node_frames = DEFAULT_FRAMES};

    if (parse_options(argc, argv, &options) != 0) {
        fputs(usage_text, stderr);
        return 2;
    }
    if (options.figure != NULL)
        return run_figure(&options);
    return run(&options, argv + optind, (size_t)(argc - optind));
}
