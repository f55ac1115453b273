/* SPDX-License-Identifier: BSD-2-Clause */
/* Claims by node, limits, and claims against frames in per-CPU caches (bug class: B16). */
#include "expect.h"
#include "lib/bank.h"
#include "lib/claim.h"
#include "shadow.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

static struct shadow *two_nodes(hvmem_u32 flags)
{
    struct hvmem_config config = world_config();
    struct shadow *shadow;

    config.flags = flags;
    config.max_order = 5;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    shadow = shadow_new(WORLD_NEW(&config, WORLD_BROADCAST), 0, 128);
    shadow_bank(shadow, 0, 50, 0, 0);
    shadow_bank(shadow, 50, 50, 1, 0);
    CHECK_EQ(world_smp(shadow->world), HVMEM_OK);
    shadow_domain_new(shadow, 1, ~0ull, 0);
    shadow_domain_new(shadow, 2, ~0ull, 0);
    return shadow;
}

static hvmem_status take(struct shadow *shadow, hvmem_u32 id, hvmem_node node, hvmem_u32 flags)
{
    struct hvmem_request request = expect_block(0, shadow->domain[id].handle);
    hvmem_mfn mfn;

    request.node = node;
    request.flags = flags;
    return shadow_alloc(shadow, &request, &mfn);
}

/* A claim on node 1 keeps others out of node 1 alone. */
TEST(node_claim_keeps_others_out)
{
    struct shadow *shadow = two_nodes(HVMEM_CONFIG_NO_CPU_CACHE);
    unsigned i;

    CHECK_EQ(shadow_claim(shadow, 1, 1, 50), HVMEM_OK);
    CHECK_EQ(take(shadow, 2, 1, HVMEM_REQ_EXACT_NODE), HVMEM_E_CLAIM);
    for (i = 0; i < 50; i++)
        CHECK_EQ(take(shadow, 2, 1, 0), HVMEM_OK);
    CHECK_EQ(take(shadow, 2, HVMEM_NODE_ANY, 0), HVMEM_E_CLAIM);
    CHECK_EQ(take(shadow, 0, HVMEM_NODE_ANY, 0), HVMEM_E_CLAIM);
    for (i = 0; i < 50; i++)
        CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_OK);
    SHADOW_END(shadow);
}

/* The claim of the node is used up first, then the one for anywhere. */
TEST(order_in_which_claims_are_used)
{
    struct shadow *shadow = two_nodes(HVMEM_CONFIG_NO_CPU_CACHE);
    unsigned i;

    CHECK_EQ(shadow_claim(shadow, 1, 1, 5), HVMEM_OK);
    CHECK_EQ(shadow_claim(shadow, 1, HVMEM_NODE_ANY, 7), HVMEM_OK);
    for (i = 0; i < 8; i++) {
        CHECK_EQ(take(shadow, 1, 1, HVMEM_REQ_EXACT_NODE), HVMEM_OK);
        shadow_check(shadow);
    }
    CHECK_EQ(expect_domain(shadow->domain[1].handle).claimed, 4);
    for (i = 0; i < 5; i++)
        CHECK_EQ(take(shadow, 1, 0, HVMEM_REQ_EXACT_NODE), HVMEM_OK);
    CHECK_EQ(expect_domain(shadow->domain[1].handle).claimed, 0);
    CHECK_EQ(take(shadow, 1, 0, HVMEM_REQ_NO_CLAIM), HVMEM_OK);
    /* Freeing gives no claim back. */
    CHECK_EQ(shadow_claim(shadow, 1, 0, 3), HVMEM_OK);
    CHECK_EQ(take(shadow, 1, 0, HVMEM_REQ_EXACT_NODE), HVMEM_OK);
    for (i = 0; i < 100; i++)
        if (shadow->frame[i].state == SHADOW_USED)
            CHECK_EQ(shadow_free(shadow, i, 0), HVMEM_OK);
    CHECK_EQ(expect_domain(shadow->domain[1].handle).claimed, 2);
    SHADOW_END(shadow);
}

