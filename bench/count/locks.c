/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-count-locks: instructions between the acquisition and the release of library locks (nested
 * locks: of the outermost), over states chosen to be bad: splits and merges through every order, dirt
 * that differs between halves, arenas of many small banks, random programs. Each hold is a section of
 * its own, named after the call; the greatest of a name is the figure. See bench/count/run.
 */
#include "bench/common/figure.h"
#include "bench/common/pages.h"
#include "bench/common/random.h"
#include "bench/count/hvmem_host_count.h"
#include "bench/count/section.h"

#include <hvmem/backend.h>
#include <hvmem/domain.h>
#include <hvmem/heap.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST  18u
#define ARENA    ((hvmem_u64)1 << LARGEST)
#define PIECES   16u /* banks in one arena, at most */
#define FIRST    0x100000u
#define BURST    400u /* frames through the caches */
#define PROGRAMS 150u /* steps of a random program */

/* ---- what locks do -------------------------------------------------------------------------- */

static const char *counting; /* name of the sections; NULL: locks are not counted */
static unsigned depth;

void bench_count_lock(void)
{
    if (depth++ == 0 && counting != NULL)
        section_begin();
}

void bench_count_unlock(void)
{
    if (--depth == 0 && counting != NULL)
        section_end(counting);
}

/* Runs a call, counting the locks it takes. */
#define COUNTED(name, call)                                                                        \
    do {                                                                                           \
        hvmem_status counted_status;                                                               \
        counting = (name);                                                                         \
        counted_status = (call);                                                                   \
        counting = NULL;                                                                           \
        FIGURE_REQUIRE(counted_status == HVMEM_OK);                                                \
    } while (0)

/* ---- heaps ---------------------------------------------------------------------------------- */

static hvmem_status barrier(void *host, hvmem_cpu cpu)
{
    (void)host;
    (void)cpu;
    return HVMEM_OK;
}

static void *frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    (void)mfn;
    (void)order;
    return host;
}

/* A back-end that is done at once, on all CPUs: only what happens under locks counts. */
static hvmem_status flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *what)
{
    (void)be;
    (void)what;
    return HVMEM_OK;
}

static hvmem_status dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr at, hvmem_size bytes)
{
    (void)be;
    (void)op;
    (void)at;
    (void)bytes;
    return HVMEM_OK;
}

static hvmem_status zero(struct hvmem_backend *be, hvmem_uptr at, hvmem_size bytes)
{
    return dcache(be, 0, at, bytes);
}

static hvmem_cpu this_cpu(void *host)
{
    (void)host;
    return 0;
}

struct heap {
    struct hvmem_heap *heap;
    void *memory[2 + PIECES];
    size_t bytes[2 + PIECES];
    unsigned used;
};

static void *take_memory(struct heap *h, size_t bytes)
{
    void *memory = bench_pages_get(bytes, NULL);

    FIGURE_REQUIRE(memory != NULL && h->used < 2 + PIECES);
    h->memory[h->used] = memory;
    h->bytes[h->used++] = bytes;
    return memory;
}

static void add_bank(struct heap *h, hvmem_mfn base, hvmem_u64 frames)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = base, .frames = frames};
    hvmem_size bytes;

    FIGURE_REQUIRE(hvmem_bank_size(h->heap, &bank, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_add(h->heap, &bank, take_memory(h, bytes), bytes) == HVMEM_OK);
}

static void start(struct heap *h, hvmem_u32 flags)
{
    static const struct hvmem_host_ops ops = {
        .size = sizeof ops, .this_cpu = this_cpu, .barrier_cpu = barrier, .frame_map = frame_map};
    static const struct hvmem_backend_ops backend_ops = {
        .size = sizeof backend_ops, .tlb_flush = flush, .dcache = dcache, .zero = zero};
    static struct hvmem_backend backend = {
        .ops = &backend_ops,
        .caps = {.size = sizeof backend.caps, .page_shift = 12, .features = HVMEM_CAP_BROADCAST}};
    struct hvmem_config config;
    hvmem_size bytes;

    memset(h, 0, sizeof *h);
    hvmem_config_default(&config);
    config.flags = flags;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.max_banks = 64;
    config.max_domains = 1;
    config.host = &ops;
    config.host_ctx = &backend; /* any address: frames are mapped nowhere */
    config.backend = &backend;
    FIGURE_REQUIRE(hvmem_heap_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_heap_init(take_memory(h, bytes), bytes, &config, &h->heap) == HVMEM_OK);
}

