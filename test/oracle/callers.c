/* SPDX-License-Identifier: BSD-2-Clause */
/* callers.c: calls of every kind on blocks that lie over the borders of banks. */
#include "callers.h"

#include "expect.h"

#include <hvmem/cache.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const hvmem_mfn border[CALLERS_BANKS + 1] = {0, 95, 290, CALLERS_FRAMES};

struct hvmem_bank callers_bank_at(unsigned i)
{
    struct hvmem_bank bank = {
        sizeof bank, i == 1 ? HVMEM_BANK_DIRTY : 0, border[i], border[i + 1] - border[i], 0, 0};

    return bank;
}

void callers_bank(struct world *world, unsigned i)
{
    struct hvmem_bank bank = callers_bank_at(i);
    struct world_table table = {bank.base, bank.frames, 0, bank.flags, NULL, 0, 0};

    REQUIRE_EQ(hvmem_bank_size(world->heap, &bank, &table.bytes), HVMEM_OK);
    table.mapped = (table.bytes + 4095) & ~(hvmem_size)4095;
    table.memory =
        mmap(NULL, table.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(table.memory != MAP_FAILED);
    world_garbage(table.memory, table.bytes);
    REQUIRE_EQ(hvmem_bank_add(world->heap, &bank, table.memory, table.bytes), HVMEM_OK);
    world->tables[world->table_count++] = table;
}

static void make_space(struct callers *c)
{
    struct hvmem_ident_config config = {.size = sizeof config,
                                        .regime = HVMEM_REGIME_USER,
                                        .first = 1,
                                        .ids = 7,
                                        .max_cpus = 2,
                                        .lock_regime = HVMEM_LOCK_PLAIN,
                                        .host = &c->world->host,
                                        .backend = &c->world->backend};
    struct hvmem_space_config space = {.size = sizeof space, .regime = HVMEM_REGIME_USER};
    struct hvmem_ident *ident;
    hvmem_size bytes;

    REQUIRE_EQ(hvmem_ident_size(&config, &bytes), HVMEM_OK);
    c->memory[0] = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_ident_init(c->memory[0], bytes, &config, &ident), HVMEM_OK);
    bytes = hvmem_space_size(ident);
    c->memory[1] = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_space_create(ident, c->memory[1], bytes, &space, &c->space), HVMEM_OK);
}

static void make_domain(struct callers *c, unsigned i)
{
    c->domain[i] = world_domain(c->world, i + 1, ~0ull, 0, NULL);
    REQUIRE(c->domain[i] != NULL);
    if (i) {
        REQUIRE_EQ(hvmem_domain_start(c->domain[i]), HVMEM_OK);
        return;
    }
    test_tables_init(c->tables);
    c->gfn = 0;
    REQUIRE_EQ(hvmem_domain_attach(c->domain[0], &c->tables->ops, c->tables, NULL), HVMEM_OK);
}

struct callers callers_new(uint64_t stream)
{
    struct hvmem_config config = world_config();
    struct callers c = {0};
    unsigned i;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_order = 8;
    config.max_cpus = 2;
    config.flags = stream & 1 ? HVMEM_CONFIG_NO_CPU_CACHE : 0;
    if (stream & 2) /* what a domain owes as a whole would forbid a quiesce */
        config.owed_on_free = HVMEM_OWES_TLB | HVMEM_OWES_SCRUB;
    c.world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_BARRIER |
                                     (stream & CALLERS_TWO ? WORLD_HOST_LOCK : 0));
    c.heap = c.world->heap;
    c.rng = test_rng(stream);
    c.bad = EXPECT_NO_MFN;
    world_track(c.world, 0, CALLERS_FRAMES);
    for (i = 0; i < CALLERS_BANKS; i++)
        callers_bank(c.world, i);
    world_owe(c.world, border[1], border[2] - border[1], HVMEM_OWES_SCRUB);
    REQUIRE_EQ(world_smp(c.world), HVMEM_OK);
    c.tables = calloc(1, sizeof *c.tables);
    REQUIRE(c.tables != NULL);
    for (i = 0; i < 2; i++)
        make_domain(&c, i);
    make_space(&c);
    return c;
}

static void hold(struct callers *c, hvmem_mfn mfn, hvmem_u64 frames, struct hvmem_domain *domain)
{
    c->held[c->count++] = (struct callers_held){mfn, frames, domain};
}

static void drop(struct callers *c, unsigned at)
{
    c->held[at] = c->held[--c->count];
}