/* All free frames sit in caches: they count for claims, and are found by the claim's owner. */
TEST(claims_and_cached_frames)
{
    struct shadow *shadow = two_nodes(0);
    unsigned i;

    for (i = 0; i < 100; i++) {
        world_set_cpu(i % 2);
        CHECK_EQ(take(shadow, 0, HVMEM_NODE_ANY, 0), HVMEM_OK);
    }
    for (i = 0; i < 100; i++) {
        world_set_cpu(i / 50);
        CHECK_EQ(shadow_free(shadow, i, 0), HVMEM_OK);
    }
    shadow_check(shadow);
    CHECK_EQ(shadow_claim(shadow, 1, HVMEM_NODE_ANY, 100), HVMEM_OK);
    for (i = 0; i < 2; i++) {
        world_set_cpu(i);
        CHECK_EQ(take(shadow, 0, HVMEM_NODE_ANY, 0), HVMEM_E_CLAIM);
        CHECK_EQ(take(shadow, 2, HVMEM_NODE_ANY, 0), HVMEM_E_CLAIM);
        CHECK_EQ(take(shadow, 2, i, HVMEM_REQ_EXACT_NODE), HVMEM_E_CLAIM);
    }
    for (i = 0; i < 100; i++)
        CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_OK);
    CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_E_NOMEM);
    SHADOW_END(shadow);
}

/*
 * Promised frames go bad: what waits in caches stands in for them, and caches take nothing in until
 * the promises hold again.
 */
TEST(bad_frames_are_made_up_from_caches)
{
    struct shadow *shadow = two_nodes(0);
    hvmem_mfn mfn = 0;
    hvmem_mfn bad;
    unsigned i;

    CHECK_EQ(shadow_claim(shadow, 1, HVMEM_NODE_ANY, 90), HVMEM_OK);
    CHECK_EQ(take(shadow, 0, HVMEM_NODE_ANY, 0), HVMEM_OK);
    CHECK(expect_stats(shadow->world, HVMEM_NODE_ANY).cached > 5);
    for (bad = 90; bad < 94; bad++)
        CHECK_EQ(shadow_offline(shadow, bad), HVMEM_OK);
    for (i = 0; i < 5; i++)
        CHECK_EQ(take(shadow, 0, HVMEM_NODE_ANY, 0), HVMEM_OK);
    CHECK_EQ(take(shadow, 0, HVMEM_NODE_ANY, 0), HVMEM_E_CLAIM);
    for (; bad < 99; bad++)
        CHECK_EQ(shadow_offline(shadow, bad), HVMEM_OK);
    for (i = 0; i < 2; i++) {
        world_set_cpu(i);
        while (shadow->frame[mfn].state != SHADOW_USED)
            mfn++;
        CHECK_EQ(shadow_free(shadow, mfn, 0), HVMEM_OK);
        CHECK_EQ(take(shadow, 0, HVMEM_NODE_ANY, 0), HVMEM_E_CLAIM);
        CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_OK);
        shadow_check(shadow);
    }
    while (bad-- > 90)
        CHECK_EQ(shadow_online(shadow, bad), HVMEM_OK);
    CHECK_EQ(take(shadow, 0, HVMEM_NODE_ANY, 0), HVMEM_OK);
    CHECK(expect_stats(shadow->world, HVMEM_NODE_ANY).cached != 0);
    world_set_cpu(0);
    SHADOW_END(shadow);
}

/* Claimed frames on the near node, others on the far one: no E_CLAIM while those can be had. */
TEST(claims_here_do_not_hide_frames_there)
{
    struct shadow *shadow = two_nodes(HVMEM_CONFIG_NO_CPU_CACHE);
    struct hvmem_request request = expect_run(20, 0, 0, 0);
    hvmem_mfn mfn;
    unsigned i;

    for (i = 0; i < 50; i++)
        CHECK_EQ(take(shadow, 2, 1, HVMEM_REQ_EXACT_NODE), HVMEM_OK);
    for (mfn = 50; mfn < 100; mfn++)
        CHECK_EQ(shadow_free(shadow, mfn, 0), HVMEM_OK);
    CHECK_EQ(shadow_claim(shadow, 1, 0, 50), HVMEM_OK);
    CHECK_EQ(take(shadow, 0, 0, HVMEM_REQ_NOFLUSH), HVMEM_E_WOULD_FLUSH);
    /* No block holds a run of 20 on node 1, but several together do. */
    CHECK_EQ(shadow_reserve(shadow, 70, 1), HVMEM_OK);
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
    SHADOW_END(shadow);
}

