/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads at random under the ownership check: all kinds of allocation and free, blocks passed from
 * CPU to CPU, while an administrator takes frames offline, drains, adds and removes banks, claims.
 */
#include "expect.h"
#include "stress.h"

#include <sched.h>
#include <string.h>

#define FRAMES 16384u
#define EXTRA  4096u /* the bank that comes and goes, behind the others */
#define HELD   96u

struct storm {
    uint64_t rounds;
    unsigned workers;
    struct hvmem_domain *domain[STRESS_MAX_THREADS];
    struct stress_queue queue[STRESS_MAX_THREADS]; /* to thread i from its left neighbour */
    uint64_t done;                                 /* workers that ended */
    uint64_t allocated, offlined, removed;
};

struct held {
    hvmem_mfn mfn[HELD];
    hvmem_u64 count[HELD];
    unsigned n;
};

static void give_back(struct stress *stress, struct held *held, unsigned pick, unsigned how)
{
    struct hvmem_heap *heap = stress->world->heap;
    hvmem_mfn mfn = held->mfn[pick];
    hvmem_u64 count = held->count[pick];
    hvmem_status status;

    held->n--;
    held->mfn[pick] = held->mfn[held->n];
    held->count[pick] = held->count[held->n];
    stress_gives(stress, mfn, count);
    if ((count & (count - 1)) != 0 || how == 0) {
        status = hvmem_free_run(heap, mfn, count);
    } else if (how == 1 && count > 1) {
        status = hvmem_free_run(heap, mfn + count / 2, count - count / 2);
        if (status == HVMEM_OK)
            status = hvmem_free_run(heap, mfn, count / 2);
    } else {
        status =
            hvmem_free(heap, mfn, how == 2 ? HVMEM_ORDER_ANY : (hvmem_order)__builtin_ctzll(count));
    }
    if (status != HVMEM_OK)
        stress_fail(stress, "free of %#llx + %llu gave %d", (unsigned long long)mfn,
                    (unsigned long long)count, status);
}

static void take(struct stress *stress, unsigned me, struct storm *storm, struct test_rng *rng,
                 struct held *held)
{
    static const hvmem_u32 orders[] = {0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 9, 9, 1};
    struct hvmem_heap *heap = stress->world->heap;
    struct hvmem_request request = expect_block(orders[test_below(rng, 16)], NULL);
    hvmem_mfn frames[16];
    hvmem_u32 got = 0;
    hvmem_u32 i;

    if (test_below(rng, 2) == 0)
        request.domain = storm->domain[me];
    switch (test_below(rng, 8)) {
    case 0:
        request.order = 0;
        request.count = 1 + test_below(rng, 40);
        request.align = (hvmem_u32)test_below(rng, 4);
        if (hvmem_alloc(heap, &request, frames) == HVMEM_OK) {
            stress_got(stress, me, frames[0], request.count);
            held->mfn[held->n] = frames[0];
            held->count[held->n++] = request.count;
        }
        return;
    case 1:
        request.order = request.order > 3 ? 0 : request.order;
        hvmem_alloc_bulk(heap, &request, frames, 16, &got);
        break;
    case 2:
        request.hi = FRAMES / 2;
        got = hvmem_alloc(heap, &request, frames) == HVMEM_OK;
        break;
    case 3:
        request.domain = NULL;
        got = hvmem_alloc_order(heap, request.order, frames) == HVMEM_OK;
        break;
    default:
        got = hvmem_alloc(heap, &request, frames) == HVMEM_OK;
        break;
    }
    for (i = 0; i < got; i++) {
        stress_got(stress, me, frames[i], 1ull << request.order);
        held->mfn[held->n] = frames[i];
        held->count[held->n++] = 1ull << request.order;
    }
}

static void pass_on(struct stress *stress, unsigned me, struct storm *storm, struct held *held)
{
    unsigned pick = held->n - 1;
    hvmem_mfn mfn = held->mfn[pick];
    hvmem_u64 count = held->count[pick];

    if ((count & (count - 1)) != 0)
        return;
    /* The frames change hands: the mark is cleared here and set again there. */
    stress_gives(stress, mfn, count);
    if (stress_send(&storm->queue[(me + 1) % storm->workers], mfn,
                    (hvmem_u32)__builtin_ctzll(count)))
        held->n--;
    else
        stress_got(stress, me, mfn, count);
}