static void allocate(struct callers *c)
{
    static const hvmem_order orders[] = {0, 1, 3, 5, 6, 7, 8};
    struct hvmem_domain *who = test_below(&c->rng, 3) ? c->domain[test_below(&c->rng, 2)] : NULL;
    struct hvmem_request request;
    hvmem_mfn mfn;

    if (c->count == CALLERS_HELD)
        return;
    if (test_below(&c->rng, 2))
        request = expect_block(orders[test_below(&c->rng, 7)], who);
    else
        request = expect_run(1 + test_below(&c->rng, 200), 0, 0, 0);
    request.domain = who;
    if (test_below(&c->rng, 2))
        request.lo = test_below(&c->rng, CALLERS_FRAMES);
    if (hvmem_alloc(c->heap, &request, &mfn) == HVMEM_OK)
        hold(c, mfn, request.count ? request.count : (hvmem_u64)1 << request.order, who);
}

static void allocate_some(struct callers *c)
{
    struct hvmem_domain *who = test_below(&c->rng, 2) ? c->domain[test_below(&c->rng, 2)] : NULL;
    struct hvmem_request request = expect_block((hvmem_order)test_below(&c->rng, 3), who);
    hvmem_mfn mfn[5];
    hvmem_u32 got = 0, i;

    if (c->count + 5 > CALLERS_HELD)
        return;
    if (test_below(&c->rng, 2))
        got = hvmem_alloc_order(c->heap, request.order, mfn) == HVMEM_OK;
    else
        hvmem_alloc_bulk(c->heap, &request, mfn, 5, &got);
    for (i = 0; i < got; i++)
        hold(c, mfn[i], (hvmem_u64)1 << request.order,
             expect_lookup(c->world, mfn[i]).owner ? who : NULL);
}

static void populate(struct callers *c)
{
    struct hvmem_extent extents[4] = {{0}};
    struct hvmem_populate request = {.size = sizeof request, .extents = extents, .count = 4};
    struct hvmem_cursor cursor = {{0}};
    hvmem_gfn gfn = c->gfn;
    hvmem_u64 done = 0, i;

    if (c->world->config.owed_on_free & HVMEM_OWES_ICACHE || c->count + 4 > CALLERS_HELD ||
        c->gfn + 4 * 8 > TABLES_GFNS)
        return;
    for (i = 0; i < 4; i++) {
        extents[i].gfn = gfn + 8 * i;
        extents[i].order = (hvmem_order)test_below(&c->rng, 4);
        extents[i].flags = test_below(&c->rng, 4) ? 0 : HVMEM_EXTENT_FIRST_TOUCH;
    }
    c->gfn += 4 * 8;
    request.node = HVMEM_NODE_ANY;
    request.done = &done;
    while (hvmem_domain_populate(c->domain[0], &request, &cursor) == HVMEM_AGAIN)
        continue;
    for (i = 0; i < done; i++)
        hold(c, c->tables->map[extents[i].gfn] & ~TABLES_UNTOUCHED,
             (hvmem_u64)1 << extents[i].order, c->domain[0]);
}

/* Its owner, which may have used it, gives it up. */
static void leave_owing(struct callers *c, const struct callers_held *h, hvmem_mfn mfn,
                        hvmem_u64 frames, hvmem_u32 owed)
{
    memset(c->left + mfn, 1, frames);
    if (h->domain)
        world_owe(c->world, mfn, frames, c->world->config.owed_on_free & owed);
}

static void leave(struct callers *c, const struct callers_held *h, hvmem_mfn mfn, hvmem_u64 frames)
{
    leave_owing(c, h, mfn, frames, HVMEM_OWES_ANY);
}

/* One of what is held, no more noted: another CPU may come in between, and take away others. */
static int take_held(struct callers *c, struct callers_held *h)
{
    unsigned at;

    if (!c->count)
        return 0;
    at = (unsigned)test_below(&c->rng, c->count);
    *h = c->held[at];
    drop(c, at);
    return 1;
}

/* Whether a holding is one block, and of which order. */
static int is_block(struct callers *c, const struct callers_held *h, struct hvmem_block *block)
{
    *block = expect_lookup(c->world, h->mfn);
    return block->state != HVMEM_BLOCK_RESERVED && block->mfn == h->mfn &&
           (hvmem_u64)1 << block->order == h->frames;
}

/* The block of a holding, if it is one; by its number, one way or another. */
static int release_block(struct callers *c, const struct callers_held *h)
{
    struct hvmem_block block;
    hvmem_u32 done;

    if (!is_block(c, h, &block))
        return 0;
    leave(c, h, h->mfn, h->frames);
    switch (test_below(&c->rng, 3)) {
    case 0:
        CHECK_EQ(hvmem_free(c->heap, h->mfn, block.order), HVMEM_OK);
        return 1;
    case 1:
        CHECK_EQ(hvmem_free_bulk(c->heap, &h->mfn, 1, block.order, &done), HVMEM_OK);
        return 1;
    default:
        CHECK_EQ(hvmem_free_owned(c->heap, h->mfn, block.order, h->domain, 0), HVMEM_OK);
        return 1;
    }
}

