/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-count-calls: as bench-count-locks, the calls that are neither allocations nor frees: runs of frames,
 * payments, frames out of service, claims, domains that end, banks that come and go, quiescing, statistics. What
 * is done under a heap's admin lock counts as the holds of other locks in it.
 */
#include "bench/count/arenas.h"
#include "bench/count/section.h"
#include "lib/touched.h"

#include <hvmem/cache.h>

#define BAD  255u /* frames of one block that go out of service */
#define OWNS 200u

static void expect(hvmem_status got, hvmem_status status)
{
    counting = NULL;
    FIGURE_REQUIRE(got == status);
}

/* ---- runs ------------------------------------------------------------------------------------- */

/* Out of blocks of every order, each in a bitmap; for one that there is not; back. */
static void runs(struct arena *a)
{
    struct chains chains = make_chains(a, 0);
    struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY};
    hvmem_u64 half = (hvmem_u64)1 << (a->order - 1);
    hvmem_mfn mfn;

    request.count = 3;
    COUNTED(named("alloc_run"), hvmem_alloc(a->h.heap, &request, &mfn));
    FIGURE_REQUIRE(hvmem_free_run(a->h.heap, mfn, 3) == HVMEM_OK);
    request.count = half + half / 2 - 1;
    counting = named("alloc_run");
    expect(hvmem_alloc(a->h.heap, &request, &mfn), HVMEM_E_NOMEM);
    end_chains(a, chains);
    request.count = 2 * half - 1;
    COUNTED(named("alloc_run"), hvmem_alloc(a->h.heap, &request, &mfn));
    COUNTED(named("free_run"), hvmem_free_run(a->h.heap, mfn, request.count));
}

/* ---- payments --------------------------------------------------------------------------------- */

/* What a settle and a first touch do for one frame (all of a large arena would take too long). */
static void pay_one(struct arena *a, hvmem_mfn mfn)
{
    hvmem_u64 frames = 1;

    counting = named("settle");
    (void)hvmem__touch_debts(a->h.heap, mfn, &frames);
    expect(hvmem__touch_paid(a->h.heap, mfn, 1, HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE), HVMEM_OK);
}

/* All of the arena as one block of the domain, whose halves owe different things down to single frames. */
static void settles(struct arena *a)
{
    hvmem_u64 frames = (hvmem_u64)1 << a->order;
    hvmem_mfn mfn;
    hvmem_u32 k;

    end_chains(a, make_chains(a, DEBTS));
    mfn = take_above(a, a->first, a->order, a->domain);
    pay_one(a, mfn);
    pay_one(a, mfn + frames - 1);
    for (k = 1; k < a->order; k += 3)
        pay_one(a, mfn + frames - ((hvmem_u64)1 << k));
    if (a->order <= LARGEST)
        COUNTED(named("settle"), hvmem_settle(a->h.heap, mfn, frames, HVMEM_OWES_ANY));
    FIGURE_REQUIRE(hvmem_free_owned(a->h.heap, mfn, a->order, a->domain, 0) == HVMEM_OK);
}

/* ---- frames out of service -------------------------------------------------------------------- */

/* The first frame of all that is free, and the last; with blocks of every order; bad ones all over a block. */
static void offlines(struct arena *a, hvmem_u32 owed)
{
    hvmem_mfn last = (a->first << 1) - 1, mfn, step = ((hvmem_u64)1 << a->order) / (BAD + 1);
    struct chains chains;
    unsigned i;

    COUNTED(named("offline"), hvmem_offline(a->h.heap, a->first));
    COUNTED(named("offline"), hvmem_offline(a->h.heap, last));
    COUNTED(named("online"), hvmem_online(a->h.heap, last));
    COUNTED(named("online"), hvmem_online(a->h.heap, a->first));
    chains = make_chains(a, owed);
    COUNTED(named("offline"), hvmem_offline(a->h.heap, last));
    end_chains(a, chains);
    COUNTED(named("online"), hvmem_online(a->h.heap, last));
    mfn = take_above(a, a->first, a->order, a->domain);
    for (i = 0; i < BAD; i++) {
        counting = named("offline_used");
        expect(hvmem_offline(a->h.heap, mfn + 1 + i * step), HVMEM_AGAIN);
    }
    COUNTED(named("free_bad"), hvmem_free_owned(a->h.heap, mfn, a->order, a->domain, owed));
    for (i = 0; i < BAD; i++)
        COUNTED(named("online"), hvmem_online(a->h.heap, mfn + 1 + i * step));
}