static void worker(struct stress *stress, unsigned me, struct storm *storm)
{
    struct test_rng rng = test_rng(900 + me);
    struct held held = {{0}, {0}, 0};
    uint64_t round;
    hvmem_u32 order;
    hvmem_mfn mfn;

    for (round = 0; round < storm->rounds && !stress_stopped(stress); round++) {
        while (stress_receive(&storm->queue[me], &mfn, &order)) {
            stress_got(stress, me, mfn, 1ull << order);
            stress_gives(stress, mfn, 1ull << order);
            if (hvmem_free(stress->world->heap, mfn, order) != HVMEM_OK)
                stress_fail(stress, "free of a block from another CPU failed");
        }
        if (held.n < HELD - 16 && test_below(&rng, 100) < 52)
            take(stress, me, storm, &rng, &held);
        else if (held.n > 0 && test_below(&rng, 4) == 0)
            pass_on(stress, me, storm, &held);
        else if (held.n > 0)
            give_back(stress, &held, (unsigned)test_below(&rng, held.n),
                      (unsigned)test_below(&rng, 6));
        __atomic_fetch_add(&storm->allocated, 1, __ATOMIC_RELAXED);
    }
    while (held.n > 0)
        give_back(stress, &held, held.n - 1, 2);
    __atomic_fetch_add(&storm->done, 1, __ATOMIC_RELEASE);
}

/* What statistics say at any moment adds up. */
static void check_sums(struct stress *stress, hvmem_node node)
{
    struct hvmem_stats stats;

    if (hvmem_stats(stress->world->heap, node, sizeof stats, &stats) != HVMEM_OK) {
        stress_fail(stress, "statistics refused");
        return;
    }
    if (stats.free > stats.frames || stats.cached > stats.free ||
        stats.free + stats.allocated + stats.reserved + stats.offline + stats.quarantined !=
            stats.frames)
        stress_fail(stress, "of %llu frames %llu free, %llu cached, %llu allocated, %llu reserved",
                    (unsigned long long)stats.frames, (unsigned long long)stats.free,
                    (unsigned long long)stats.cached, (unsigned long long)stats.allocated,
                    (unsigned long long)stats.reserved);
}

/* Until the workers end: bad frames, drains, the extra bank, claims, statistics. */
static void administrator(struct stress *stress, struct storm *storm)
{
    struct test_rng rng = test_rng(990);
    struct world *world = stress->world;
    hvmem_mfn bad[8];
    unsigned bads = 0;
    bool extra = false;

    while (__atomic_load_n(&storm->done, __ATOMIC_ACQUIRE) < storm->workers) {
        hvmem_mfn mfn = test_below(&rng, FRAMES);
        hvmem_status status;

        switch (test_below(&rng, 7)) {
        case 0:
            if (bads < 8 && hvmem_offline(world->heap, mfn) >= 0)
                bad[bads++] = mfn;
            break;
        case 1:
            if (bads == 0)
                break;
            status = hvmem_online(world->heap, bad[--bads]);
            if (status != HVMEM_OK)
                stress_fail(stress, "online of %#llx gave %d", (unsigned long long)bad[bads],
                            status);
            storm->offlined++;
            break;
        case 2:
            if (!extra) {
                status = world_bank(world, FRAMES, EXTRA, 0, 0);
                if (status != HVMEM_OK)
                    stress_fail(stress, "bank_add gave %d", status);
                extra = true;
            } else if (world_remove(world, FRAMES, EXTRA) == HVMEM_OK) {
                storm->removed++;
                extra = false;
            }
            break;
        case 3:
            hvmem_drain(world->heap);
            break;
        case 4:
            hvmem_domain_claim(storm->domain[0], HVMEM_NODE_ANY, test_below(&rng, 500));
            break;
        case 5:
            check_sums(stress, HVMEM_NODE_ANY);
            check_sums(stress, (hvmem_node)test_below(&rng, 2));
            break;
        default:
            hvmem_lookup(world->heap, mfn, &(struct hvmem_block){0});
            break;
        }
        if (stress_stopped(stress))
            break;
    }
    while (bads > 0)
        if (hvmem_online(world->heap, bad[--bads]) != HVMEM_OK)
            stress_fail(stress, "a frame did not come back online");
}

static void storm_body(struct stress *stress, unsigned me, void *argument)
{
    struct storm *storm = argument;

    if (me < storm->workers)
        worker(stress, me, storm);
    else
        administrator(stress, storm);
}