static void release(struct callers *c)
{
    struct callers_held h;
    hvmem_mfn from;
    hvmem_u64 cut;

    if (!take_held(c, &h))
        return;
    cut = test_below(&c->rng, 2) ? h.frames : 1 + test_below(&c->rng, h.frames);
    if (cut == h.frames && test_below(&c->rng, 3) && release_block(c, &h))
        return;
    from = h.mfn;
    if (cut != h.frames && test_below(&c->rng, 2))
        from += h.frames - cut; /* its end */
    if (from == h.mfn && cut != h.frames)
        hold(c, h.mfn + cut, h.frames - cut, h.domain);
    else if (cut != h.frames)
        hold(c, h.mfn, h.frames - cut, h.domain);
    leave(c, &h, from, cut);
    CHECK_EQ(hvmem_free_run(c->heap, from, cut), HVMEM_OK);
}

static void reserve(struct callers *c)
{
    hvmem_mfn mfn = test_below(&c->rng, CALLERS_FRAMES - 1);
    hvmem_u64 count =
        1 + test_below(&c->rng, CALLERS_FRAMES - mfn < 150 ? CALLERS_FRAMES - mfn : 150);

    if (c->count < CALLERS_HELD && hvmem_reserve(c->heap, mfn, count) == HVMEM_OK)
        hold(c, mfn, count, NULL);
}

static void offline(struct callers *c)
{
    hvmem_mfn bad = c->bad;

    if (c->marking)
        return;
    c->marking = 1;
    if (bad == EXPECT_NO_MFN) {
        bad = test_below(&c->rng, CALLERS_FRAMES);
        c->bad = hvmem_offline(c->heap, bad) < 0 ? EXPECT_NO_MFN : bad;
    } else {
        CHECK_EQ(hvmem_online(c->heap, bad), HVMEM_OK);
        c->bad = EXPECT_NO_MFN;
    }
    c->marking = 0;
}

/* Of a block: scrub on free in one or several steps, a settle, or a mark as mapped elsewhere. */
static void work(struct callers *c)
{
    unsigned kind = (unsigned)test_below(&c->rng, 3);
    struct hvmem_cursor cursor = {{0}};
    struct hvmem_block block;
    struct callers_held h;

    if (!take_held(c, &h))
        return;
    if (is_block(c, &h, &block) && kind == 0) {
        leave(c, &h, h.mfn, h.frames);
        if (hvmem_free_scrubbed(c->heap, h.mfn, block.order, h.domain, 0, 16, &cursor) == HVMEM_OK)
            return;
    } else if (kind == 1 && block.state != HVMEM_BLOCK_RESERVED) {
        CHECK_EQ(hvmem_settle(c->heap, h.mfn, h.frames, HVMEM_OWES_ANY), HVMEM_OK);
    } else if (h.domain && is_block(c, &h, &block)) {
        CHECK_EQ(hvmem_domain_foreign(h.domain, h.mfn, block.order), HVMEM_OK);
    }
    c->held[c->count++] = h;
}

static void scrub(struct callers *c)
{
    CHECK(hvmem_scrub_step(c->heap, HVMEM_NODE_ANY, 40, &c->scrub) >= 0);
}

/* Some blocks through a gather; if it has to flush, that may fail. */
static void gather(struct callers *c)
{
    struct hvmem_mapping_config config = {
        .size = sizeof config, .heap = c->heap, .space = c->space};
    struct hvmem_mapping mapping = {0};
    struct hvmem_gather g = {0};
    struct callers_held h;
    struct hvmem_block block;
    unsigned i, n = 1 + (unsigned)test_below(&c->rng, 3), flushes = !test_below(&c->rng, 3);

    REQUIRE_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_OK);
    REQUIRE_EQ(hvmem_gather_begin(&g, &mapping, 0, 0, 0x1000), HVMEM_OK);
    for (i = 0; i < n && take_held(c, &h); i++) {
        if (!is_block(c, &h, &block)) {
            c->held[c->count++] = h;
            continue;
        }
        /* Nothing was mapped that this gather does not hear of. */
        leave_owing(c, &h, h.mfn, h.frames,
                    block.owed & HVMEM_OWES_FOREIGN ? ~HVMEM_OWES_ICACHE
                                                    : ~(HVMEM_OWES_ICACHE | HVMEM_OWES_TLB));
        CHECK_EQ(hvmem_gather_free(&g, h.mfn, block.order, h.domain, 0), HVMEM_OK);
    }
    if (flushes)
        CHECK_EQ(hvmem_gather_entry(&g, 0, 12, 3, 0), HVMEM_OK);
    c->world->fail_in = flushes && test_below(&c->rng, 2);
    (void)hvmem_gather_finish(&g);
    c->world->fail_in = 0;
    CHECK_EQ(hvmem_mapping_fini(&mapping), HVMEM_OK);
}