/* A payment that fails in the middle of a bulk call: the claims are as if it had stopped there. */
TEST(bulk_that_fails_gives_claims_back)
{
    unsigned fail_in;
    unsigned failed = 0;

    for (fail_in = 1; fail_in < 24; fail_in++) {
        struct shadow *shadow = two_nodes(fail_in & 1 ? HVMEM_CONFIG_NO_CPU_CACHE : 0);
        struct hvmem_request request = expect_block(0, shadow->domain[1].handle);
        hvmem_mfn frames[20];
        hvmem_u32 got = 0;

        request.node = 1;
        CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 20, &got), HVMEM_OK);
        CHECK_EQ(shadow_free_bulk(shadow, frames, 20, 0, &got), HVMEM_OK);
        CHECK_EQ(shadow_claim(shadow, 1, 1, 3), HVMEM_OK);
        CHECK_EQ(shadow_claim(shadow, 1, HVMEM_NODE_ANY, 4), HVMEM_OK);
        request.node = HVMEM_NODE_ANY;
        request.node_mask = 2;
        shadow->world->fail_in = fail_in;
        failed += shadow_alloc_bulk(shadow, &request, frames, 20, &got) != HVMEM_OK;
        shadow->world->fail_in = 0;
        CHECK_EQ(expect_domain(shadow->domain[1].handle).claimed, got < 7 ? 7 - got : 0);
        SHADOW_END(shadow);
    }
    CHECK(failed > 10);
}

TEST(limits)
{
    struct shadow *shadow = two_nodes(0);
    struct hvmem_request request;
    hvmem_mfn frames[20];
    hvmem_u32 got = 0;

    CHECK_EQ(shadow_domain_limit(shadow, 1, 10), HVMEM_OK);
    request = expect_block(0, shadow->domain[1].handle);
    CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 20, &got), HVMEM_E_LIMIT);
    CHECK_EQ(got, 10);
    CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_E_LIMIT);
    /* Below what it owns: it keeps that and gets nothing. */
    CHECK_EQ(shadow_domain_limit(shadow, 1, 4), HVMEM_OK);
    CHECK_EQ(shadow_free_bulk(shadow, frames, 6, 0, &got), HVMEM_OK);
    CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_E_LIMIT);
    CHECK_EQ(shadow_free(shadow, frames[6], 0), HVMEM_OK);
    CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_OK);
    CHECK_EQ(shadow_domain_limit(shadow, 1, 0), HVMEM_OK);
    CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_E_LIMIT);
    CHECK_EQ(shadow_domain_limit(shadow, 1, ~0ull), HVMEM_OK);
    CHECK_EQ(take(shadow, 1, HVMEM_NODE_ANY, 0), HVMEM_OK);
    SHADOW_END(shadow);
}

/* Sixteen ids come and go a thousand times; each starts with nothing. */
TEST(domains_come_and_go)
{
    struct shadow *shadow = two_nodes(0);
    struct test_rng rng = test_rng(16);
    unsigned i;

    for (i = 0; i < 1000 && shadow->failure[0] == '\0'; i++) {
        hvmem_u32 id = 1 + (hvmem_u32)test_below(&rng, 8);

        if (shadow->domain[id].handle == NULL) {
            CHECK_EQ(shadow_domain_new(shadow, id, 20, 0), HVMEM_OK);
            CHECK_EQ(expect_domain(shadow->domain[id].handle).pages, 0);
            shadow_claim(shadow, id, HVMEM_NODE_ANY, 5);
            take(shadow, id, HVMEM_NODE_ANY, 0);
        } else {
            hvmem_mfn mfn;

            CHECK_EQ(shadow_domain_kill(shadow, id), HVMEM_OK);
            for (mfn = 0; mfn < 100; mfn++)
                if (shadow->frame[mfn].owner == id)
                    CHECK_EQ(shadow_free_owned(shadow, mfn, 0, id, 0), HVMEM_OK);
            CHECK_EQ(shadow_domain_gone(shadow, id), HVMEM_OK);
        }
        if (i % 16 == 0)
            shadow_check(shadow);
    }
    SHADOW_END(shadow);
}

/* ---- while claims are switched on and off ----------------------------------------------------- */

struct passer {
    struct world *world;
    unsigned met;
};