/* One arena in one bank, or the same frames but one in that many banks of unequal size. */
static void open_heap(struct heap *h, hvmem_u32 flags, unsigned pieces)
{
    hvmem_mfn at = FIRST;
    unsigned i;

    start(h, flags);
    /* Every border but the last is odd, so that blocks meet across borders at every level. */
    for (i = 1; i <= pieces; i++) {
        hvmem_mfn end = FIRST + ARENA * i / pieces - (i < pieces);

        add_bank(h, at, end - at);
        at = end;
    }
    FIGURE_REQUIRE(hvmem_smp_enable(h->heap) == HVMEM_OK);
}

static void close_heap(struct heap *h)
{
    while (h->used > 0) {
        h->used--;
        bench_pages_put(h->memory[h->used], h->bytes[h->used]);
    }
}

static const char *kind = ""; /* what the names of alloc and free begin with */

static const char *name_of(const char *what, hvmem_u32 order)
{
    static char names[8][32];
    static unsigned next;
    char *name = names[next++ % 8];

    snprintf(name, sizeof names[0], "%s%s%u", kind, what, order);
    return name;
}

/* ---- alloc and free ------------------------------------------------------------------------- */

/* From one whole block down to each order, and back up to it. */
static void through_every_order(struct heap *h)
{
    hvmem_u32 order;
    hvmem_mfn mfn = 0;

    for (order = 0; order <= LARGEST; order++) {
        COUNTED(name_of("alloc", order), hvmem_alloc_order(h->heap, order, &mfn));
        COUNTED(name_of("free", order), hvmem_free(h->heap, mfn, order));
    }
}

/*
 * A chain of halves that owe different things: each merge joins clean with dirty, so that both halves
 * must be remembered at every level; then each split tells them apart again.
 */
static void through_unequal_halves(struct heap *h)
{
    hvmem_mfn chain[LARGEST + 1];
    hvmem_u32 order;

    FIGURE_REQUIRE(hvmem_reserve(h->heap, FIRST, ARENA) == HVMEM_OK);
    for (order = 0; order < LARGEST; order++) {
        chain[order] = FIRST + ((hvmem_u64)1 << order);
        COUNTED("free_run", hvmem_free_run(h->heap, chain[order], (hvmem_u64)1 << order));
    }
    /* All but the first frame are free and clean, a block of each order. Dirt comes in from below. */
    for (order = 0; order < LARGEST; order += 2) {
        hvmem_mfn mfn;

        FIGURE_REQUIRE(hvmem_alloc_order(h->heap, order, &mfn) == HVMEM_OK);
        COUNTED(name_of("free", order),
                hvmem_free_owned(h->heap, mfn, order, NULL,
                                 HVMEM_OWES_SCRUB | HVMEM_OWES_TLB | HVMEM_OWES_DCACHE));
    }
    COUNTED("free_run", hvmem_free_run(h->heap, FIRST, 1));
    /* One mixed block is left: reserve and give back parts of it. */
    COUNTED("reserve", hvmem_reserve(h->heap, FIRST, 1));
    COUNTED("free_run", hvmem_free_run(h->heap, FIRST, 1));
    COUNTED("reserve", hvmem_reserve(h->heap, FIRST + ARENA - 1, 1));
    COUNTED("free_run", hvmem_free_run(h->heap, FIRST + ARENA - 1, 1));
}

/*
 * The same through alloc and free: the first frame of a whole arena is allocated, every second of the
 * blocks left by the split is made to owe, and the frame comes back owing as well: each merge joins
 * debts that differ. Then an allocation splits what each level remembers.
 */
static void through_debts(struct heap *h, const char *allocating, const char *freeing)
{
    const hvmem_u32 owed = HVMEM_OWES_SCRUB | HVMEM_OWES_TLB | HVMEM_OWES_DCACHE;
    hvmem_mfn first, mfn;
    hvmem_u32 order;

    FIGURE_REQUIRE(hvmem_alloc_order(h->heap, 0, &first) == HVMEM_OK);
    for (order = 0; order < LARGEST; order += 2) {
        FIGURE_REQUIRE(hvmem_alloc_order(h->heap, order, &mfn) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_free_owned(h->heap, mfn, order, NULL, owed) == HVMEM_OK);
    }
    COUNTED(freeing, hvmem_free_owned(h->heap, first, 0, NULL, HVMEM_OWES_TLB));
    COUNTED(allocating, hvmem_alloc_order(h->heap, 0, &first));
    COUNTED(freeing, hvmem_free(h->heap, first, 0));
}

struct live {
    hvmem_mfn mfn;
    hvmem_u32 order;
};