static void storm_once(uint64_t rounds, hvmem_u32 regime, unsigned host, hvmem_u32 flags)
{
    struct hvmem_config config = world_config();
    struct storm storm;
    struct stress *stress;
    struct world *world;
    hvmem_u32 order;
    hvmem_mfn mfn;
    unsigned i;

    config.lock_regime = regime;
    config.max_cpus = 4;
    config.flags = flags;
    config.owed_on_free = 0;
    world = WORLD_NEW(&config, host | WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 0, FRAMES / 2 + 77, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(world, FRAMES / 2 + 77, FRAMES / 2 - 77, 1, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    memset(&storm, 0, sizeof storm);
    storm.rounds = rounds;
    storm.workers = 3;
    for (i = 0; i < 3; i++)
        storm.domain[i] = world_domain(world, i + 1, ~0ull, 0, NULL);
    stress = stress_new(world, 0, FRAMES + EXTRA);
    stress_run(stress, 4, storm_body, &storm);
    world_set_cpu(0);
    for (i = 0; i < 3; i++)
        while (stress_receive(&storm.queue[i], &mfn, &order))
            CHECK_EQ(hvmem_free(world->heap, mfn, order), HVMEM_OK);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(hvmem_domain_claim(storm.domain[i], HVMEM_NODE_ANY, 0), HVMEM_OK);
        CHECK_EQ(expect_domain(storm.domain[i]).pages, 0);
    }
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).allocated, 0);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).offline, 0);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free, expect_stats(world, HVMEM_NODE_ANY).frames);
    if (!CHECK(stress->failure[0] == '\0'))
        test_note("%s", stress->failure);
    stress_delete(stress);
    WORLD_END(world);
}

TEST(storm, threads)
{
    storm_once(test_rounds(6000), HVMEM_LOCK_PLAIN, WORLD_BARRIER, 0);
    storm_once(test_rounds(6000), HVMEM_LOCK_PLAIN, 0, 0);
    storm_once(test_rounds(3000), HVMEM_LOCK_PLAIN, WORLD_HOST_LOCK, HVMEM_CONFIG_NO_CPU_CACHE);
    storm_once(test_rounds(3000), HVMEM_LOCK_IRQSAVE, WORLD_HOST_LOCK | WORLD_BARRIER, 0);
}

TEST(storm_long, threads, slow)
{
    storm_once(test_rounds(150000), HVMEM_LOCK_PLAIN, WORLD_BARRIER, 0);
    storm_once(test_rounds(150000), HVMEM_LOCK_PLAIN, 0, 0);
}

/* One CPU allocates, the other frees: order 0 and 9, through a queue. */
struct pipe_line {
    struct stress_queue queue;
    uint64_t rounds;
    hvmem_u32 order;
};

static void pipe_body(struct stress *stress, unsigned me, void *argument)
{
    struct pipe_line *line = argument;
    struct hvmem_heap *heap = stress->world->heap;
    uint64_t done = 0;
    hvmem_u32 order;
    hvmem_mfn mfn;

    while (done < line->rounds && !stress_stopped(stress)) {
        if (me == 0) {
            if (hvmem_alloc_order(heap, line->order, &mfn) != HVMEM_OK)
                continue;
            stress_got(stress, 0, mfn, 1ull << line->order);
            while (!stress_send(&line->queue, mfn, line->order) && !stress_stopped(stress))
                sched_yield();
            done++;
        } else if (stress_receive(&line->queue, &mfn, &order)) {
            stress_gives(stress, mfn, 1ull << order);
            if (hvmem_free(heap, mfn, order) != HVMEM_OK)
                stress_fail(stress, "free of %#llx refused", (unsigned long long)mfn);
            done++;
        } else {
            sched_yield();
        }
    }
}

TEST(producer_and_consumer, threads)
{
    static const hvmem_u32 orders[] = {0, 9, 2};
    static const unsigned hosts[] = {0, WORLD_BARRIER};
    unsigned i;

    for (i = 0; i < 6; i++) {
        struct hvmem_config config = world_config();
        struct pipe_line line;
        struct stress *stress;
        struct world *world;

        memset(&line, 0, sizeof line);
        line.rounds = test_rounds(4000);
        line.order = orders[i % 3];
        config.lock_regime = HVMEM_LOCK_PLAIN;
        config.max_cpus = 2;
        world = WORLD_NEW(&config, hosts[i / 3]);
        REQUIRE_EQ(world_bank(world, 0, FRAMES, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        stress = stress_new(world, 0, FRAMES);
        stress_run(stress, 2, pipe_body, &line);
        world_set_cpu(0);
        CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
        CHECK_EQ(stress->failure[0], 0);
        stress_delete(stress);
        WORLD_END(world);
    }
}

/* The check itself can fail: the same frame given to two CPUs. */
TEST(ownership_check_sees_a_double_grant)
{
    struct world *world = WORLD_SIMPLE(0, 16);
    struct stress *stress = stress_new(world, 0, 16);

    stress_got(stress, 0, 3, 2);
    CHECK_EQ(stress->failure[0], 0);
    stress_got(stress, 1, 4, 1);
    CHECK(stress->failure[0] != '\0');
    stress_delete(stress);
    WORLD_END(world);
}