/* Somebody who has no claim comes by between two arenas: blocks of every order that is free. */
static int pass_by(const char *name, void *context)
{
    struct passer *passer = context;
    hvmem_u32 order;

    if (strcmp(name, "claim_switch") != 0)
        return 0;
    passer->met++;
    for (order = 0; order <= 5; order++) {
        hvmem_mfn mfn = 0;

        CHECK_EQ(hvmem_alloc_order(passer->world->heap, order, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(passer->world->heap, mfn, order), HVMEM_OK);
    }
    return 0;
}

/*
 * Arenas begin and cease to count one by one. In between nobody is told that memory is claimed,
 * whichever arena has all that is free.
 */
TEST(switching_refuses_nobody, points)
{
    hvmem_u32 i;

    for (i = 0; i < 8; i++) {
        hvmem_mfn at = 32 * (i / 2);
        struct hvmem_config config = world_config();
        struct passer passer = {NULL, 0};
        struct hvmem_domain *domain;

        config.flags = i % 2 ? HVMEM_CONFIG_NO_CPU_CACHE : 0;
        config.max_order = config.arena_order = 5;
        config.lock_regime = HVMEM_LOCK_PLAIN;
        config.max_cpus = 2;
        passer.world = WORLD_NEW(&config, WORLD_BROADCAST);
        REQUIRE_EQ(world_bank(passer.world, 0, 128, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(passer.world), HVMEM_OK);
        domain = world_domain(passer.world, 1, ~0ull, 0, NULL);
        CHECK_EQ(hvmem_reserve(passer.world->heap, 0, 128), HVMEM_OK);
        CHECK_EQ(hvmem_free_run(passer.world->heap, at, 32), HVMEM_OK);
        test_set_point_hook(pass_by, &passer);
        CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, 1), HVMEM_OK);
        CHECK_EQ(passer.met, 4);
        CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, 0), HVMEM_OK);
        CHECK_EQ(passer.met, 8);
        test_set_point_hook(NULL, NULL);
        WORLD_END(passer.world);
    }
}

/* ---- set anew while something is drawn on them ------------------------------------------------ */

#define EACH 40u /* frames of each of two nodes */

struct holders {
    struct world *world;
    struct hvmem_domain *tenant, *stranger;
    hvmem_u64 claim[3]; /* of the tenant: on node 0, on node 1, anywhere */
    unsigned set;       /* the claim that is set anew, 3: the domain is killed; and to what */
    hvmem_u64 frames;
    unsigned met;
};

static const hvmem_node on[] = {0, 1, HVMEM_NODE_ANY};

/* Every frame owes a flush, so that who gets one must pay. */
static struct holders holders(hvmem_u32 flags)
{
    struct hvmem_config config = world_config();
    struct holders h = {.claim = {3, 2, 4}};
    struct hvmem_request request;
    hvmem_mfn frames[2 * EACH];
    hvmem_u32 i, done;

