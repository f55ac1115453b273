/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The audit sees damage wherever a table, or what is counted beside it, means something: every bit of the
 * header, of the sets and their summaries, of free records and of the dirt below them is flipped once.
 */
#include "expect.h"
#include "lib/domain.h"
#include "lib/sets.h"

#include <string.h>

#define BASE   37u
#define FRAMES 40000u

struct patient {
    struct world *world;
    struct hvmem__bank *bank;
    struct hvmem_domain *domain;
    hvmem_mfn live[600];
    unsigned count;
    unsigned planted;
};

static struct hvmem_domain *owner_of(struct patient *p, struct test_rng *rng)
{
    return test_below(rng, 2) ? p->domain : NULL;
}

/* A bank of which a part never held any data, much of it in use, in blocks that owe or not. */
static void admit(struct patient *p)
{
    struct hvmem_config config = world_config();
    struct test_rng rng = test_rng(11);
    unsigned i;

    memset(p, 0, sizeof *p);
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    p->world = WORLD_NEW(&config, WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(p->world, BASE, FRAMES, 0, 0), HVMEM_OK);
    p->domain = world_domain(p->world, 3, ~0ull, 0, NULL);
    REQUIRE(p->domain != NULL);
    for (i = 0; i < 3000; i++) {
        struct hvmem_request request =
            expect_block((hvmem_order)test_below(&rng, 7), owner_of(p, &rng));
        unsigned at = p->count ? (unsigned)test_below(&rng, p->count) : 0;

        request.flags = request.domain ? HVMEM_REQ_DEFER_ALL : 0;
        if (p->count < 600 && test_below(&rng, 5) < 3) {
            if (hvmem_alloc(p->world->heap, &request, &p->live[p->count]) == HVMEM_OK)
                p->count++;
        } else if (p->count) {
            REQUIRE_EQ(hvmem_free(p->world->heap, p->live[at], HVMEM_ORDER_ANY), HVMEM_OK);
            p->live[at] = p->live[--p->count];
        }
    }
    p->bank = hvmem__bank_of(p->world->heap, BASE);
    CHECK_AUDIT(p->world);
}

static void discharge(struct patient *p)
{
    CHECK(p->planted > 0);
    WORLD_END(p->world);
}

static int is_seen(struct patient *p)
{
    const char *where = NULL;
    hvmem_mfn mfn;

    p->planted++;
    return hvmem_audit(p->world->heap, &mfn, &where) == HVMEM_E_CORRUPT;
}

/* Flip the bits of `mask` in a word, one after the other. */
static int each_bit_is_seen(struct patient *p, const char *what, hvmem_u64 *word, hvmem_u64 mask)
{
    for (; mask; mask &= mask - 1) {
        hvmem_u64 bit = mask & (0 - mask);
        int seen;

        *word ^= bit;
        seen = is_seen(p);
        *word ^= bit;
        if (!CHECK(seen)) {
            test_note("%s, byte %zu of the table, bit %#llx", what,
                      (size_t)((unsigned char *)word - (unsigned char *)p->bank->table),
                      (unsigned long long)bit);
            return 0;
        }
    }
    return 1;
}

/* The words of a header that mean something as long as it is not marked clean. */
TEST(every_bit_of_a_header_is_seen)
{
    struct hvmem__table *table;
    struct patient p;
    unsigned k;

    admit(&p);
    table = p.bank->table;
    each_bit_is_seen(&p, "magic", &table->magic, ~0ull);
    each_bit_is_seen(&p, "base", &table->base, ~0ull);
    each_bit_is_seen(&p, "frames", &table->frames, ~0ull);
    each_bit_is_seen(&p, "node, page shift", (hvmem_u64 *)(void *)&table->node, ~0ull);
    each_bit_is_seen(&p, "max order, mark", (hvmem_u64 *)(void *)&table->max_order, ~0ull);
    each_bit_is_seen(&p, "checksum", &table->checksum, ~0ull);
    for (k = 0; k <= HVMEM_ORDER_LIMIT; k++)
        each_bit_is_seen(&p, "front", &table->front[k], ~0ull);
    discharge(&p);
}

/* What quiesce wrote is what another heap will believe. */
TEST(every_bit_of_a_clean_header_is_seen)
{
    struct hvmem__table *table;
    struct patient p;
    hvmem_u64 *word;

    admit(&p);
    table = p.bank->table;
    REQUIRE_EQ(hvmem_domain_start(p.domain), HVMEM_OK);
    REQUIRE_EQ(hvmem_quiesce(p.world->heap), HVMEM_OK);
    CHECK_AUDIT(p.world);
    for (word = &table->clock; word <= &table->counts_checksum; word++)
        if (!each_bit_is_seen(&p, "clean header", word, ~0ull))
            break;
    discharge(&p);
}

/* All levels that are in use; of level 0 the words that count. */
static void check_set(struct patient *p, const char *what, struct hvmem__bits *set)
{
    hvmem_u64 words = hvmem__bits_low_words(set->count), i;
    hvmem_u32 k;

    for (i = 0; i < words; i++)
        if ((set->level[1][i >> 6] >> (i & 63) & 1) &&
            !each_bit_is_seen(p, what, &set->level[0][i], ~0ull))
            return;
    for (k = 1; k < set->levels; k++) {
        words = (words + 63) / 64;
        for (i = 0; i < words; i++)
            if (!each_bit_is_seen(p, what, &set->level[k][i], ~0ull))
                return;
    }
}