static void random_program(struct heap *h, hvmem_u64 seed)
{
    static struct live live[PROGRAMS * 9];
    struct bench_rng rng = {seed};
    unsigned count = 0, step;

    for (step = 0; step < PROGRAMS * 9; step++) {
        int counted = step >= PROGRAMS * 8; /* the rest only makes the state */
        hvmem_u32 order = bench_below(&rng, bench_below(&rng, 8) ? 6 : LARGEST);

        if (count == 0 || bench_below(&rng, 100) < 54) {
            counting = counted ? name_of("alloc", order) : NULL;
            if (hvmem_alloc_order(h->heap, order, &live[count].mfn) == HVMEM_OK)
                live[count++].order = order;
        } else {
            unsigned pick = bench_below(&rng, count);
            struct live block = live[pick];
            hvmem_status status;

            live[pick] = live[--count];
            counting = counted ? name_of("free", block.order) : NULL;
            status = hvmem_free(h->heap, block.mfn, block.order);
            FIGURE_REQUIRE(status == HVMEM_OK);
        }
        counting = NULL;
    }
    while (count-- > 0)
        FIGURE_REQUIRE(hvmem_free(h->heap, live[count].mfn, live[count].order) == HVMEM_OK);
}

static void bare(const char *name, unsigned pieces)
{
    struct heap h;

    kind = name;
    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, pieces);
    through_every_order(&h);
    random_program(&h, 11);
    random_program(&h, 12);
    if (pieces == 1) {
        through_unequal_halves(&h);
        kind = "debts.";
        through_debts(&h, name_of("alloc", 0), name_of("free", 0));
    }
    close_heap(&h);
}

/* For a domain that is being built, all debts deferred: whole blocks of each order out of one that owes. */
static void deferred(void)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = ~0ull};
    struct hvmem_request request = {
        .size = sizeof request, .flags = HVMEM_REQ_DEFER_ALL, .node = HVMEM_NODE_ANY};
    struct heap h;
    hvmem_size bytes;
    hvmem_mfn mfn;

    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, 1);
    bytes = hvmem_domain_size(h.heap);
    FIGURE_REQUIRE(hvmem_domain_create(h.heap, take_memory(&h, bytes), bytes, &config,
                                       &request.domain) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc_order(h.heap, LARGEST, &mfn) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free_owned(h.heap, mfn, LARGEST, NULL,
                                    HVMEM_OWES_SCRUB | HVMEM_OWES_TLB | HVMEM_OWES_DCACHE) ==
                   HVMEM_OK);
    kind = "deferred.";
    for (request.order = 0; request.order <= LARGEST; request.order++) {
        COUNTED(name_of("alloc", request.order), hvmem_alloc(h.heap, &request, &mfn));
        COUNTED(name_of("free", request.order), hvmem_free(h.heap, mfn, request.order));
    }
    close_heap(&h);
}

/* ---- refill and drain ----------------------------------------------------------------------- */

/* Many blocks through the caches in three orders of freeing, owing and not: batches of every kind. */
static void cached(unsigned pieces, hvmem_u32 order)
{
    static hvmem_mfn frames[BURST];
    struct bench_rng rng = {13};
    unsigned count = order == 0 ? BURST : BURST / 2;
    struct heap h;
    unsigned turn, i;

    open_heap(&h, 0, pieces);
    for (turn = 0; turn < 3; turn++) {
        for (i = 0; i < count; i++)
            COUNTED("refill", hvmem_alloc_order(h.heap, order, &frames[i]));
        if (turn > 0)
            bench_shuffle(&rng, frames, count);
        for (i = 0; i < count; i++) {
            hvmem_u32 owed = turn == 2 && i % 2 ? HVMEM_OWES_SCRUB | HVMEM_OWES_TLB : 0;

            COUNTED("drain", hvmem_free_owned(h.heap, frames[i], order, NULL, owed));
        }
        COUNTED("drain_all", hvmem_drain(h.heap));
    }
    close_heap(&h);
}

/* Lists of blocks past the caches: split down from whole blocks, then back, in order and shuffled. */
static void bulk(unsigned pieces)
{
    static hvmem_mfn blocks[BURST];
    struct bench_rng rng = {14};
    hvmem_u32 order, done;
    struct heap h;

    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, pieces);
    for (order = 0; order < LARGEST; order += 3) {
        unsigned most = (unsigned)(ARENA >> order), n = most < BURST ? most : BURST, turn, i;

        for (turn = 0; turn < 2; turn++) {
            for (i = 0; i < n; i++)
                FIGURE_REQUIRE(hvmem_alloc_order(h.heap, order, &blocks[i]) == HVMEM_OK);
            if (turn > 0)
                bench_shuffle(&rng, blocks, n);
            COUNTED("free_bulk", hvmem_free_bulk(h.heap, blocks, n, order, &done));
            FIGURE_REQUIRE(done == n);
        }
    }
    close_heap(&h);
}

int main(void)
{
    unsigned i;

    for (i = 0; i < 4; i++)
        section_empty();
    bare("", 1);
    bare("seams4.", 4);
    bare("seams16.", PIECES);
    deferred();
    cached(1, 0);
    cached(1, 9);
    cached(PIECES, 0);
    bulk(1);
    return 0;
}
