/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What hvmem-replay is made of: a trace in memory, an allocator that can play it (hvmem on a heap of
 * its own, jemalloc, glibc), rounds on two threads, and what is found at the peak.
 */
#ifndef RUNNER_H
#define RUNNER_H

#include "count_backend.h"
#include "hvmem_linux.h"
#include "recorders.h"

#include "../../common/player.h"
#include "../../common/player_heap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_ROUNDS 101
#define MAX_RUNS   8

/* Pages are not touched by the player for any allocator; what an allocator touches is its own cost. */
struct trace {
    char name[64];
    void *bytes;
    size_t size;
    void *slots;
    size_t slot_bytes;
};

/* One way of playing: a column of the result. */
struct allocator {
    const char *key;  /* for --only and JSON */
    const char *name; /* for people */
    struct replay_ops ops;
    void *ctx;
    uint64_t (*metadata)(void *ctx,
                         uint64_t live_bytes); /* bytes beyond the live ones, at the peak */
    struct heap_session *session;              /* NULL: not hvmem */
    unsigned most_rounds;                      /* 0: as many as asked for */
};

/* What is seen when every CPU stands at the trace's peak. */
struct peak {
    uint64_t pages, blocks;
    uint64_t regions;        /* 2 MiB regions that hold a live page */
    uint64_t regions_least;  /* if the live pages were packed */
    uint64_t free_large;     /* hvmem: free 2 MiB blocks, caches drained */
    uint64_t possible_large; /* as many as the free frames could make */
    uint64_t metadata;
};

struct outcome {
    const struct allocator *allocator;
    const struct trace *trace;
    unsigned rounds;
    double ns[MAX_ROUNDS];       /* CPU time an operation, waits for the other CPU left out */
    double wall_ms[MAX_ROUNDS];  /* from the first thread's start to the last one's end */
    struct replay_result result; /* of the last round */
    struct peak peak;
    uint64_t settle_flushes; /* hvmem: whole flushes because an allocation had to settle */
    uint64_t backend_all, backend_ranges, backend_pages;
    uint64_t instructions[RECORD_KINDS]; /* recorded for these requests, of x86 */
    bool verified; /* hvmem: audit passed and the initial block set came back, each time */
};

/* A heap, the threads' host and a counting back-end, for any number of rounds. */
struct heap_session {
    struct hvmem_linux_topology topology;
    struct hvmem_linux_host *host;
    struct hvmem_linux_heap linux_heap;
    struct count_backend backend;
    struct replay_heap player;
    struct hvmem_block *initial;
    size_t initial_count;
    void *domain_memory;
};

/* ---- session.c ---- */

#define SESSION_FLUSHES 1u /* recorded flushes are made, not only counted */
#define SESSION_DEBTS   2u /* user memory belongs to a domain whose frames owe TLB and SCRUB work */

/* 0 on success; otherwise a message was printed. */
int session_open(struct heap_session *session, const char *topology, uint64_t node_frames,
                 unsigned flags);
void session_close(struct heap_session *session);
void session_allocator(struct heap_session *session, struct allocator *allocator);

/* Drain and audit: 0 if all is well, else a message was printed. */
int session_audit(struct heap_session *session);
/* After everything was freed: audit, and the same blocks as at the start. 0 if so. */
int session_restored(struct heap_session *session);
/* Large free blocks, after a drain. */
int session_large(struct heap_session *session, uint64_t *blocks, uint64_t *possible);
/* One line a block (see draw-heap); 0 on success. */
int session_dump(struct heap_session *session, const char *path, const char *title);

/* ---- mallocs.c ---- */

/* Fill in the allocators other than hvmem; returns how many. */
size_t malloc_allocators(struct allocator *list, size_t room);
uint64_t thread_ns(void);
uint64_t wall_ns(void);

/* ---- rounds.c ---- */

/* `threads`: whose threads play where there is no heap. Both return 0 or print a message. */
int play_round(struct hvmem_linux_host *threads, const struct trace *trace,
               const struct allocator *allocator, struct outcome *outcome);
/*
 * Untimed: to the peak, look there (dump_path may be NULL), on to the end, free everything.
 */
int play_peak(struct hvmem_linux_host *threads, const struct trace *trace,
              const struct allocator *allocator, struct outcome *outcome, const char *dump_path);

int trace_load(struct trace *trace, const char *path);
void trace_unload(struct trace *trace);

/* ---- print.c ---- */

double median(const double *values, unsigned count);
int write_json(const char *path, const struct outcome *list, size_t count);

#endif