TEST(every_bit_of_the_sets_and_their_summaries_is_seen)
{
    struct patient p;
    hvmem_u32 k;

    admit(&p);
    for (k = 0; k <= p.world->config.max_order; k++)
        check_set(&p, "free set", &p.bank->free[k]);
    check_set(&p, "heads", &p.bank->head);
    discharge(&p);
}

/* Members that no walk comes to: before the bank's first frame, and behind its last. */
TEST(members_outside_the_bank_are_seen)
{
    struct patient p;
    hvmem_u32 k;

    admit(&p);
    for (k = 1; k <= p.world->config.max_order; k++) {
        struct hvmem__bits *set = &p.bank->free[k];
        hvmem_u64 numbers[2] = {0, set->count - 1};
        unsigned i;

        for (i = 0; i < 2; i++) {
            if (hvmem__bits_test(set, numbers[i]))
                continue;
            hvmem__bits_set(set, numbers[i]);
            if (!CHECK(is_seen(&p)))
                test_note("order %u, number %llu", k, (unsigned long long)numbers[i]);
            hvmem__bits_clear(set, numbers[i]);
        }
    }
    discharge(&p);
}

/* Of a free block what it owes and its stamp can be anything; of one in use its order and owner are told. */
TEST(every_bit_of_a_record_is_seen)
{
    const hvmem_u64 of_free = 0xffff0000ffff00ffull, of_used = 0x1full;
    struct patient p;
    hvmem_mfn mfn;

    admit(&p);
    for (mfn = BASE; mfn < BASE + FRAMES;) {
        struct hvmem_block block = expect_lookup(p.world, mfn);
        hvmem_u64 *record = hvmem__record_at(p.bank, mfn),
                  mask = block.state == HVMEM_BLOCK_FREE ? of_free : of_used;

        if (hvmem__rec_dirt(*record) == HVMEM__DIRT_DIRTY)
            mask &=
                ~(1ull << 63 | 1ull << 48); /* may be mixed as well, as far as the record says */
        if (!each_bit_is_seen(&p, "record", record, mask))
            break;
        mfn += 1ull << block.order;
    }
    discharge(&p);
}

/* Damage in the dirt of a part of a part of a mixed block: two halves that are alike. */
TEST(dirt_is_seen_at_any_depth)
{
    struct hvmem_request request = expect_run(1, 0, 0xa5, 0xa6);
    struct hvmem_config config = world_config();
    struct patient p;
    hvmem_mfn mfn = 0;
    hvmem_u32 order;

    memset(&p, 0, sizeof p);
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    config.max_order = 8;
    p.world = WORLD_NEW(&config, WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(p.world, 0, 256, 0, 0), HVMEM_OK);
    p.domain = world_domain(p.world, 3, ~0ull, 0, NULL);
    p.bank = hvmem__bank_of(p.world->heap, 0);
    /* One dirty frame in a clean block: a node of each order is mixed. */
    request.domain = p.domain;
    REQUIRE_EQ(hvmem_alloc(p.world->heap, &request, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_free(p.world->heap, mfn, 0), HVMEM_OK);
    REQUIRE_EQ(expect_lookup(p.world, 0).order, 8);
    CHECK_AUDIT(p.world);
    for (order = 0; order < 8; order++) {
        hvmem_mfn right = (mfn >> order | 1) << order;

        each_bit_is_seen(&p, "dirt", hvmem__record_at(p.bank, right), 0xc000ull);
    }
    discharge(&p);
}

/* What is counted beside the tables. */
TEST(every_count_beside_the_tables_is_seen)
{
    struct patient p;
    struct hvmem_request request;
    struct hvmem_heap *heap;
    struct hvmem_domain *d;
    hvmem_u64 newest;
    hvmem_mfn mfn;

    admit(&p);
    heap = p.world->heap;
    d = p.domain;
    request = expect_block(0, d);
    request.flags = HVMEM_REQ_DEFER_ALL;
    REQUIRE_EQ(hvmem_alloc(heap, &request, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_owned(heap, mfn, 0, d, HVMEM_OWES_TLB), HVMEM_OK); /* one block owes */
    REQUIRE_EQ(hvmem_domain_claim(d, HVMEM_NODE_ANY, 100), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_claim(d, 0, 50), HVMEM_OK);
    CHECK_AUDIT(p.world);
    each_bit_is_seen(&p, "pages", &d->pages, ~0ull);
    each_bit_is_seen(&p, "deferred", &d->deferred, ~0ull);
    each_bit_is_seen(&p, "flush", &d->flush, ~0ull);
    each_bit_is_seen(&p, "untouched", &d->untouched, ~0ull);
    each_bit_is_seen(&p, "claim", &d->claim[HVMEM__CLAIM_ANY], ~0ull);
    each_bit_is_seen(&p, "claim of a node", &d->claim[0], ~0ull);
    each_bit_is_seen(&p, "claimed", &heap->claimed, ~0ull);
    each_bit_is_seen(&p, "claimed on a node", &heap->node[0].claimed, ~0ull);
    each_bit_is_seen(&p, "spare", &heap->spare, ~0ull);
    each_bit_is_seen(&p, "spare on a node", &heap->node[0].spare, ~0ull);
    each_bit_is_seen(&p, "free frames", &p.bank->free_frames, ~0ull);
    hvmem__arena_of(heap, p.bank)->owing = 0;
    CHECK(is_seen(&p));
    hvmem__arena_of(heap, p.bank)->owing = 1;
    newest = d->newest; /* may be later than that of all it has still */
    d->newest = 0;
    CHECK(is_seen(&p) || !d->flush);
    d->newest = newest;
    discharge(&p);
}