/* The end of a domain, and another one with its number. */
static void replace_domain(struct callers *c)
{
    unsigned i = (unsigned)test_below(&c->rng, 2), k;
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;

    c->alone = 1;
    for (k = 0; k < c->count; k++)
        if (c->held[k].domain == c->domain[i])
            leave(c, &c->held[k], c->held[k].mfn, c->held[k].frames);
    do
        status = hvmem_domain_teardown(c->domain[i], 0, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    for (k = c->count; k-- > 0;)
        if (c->held[k].domain == c->domain[i])
            drop(c, k);
    CHECK_EQ(world_domain_gone(c->world, c->domain[i]), HVMEM_OK);
    make_domain(c, i);
    c->alone = 0;
}

static void start(struct callers *c)
{
    c->alone = 1;
    if (expect_domain(c->domain[0]).state == HVMEM_DOMAIN_BUILDING)
        CHECK_EQ(hvmem_domain_start(c->domain[0]), HVMEM_OK);
    c->alone = 0;
}

/* The other CPU goes and comes back. */
static void cycle_cpu(struct callers *c)
{
    void (*between)(struct world *) = c->world->between;

    c->world->between = NULL;
    world_set_cpu(0);
    CHECK_EQ(hvmem_cpu_offline(c->heap, 1), HVMEM_OK);
    world_forget_cpu(c->world, 1);
    CHECK_EQ(hvmem_cpu_online(c->heap, 1), HVMEM_OK);
    c->world->between = between;
}

void callers_release_all(struct callers *c)
{
    while (c->count) {
        const struct callers_held *h = &c->held[c->count - 1];

        leave(c, h, h->mfn, h->frames);
        CHECK_EQ(hvmem_free_run(c->heap, h->mfn, h->frames), HVMEM_OK);
        c->count--;
    }
}

/* A bank that somebody has frames of cannot go. */
static void keep_bank(struct callers *c)
{
    struct callers_held h;
    unsigned i = 0;

    if (!take_held(c, &h))
        return;
    while (border[i + 1] <= h.mfn)
        i++;
    CHECK_EQ(hvmem_bank_remove(c->heap, border[i], border[i + 1] - border[i]), HVMEM_E_BUSY);
    c->held[c->count++] = h;
}

/* Calls that may come while another one is under way, the first ones whatever that is. */
static void call_beside(struct callers *c, unsigned which)
{
    switch (which) {
    case 0:
        (void)hvmem_quiesce(c->heap);
        break;
    case 1:
        scrub(c);
        break;
    case 2:
    case 3:
        allocate_some(c);
        break;
    case 4:
    case 5:
        allocate(c);
        break;
    case 6:
        reserve(c);
        break;
    case 7:
        offline(c);
        break;
    case 8:
        work(c);
        break;
    case 9:
        gather(c);
        break;
    case 10:
        keep_bank(c);
        break;
    default:
        release(c);
    }
}

static struct callers *under_way;

/* A CPU is in a call, and has no lock: the other one makes a whole one. */
static void other_calls(struct world *world)
{
    struct callers *c = under_way;
    hvmem_cpu cpu = world_cpu();
    unsigned fail_in = world->fail_in;

    if (test_below(&c->rng, 8))
        return;
    world->between = NULL;
    world->fail_in = 0;
    world_set_cpu(1 - cpu);
    call_beside(c, (unsigned)test_below(&c->rng, c->alone ? 2 : 14));
    world_set_cpu(cpu);
    world->fail_in = fail_in;
    world->between = other_calls;
}

void callers_call_two(struct callers *c)
{
    under_way = c;
    c->world->between = other_calls;
    callers_call(c);
    c->world->between = NULL;
}

void callers_call(struct callers *c)
{
    unsigned which = (unsigned)test_below(&c->rng, 18);

    world_set_cpu((hvmem_cpu)test_below(&c->rng, 2));
    switch (which) {
    case 14:
        populate(c);
        break;
    case 15:
        replace_domain(c);
        break;
    case 16:
        start(c);
        break;
    case 17:
        cycle_cpu(c);
        break;
    default:
        call_beside(c, which ? which : 1);
    }
    world_set_cpu(0);
}

void callers_end(struct callers *c)
{
    CHECK(world_delete(c->world));
    free(c->memory[0]);
    free(c->memory[1]);
    free(c->tables);
}