/* ---- claims, quiescing, statistics ------------------------------------------------------------ */

static void looks(struct arena *a)
{
    struct hvmem_domain_stats domain_stats;
    struct chains chains = make_chains(a, DEBTS);
    struct hvmem_stats stats;

    COUNTED(named("claim"), hvmem_domain_claim(a->domain, HVMEM_NODE_ANY, 5));
    COUNTED(named("claim"), hvmem_domain_claim(a->domain, 0, 5));
    COUNTED(named("look"), hvmem_stats(a->h.heap, HVMEM_NODE_ANY, sizeof stats, &stats));
    COUNTED(named("look"), hvmem_domain_stats(a->domain, &domain_stats));
    COUNTED(named("claim"), hvmem_domain_claim(a->domain, HVMEM_NODE_ANY, 0));
    COUNTED(named("claim"), hvmem_domain_claim(a->domain, 0, 0));
    COUNTED(named("look"), hvmem_quiesce(a->h.heap));
    end_chains(a, chains);
}

/* ---- domains ---------------------------------------------------------------------------------- */

/*
 * A domain owns a block at the end, behind single frames of others, and every second one of those before; a
 * claim goes with it.
 */
static void teardown(struct arena *a)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned i;

    claim(a->domain, 1);
    (void)take_above(a, (a->first << 1) - 1, 0, a->domain);
    for (i = 0; i < OWNS; i++)
        (void)take_above(a, a->first, 0, i < OWNS / 2 || i % 2 ? NULL : a->domain);
    counting = named("teardown");
    do
        status = hvmem_domain_teardown(a->domain, HVMEM_TEARDOWN_IDS_GONE, &cursor);
    while (status == HVMEM_AGAIN);
    expect(status, HVMEM_OK);
}

/* ---- banks ------------------------------------------------------------------------------------ */

/* The last of a directory full of banks, before all others: what comes behind moves. */
static void banks(void)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = FIRST, .frames = 64};
    hvmem_size bytes;
    hvmem_u8 *memory;
    struct heap h;
    unsigned i;

    start(&h, HVMEM_CONFIG_NO_CPU_CACHE, LARGEST);
    FIGURE_REQUIRE(hvmem_bank_size(h.heap, &bank, &bytes) == HVMEM_OK);
    bytes += 4096;
    memory = take_memory(&h, bytes * (CROWD + 1));
    FIGURE_REQUIRE(hvmem_smp_enable(h.heap) == HVMEM_OK);
    for (i = 1; i <= CROWD; i++) {
        bank.base = FIRST + 64 * i;
        COUNTED(named("bank_add"), hvmem_bank_add(h.heap, &bank, memory + bytes * i, bytes));
    }
    bank.base = FIRST;
    COUNTED(named("bank_add"), hvmem_bank_add(h.heap, &bank, memory, bytes));
    COUNTED(named("bank_remove"), hvmem_bank_remove(h.heap, FIRST, 64));
    COUNTED(named("bank_remove"), hvmem_bank_remove(h.heap, FIRST + 64, 64));
    close_heap(&h);
}

/* ---- all of them ------------------------------------------------------------------------------ */

static void all(struct arena *a, const char *name)
{
    name_kind(name, "");
    runs(a);
    settles(a);
    offlines(a, 0);
    offlines(a, DEBTS);
    looks(a);
    teardown(a);
    close_heap(&a->h);
}

int main(void)
{
    struct arena a;
    unsigned i;

    for (i = 0; i < 4; i++)
        section_empty();
    open_arena(&a, LARGEST, 0);
    all(&a, "call18.");
    open_arena(&a, LARGEST, 1);
    all(&a, "call18.seams.");
    open_arena(&a, HVMEM_ORDER_LIMIT, 0);
    all(&a, "call30.");
    open_arena(&a, HVMEM_ORDER_LIMIT, 1);
    all(&a, "call30.seams.");
    open_crowd(&a);
    all(&a, "callcrowd.");
    kind = "callcrowd.";
    banks();
    return 0;
}
