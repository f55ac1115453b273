/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-count-ranges: as bench-count-locks, the side that gives memory back and what goes over ranges: merges
 * through full sets, debts and seams in arenas of any order, scrubbing, exact ranges, look-ups, walks.
 */
#include "bench/count/arenas.h"
#include "bench/count/section.h"

#include <hvmem/backend.h>
#include <hvmem/cache.h>

#define FRAMES 256u
#define SCRUBS 20u /* calls that go on with one scrub */

/* ---- merges --------------------------------------------------------------------------------- */

static void merges(struct arena *a, hvmem_u32 owed)
{
    struct chains chains = make_chains(a, owed);

    COUNTED(name_of("free", 0),
            hvmem_free_owned(a->h.heap, chains.right, 0, NULL, owed ? HVMEM_OWES_TLB : 0));
    COUNTED(name_of("free", 0), hvmem_free(a->h.heap, chains.left, 0));
}

/* As many levels by the fronts of sets as there are, before others out of bitmaps. */
static void fronts_first(struct arena *a, hvmem_u32 from)
{
    hvmem_mfn half = a->first + ((hvmem_mfn)1 << (a->order - 1));
    hvmem_mfn left = take_above(a, a->first, from, NULL), right = take_above(a, half, 0, NULL);

    COUNTED(name_of("free", 0), hvmem_free(a->h.heap, right, 0));
    COUNTED(name_of("free", from), hvmem_free(a->h.heap, left, from));
}

/* The whole arena: its node is told of every order. */
static void all_at_once(struct arena *a)
{
    hvmem_mfn mfn;

    FIGURE_REQUIRE(hvmem_alloc_order(a->h.heap, a->order, &mfn) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free(a->h.heap, mfn, a->order) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc_order(a->h.heap, a->order, &mfn) == HVMEM_OK);
    COUNTED(name_of("free", a->order), hvmem_free(a->h.heap, mfn, a->order));
}

/* ---- scrubbing ------------------------------------------------------------------------------ */

static void scrub_some(struct arena *a, hvmem_u64 budget)
{
    struct hvmem_cursor cursor = {{0}};
    unsigned i;

    counting = named("scrub");
    for (i = 0;
         i < SCRUBS && hvmem_scrub_step(a->h.heap, HVMEM_NODE_ANY, budget, &cursor) == HVMEM_AGAIN;
         i++)
        continue;
    counting = NULL;
}

/* Free frames between used ones, clean but for the last, in an arena that has blocks of every order. */
static void scrub_scattered(hvmem_u32 order)
{
    struct arena a;
    hvmem_mfn frame[FRAMES];
    unsigned i;

    open_arena(&a, order, 0);
    for (i = 0; i < FRAMES; i++)
        FIGURE_REQUIRE(hvmem_alloc_order(a.h.heap, 0, &frame[i]) == HVMEM_OK);
    for (i = 0; i < FRAMES; i += 2)
        FIGURE_REQUIRE(hvmem_free_owned(a.h.heap, frame[i], 0, NULL, i == FRAMES - 2 ? DEBTS : 0) ==
                       HVMEM_OK);
    (void)make_chains(&a, 0);
    scrub_some(&a, 64);
    close_heap(&a.h);
}

/* Dirt in parts of one block, a few frames a call. */
static void scrub_mixed(struct arena *a)
{
    struct chains chains = make_chains(a, DEBTS);

    FIGURE_REQUIRE(hvmem_free_owned(a->h.heap, chains.right, 0, NULL, DEBTS) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free(a->h.heap, chains.left, 0) == HVMEM_OK);
    scrub_some(a, 85);
    chains = make_chains(a, DEBTS);
    scrub_some(a, 85);
    end_chains(a, chains);
}

/* ---- exact ranges --------------------------------------------------------------------------- */