    config.flags = flags;
    config.owed_on_free = HVMEM_OWES_TLB;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    h.world = WORLD_NEW(&config, WORLD_BROADCAST);
    for (i = 0; i < 2; i++)
        REQUIRE_EQ(world_bank(h.world, i * EACH, EACH, i, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(h.world), HVMEM_OK);
    h.tenant = world_domain(h.world, 1, ~0ull, 0, NULL);
    h.stranger = world_domain(h.world, 2, ~0ull, 0, NULL);
    request = expect_block(0, h.stranger);
    CHECK_EQ(hvmem_alloc_bulk(h.world->heap, &request, frames, 2 * EACH, &done), HVMEM_OK);
    CHECK_EQ(hvmem_free_bulk(h.world->heap, frames, 2 * EACH, 0, &done), HVMEM_OK);
    for (i = 0; i < 3; i++)
        CHECK_EQ(hvmem_domain_claim(h.tenant, on[i], h.claim[i]), HVMEM_OK);
    return h;
}

static void set_one_anew(struct holders *h)
{
    unsigned i;

    for (i = 0; i < 3; i++)
        h->claim[i] = h->set == 3 ? 0 : i == h->set ? h->frames : h->claim[i];
    CHECK_EQ(h->set == 3 ? hvmem_domain_kill(h->tenant)
                         : hvmem_domain_claim(h->tenant, on[h->set], h->frames),
             HVMEM_OK);
    h->met++;
}

/* The tenant, who has nothing, is promised what was said last, and the rest is anybody's. */
static void holders_end(struct holders *h)
{
    hvmem_u64 sum = h->claim[0] + h->claim[1] + h->claim[2];

    CHECK_EQ(expect_domain(h->tenant).pages, 0);
    CHECK_EQ(expect_domain(h->tenant).claimed, sum);
    CHECK_EQ(expect_stats(h->world, 0).claimed, h->claim[0]);
    CHECK_EQ(expect_stats(h->world, 1).claimed, h->claim[1]);
    CHECK_EQ(expect_stats(h->world, HVMEM_NODE_ANY).claimed, sum);
    CHECK_EQ(hvmem_domain_claim(h->stranger, HVMEM_NODE_ANY, 2 * EACH - sum + 1), HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_domain_claim(h->stranger, HVMEM_NODE_ANY, 2 * EACH - sum), HVMEM_OK);
    WORLD_END(h->world);
}

/* The payment fails, and just before it the claims change. */
static int change_and_fail(const char *name, void *context)
{
    if (strcmp(name, "settle") != 0)
        return 0;
    set_one_anew(context);
    return 1;
}

/* An allocation that fails gives its frames back, but not to a claim that never gave them. */
TEST(claim_set_anew_under_an_allocation, points)
{
    unsigned i;

    for (i = 0; i < 4 * 3 * 3 * 2; i++) {
        struct holders h = holders(i % 2 ? HVMEM_CONFIG_NO_CPU_CACHE : 0);
        struct hvmem_request request =
            i / 2 % 3 ? expect_block(i / 2 % 3 == 1 ? 0 : 2, NULL) : expect_run(5, 0, 0, 0);
        hvmem_mfn mfn;

        request.domain = h.tenant;
        request.node = 0;
        h.set = i / 6 % 4;
        h.frames = i / 24 * 3; /* to nothing, to as much as before, to more */
        test_set_point_hook(change_and_fail, &h);
        CHECK_EQ(hvmem_alloc(h.world->heap, &request, &mfn), HVMEM_E_HOST);
        test_set_point_hook(NULL, NULL);
        CHECK_EQ(h.met, 1);
        holders_end(&h);
    }
}

/* The same between asking for frames of an arena and not finding them there. */
TEST(claim_set_anew_under_a_search)
{
    unsigned i;

    for (i = 0; i < 4 * 3; i++) {
        struct holders h = holders(HVMEM_CONFIG_NO_CPU_CACHE);
        struct hvmem_heap *heap = h.world->heap;
        const struct hvmem__arena *arena = &heap->arena[hvmem__bank_of(heap, 0)->arena];
        struct hvmem__drawn drawn;

        h.set = i % 4;
        h.frames = i / 4 * 3;
        hvmem__claim_take(heap, arena, h.tenant, 6, &drawn);
        CHECK_EQ(drawn.from_node, 3);
        CHECK_EQ(drawn.from_any, 3);
        hvmem__claim_untake(heap, arena, &drawn, 1);
        set_one_anew(&h);
        hvmem__claim_untake(heap, arena, &drawn, 5);
        holders_end(&h);
    }
}

/* Somebody who has no claim says so once more. */
static void *say_none(void *context)
{
    struct holders *h = context;

    world_set_cpu(1);
    CHECK_EQ(hvmem_domain_claim(h->stranger, HVMEM_NODE_ANY, 0), HVMEM_OK);
    return NULL;
}

/*
 * A search has asked for all that is promised, so that nothing is outstanding for a moment; in that moment
 * counting does not end: what it does not find is promised as before.
 */
TEST(claims_do_not_end_under_a_search, threads)
{
    struct holders h = holders(HVMEM_CONFIG_NO_CPU_CACHE);
    struct hvmem_heap *heap = h.world->heap;
    struct hvmem__arena *arena = &heap->arena[hvmem__bank_of(heap, 0)->arena];
    hvmem_mfn frames[2 * EACH + 1];
    struct hvmem__drawn drawn;
    hvmem_u64 state;
    pthread_t other;
    unsigned turns;

    CHECK_EQ(hvmem_domain_claim(h.tenant, 1, 0), HVMEM_OK);
    h.claim[1] = 0;
    /* The lock of the core's build, which need not be that of this file (test/bound). */
    state = hvmem__lock(&heap->host, &arena->lock, HVMEM__RANK_ARENA);
    hvmem__claim_take(heap, arena, h.tenant, 7, &drawn);
    CHECK_EQ(hvmem__claim_outstanding(heap, HVMEM_NODE_ANY), 0);
    REQUIRE_EQ(pthread_create(&other, NULL, say_none, &h), 0);
    for (turns = 0; turns < 20000 && hvmem__load(&heap->claims_active); turns++)
        sched_yield();
    hvmem__claim_untake(heap, arena, &drawn, 7);
    hvmem__unlock(&heap->host, &arena->lock, HVMEM__RANK_ARENA, state);
    pthread_join(other, NULL);
    CHECK_EQ(expect_take_all(h.world, frames, 2 * EACH + 1), 2 * EACH - 7);
    while (turns = (unsigned)expect_stats(h.world, HVMEM_NODE_ANY).allocated, turns)
        CHECK_EQ(hvmem_free(heap, frames[turns - 1], 0), HVMEM_OK);
    holders_end(&h);
}
