/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways of moves.h that go through a gather: the window is a space that every CPU runs, A's frames
 * are unhooked and handed to the gather, and must not come to B before it is finished. By single
 * pages, by one range, by so many pages that the whole space is cheaper, and by asking for the whole.
 */
#include <hvmem/gather.h>

#include "test/metal/moves.h"

#define FEW  22u  /* pages from the first to the last of the round */
#define STEP 3u   /* pages from one of them to the next */
#define MANY 600u /* more than any threshold for single operations */

static struct hvmem_ident *ident;
static struct hvmem_space *space;
static struct hvmem_mapping mapping;

/* Begins, tells of each step-th page, hands the frames over: all but the flush. */
static int gather_all(struct hvmem_gather *gather, uint64_t pages, uint64_t step)
{
    const uint64_t base = move_page(0);
    int good = hvmem_gather_begin(gather, &mapping, 0, base, pages << METAL_PAGE_SHIFT) == HVMEM_OK;

    move_unmap();
    for (uint64_t i = 0; i < pages; i += step)
        good &= hvmem_gather_entry(gather, base + (i << METAL_PAGE_SHIFT), METAL_PAGE_SHIFT, 3,
                                   0) == HVMEM_OK;
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_gather_free(gather, moves.frame[i], 0, moves.a, 0) == HVMEM_OK;
    return good;
}

/* Until the gather is finished nothing was invalidated, and nobody gets a frame. */
static void check_held(void)
{
    const struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY};
    hvmem_mfn mfn;

    CHECK(move_stale(move_all_cpus()) >= MOVE_FRAMES * moves.cpus / 2);
    CHECK_EQUAL(hvmem_alloc(moves.heap, &request, &mfn), HVMEM_E_NOMEM);
    CHECK_EQUAL(moves.batches, 0);
}

static int give(uint64_t pages, uint64_t step, uint32_t what)
{
    static struct hvmem_gather gather;
    int good = gather_all(&gather, pages, step);

    check_held();
    good &= hvmem_gather_finish(&gather) == HVMEM_OK;
    CHECK_EQUAL(moves.what, 1u << what);
    return good;
}

static int give_pages(void)
{
    return give(FEW, STEP, HVMEM_FLUSH_RANGES);
}

static int give_range(void)
{
    return give(FEW, 1, HVMEM_FLUSH_RANGES);
}

/* Range operations take as many pages as easily; without them the space is flushed. */
static int give_many(void)
{
    return give(MANY, 1,
                moves.backend.caps.features & HVMEM_CAP_RANGE ? HVMEM_FLUSH_RANGES
                                                              : HVMEM_FLUSH_SPACE);
}

static int give_whole(void)
{
    static struct hvmem_gather gather;
    int good = hvmem_gather_begin(&gather, &mapping, HVMEM_GATHER_WHOLE, 0, 0) == HVMEM_OK;

    move_unmap();
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_gather_entry(&gather, move_page(i), METAL_PAGE_SHIFT, 3, 0) == HVMEM_OK &&
                hvmem_gather_free(&gather, moves.frame[i], 0, moves.a, 0) == HVMEM_OK;
    good &= hvmem_gather_finish(&gather) == HVMEM_OK;
    CHECK_EQUAL(moves.what, 1u << HVMEM_FLUSH_SPACE);
    return good;
}

/* What a failed operation does with its gather: it settles all the same. */
static int give_cancelled(void)
{
    static struct hvmem_gather gather;
    int good = gather_all(&gather, FEW, 1);

    check_held();
    return good & (hvmem_gather_cancel(&gather) == HVMEM_OK);
}

static int take_freed(void)
{
    return move_take(moves.running, 0);
}

/* ---- the space ---- */

static int space_make(void)
{
    const struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_USER};
    const hvmem_size bytes = hvmem_space_size(ident);
    void *memory = metal_pages(bytes, METAL_PAGE_BYTES);
    struct hvmem_mapping_config of = {.size = sizeof of, .heap = moves.heap};

    if (memory == NULL ||
        !CHECK_EQUAL(hvmem_space_create(ident, memory, bytes, &config, &space), HVMEM_OK))
        return 0;
    of.space = space;
    move_load(ident, space);
    return CHECK_EQUAL(hvmem_mapping_init(&mapping, &of), HVMEM_OK);
}

void move_run_gathered(void)
{
    const uint64_t cpus = moves.cpus;
    const struct path paths[] = {
        {"gathered, pages", give_pages, take_freed, {0, 0}, {0, 0}, {cpus, 1}, 0},
        {"gathered, a range", give_range, take_freed, {0, 0}, {0, 0}, {cpus, 1}, 0},
        {"gathered, many pages", give_many, take_freed, {0, 0}, {0, 0}, {cpus, 1}, 0},
        {"gathered, whole", give_whole, take_freed, {0, 0}, {0, 0}, {cpus, 1}, 0},
        {"gathered, cancelled", give_cancelled, take_freed, {0, 0}, {0, 0}, {cpus, 1}, 0},
    };

    ident = move_ident(HVMEM_IDENT_PER_CPU);
    if (ident == NULL || !space_make())
        return;
    for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++)
        move_run(&paths[i]);
    move_unload(ident, 1);
    CHECK_EQUAL(hvmem_mapping_fini(&mapping), HVMEM_OK);
    CHECK_EQUAL(hvmem_space_destroy(space, 0), HVMEM_OK);
}