/* All but the ends of an arena; refused for its last frame; freed from the middle outwards. */
static void ranges(struct arena *a, hvmem_u32 owed)
{
    struct chains chains = make_chains(a, owed);
    hvmem_u64 frames = (hvmem_u64)1 << a->order;

    end_chains(a, chains);
    COUNTED(named("reserve"), hvmem_reserve(a->h.heap, a->first + 1, frames - 2));
    COUNTED(named("free_run"), hvmem_free_run(a->h.heap, a->first + 1, frames - 2));
    FIGURE_REQUIRE(hvmem_reserve(a->h.heap, a->first + frames - 1, 1) == HVMEM_OK);
    counting = named("reserve");
    FIGURE_REQUIRE(hvmem_reserve(a->h.heap, a->first + 1, frames - 1) == HVMEM_E_BUSY);
    counting = NULL;
    COUNTED(named("free_run"), hvmem_free_run(a->h.heap, a->first + frames - 1, 1));
    COUNTED(named("reserve"), hvmem_reserve(a->h.heap, a->first, frames));
    COUNTED(named("free_run"),
            hvmem_free_run(a->h.heap, a->first + frames / 4 - 1, frames / 4 + 2));
    COUNTED(named("free_run"), hvmem_free_run(a->h.heap, a->first, frames / 4 - 1));
    COUNTED(named("free_run"),
            hvmem_free_run(a->h.heap, a->first + frames / 2 + 1, frames / 2 - 1));
}

/* ---- look-ups ------------------------------------------------------------------------------- */

static void look_at(struct arena *a, hvmem_mfn mfn)
{
    struct hvmem_block block;

    COUNTED(named("lookup"), hvmem_lookup(a->h.heap, mfn, &block));
}

static void look_everywhere(struct arena *a)
{
    hvmem_mfn last = (a->first << 1) - 1, mfn;
    struct chains chains;

    look_at(a, last);
    look_at(a, a->first);
    FIGURE_REQUIRE(hvmem_alloc_order(a->h.heap, a->order, &mfn) == HVMEM_OK);
    look_at(a, last);
    FIGURE_REQUIRE(hvmem_free(a->h.heap, mfn, a->order) == HVMEM_OK);
    chains = make_chains(a, DEBTS);
    look_at(a, last);
    look_at(a, a->first + 1);
    end_chains(a, chains);
}

/* ---- many banks ----------------------------------------------------------------------------- */

static void crowded(hvmem_u32 owed)
{
    struct chains chains;
    struct arena a;

    open_crowd(&a);
    chains = make_chains(&a, owed);
    COUNTED(name_of("free", 0), hvmem_free_owned(a.h.heap, chains.right, 0, NULL, owed));
    COUNTED(name_of("free", 0), hvmem_free_owned(a.h.heap, chains.left, 0, NULL, owed));
    if (!owed)
        look_everywhere(&a);
    COUNTED(named("reserve"), hvmem_reserve(a.h.heap, a.first + 1, ARENA - 2));
    COUNTED(named("free_run"), hvmem_free_run(a.h.heap, a.first + 1, ARENA - 2));
    scrub_some(&a, 85);
    close_heap(&a.h);
}

static void arena(const char *name, hvmem_u32 order, int doubling)
{
    struct arena a;
    hvmem_u32 from;

    open_arena(&a, order, doubling);
    name_kind(name, "");
    merges(&a, 0);
    for (from = 2; from < order - 1; from++)
        fronts_first(&a, from);
    all_at_once(&a);
    ranges(&a, 0);
    claim(a.domain, 1);
    name_kind(name, "claims.");
    merges(&a, 0);
    for (from = 2; from < order - 1; from++)
        fronts_first(&a, from);
    claim(a.domain, 0);
    name_kind(name, "");
    look_everywhere(&a);
    name_kind(name, "debts.");
    merges(&a, DEBTS);
    ranges(&a, DEBTS);
    claim(a.domain, 1);
    name_kind(name, "both.");
    merges(&a, DEBTS);
    claim(a.domain, 0);
    name_kind(name, "");
    scrub_mixed(&a);
    close_heap(&a.h);
}

int main(void)
{
    unsigned i;

    for (i = 0; i < 4; i++)
        section_empty();
    arena("give18.", LARGEST, 0);
    arena("give18.seams.", LARGEST, 1);
    arena("give30.", HVMEM_ORDER_LIMIT, 0);
    arena("give30.seams.", HVMEM_ORDER_LIMIT, 1);
    scrub_scattered(LARGEST);
    scrub_scattered(HVMEM_ORDER_LIMIT);
    kind = "crowd.";
    crowded(0);
    crowded(DEBTS);
    return 0;
}
