/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random calls on three CPUs, each interrupted by others where it holds no lock, those by a third; with
 * operations of the host that fail, barriers that do not come back, banks, CPUs and domains that come and go.
 * A map of who holds each frame: no frame has two owners, none is handed over with debts, nothing is lost.
 */
#include "expect.h"

#include <hvmem/cache.h>
#include <hvmem/fast.h>

#include <string.h>

#define BANKS   4u
#define SPAN    48u /* frames of a bank: not a power of two */
#define STEP    512u
#define FRAMES  (BANKS * STEP)
#define CPUS    3u
#define PIECES  128u
#define CURSORS 6u
#define DEEPEST 2u

/* A block or run that somebody holds. */
struct piece {
    hvmem_mfn mfn;
    hvmem_u64 frames;
    hvmem_order order; /* HVMEM_ORDER_ANY: a run */
    unsigned owner;    /* 0: the host */
    int reserved;
    int foreign; /* mapped outside its owner's spaces */
};

struct replay {
    hvmem_mfn mfn;
    hvmem_order order;
    unsigned owner;
    struct hvmem_cursor cursor;
};

struct play {
    struct world *world;
    struct test_rng rng;
    hvmem_u32 owed; /* what a domain's frames owe when they are freed */
    struct hvmem_domain *domain[3];
    unsigned users[3]; /* calls under way that use the handle */
    unsigned building[3], starting;
    unsigned char holder[FRAMES]; /* 0: nobody, else owner + 1 */
    unsigned char
        debt[FRAMES];       /* what frames owed that are being freed, and out of whose reach they */
    uint64_t stale[FRAMES]; /* were, for those that are not freed after all */
    struct piece piece[PIECES];
    unsigned pieces;
    struct replay replay[CURSORS];
    hvmem_node bank_node[BANKS]; /* of each, ~0: not there */
    unsigned renewing;
    unsigned moving; /* a bank is being added or removed */
    unsigned depth;
    hvmem_cpu cpus[DEEPEST + 1]; /* that are inside a call */
    unsigned off;                /* CPU that has left, or 0 */
    unsigned barriers_fail;
    struct hvmem_cpu_cache *handle[CPUS];
};

static struct play *now;

static struct hvmem_heap *heap_of(const struct play *p)
{
    return p->world->heap;
}

static unsigned below(struct play *p, unsigned bound)
{
    return (unsigned)test_below(&p->rng, bound);
}

/* ---- who holds what ---------------------------------------------------------------------------- */

static void hold(struct play *p, hvmem_mfn mfn, hvmem_u64 frames, hvmem_order order, unsigned owner,
                 int reserved)
{
    struct piece piece = {mfn, frames, order, owner, reserved, 0};
    hvmem_u64 i;

    REQUIRE(mfn + frames <= FRAMES);
    for (i = 0; i < frames; i++) {
        CHECK_EQ(p->holder[mfn + i], 0);
        p->holder[mfn + i] = (unsigned char)(owner + 1);
    }
    REQUIRE(p->pieces < PIECES);
    p->piece[p->pieces++] = piece;
}

/* It was not freed after all, or not all of it. */
static void hold_on(struct play *p, const struct piece *of, hvmem_mfn mfn, hvmem_u64 frames,
                    hvmem_order order)
{
    hvmem_u64 i;

    hold(p, mfn, frames, order, of->owner, of->reserved);
    p->piece[p->pieces - 1].foreign = of->foreign;
    for (i = mfn; i < mfn + frames; i++) {
        p->world->debt[i] &= p->debt[i];
        p->world->stale[i] &= p->stale[i];
    }
}

/* Handed over: it owes nothing. */
static void get(struct play *p, hvmem_mfn mfn, hvmem_u64 frames, hvmem_order order, unsigned owner,
                int deferred)
{
    hold(p, mfn, frames, order, owner, 0);
    if (!deferred)
        CHECK_EQ(world_owed(p->world, mfn, frames), 0);
}

/* What its owner leaves on it. */
static void owe(struct play *p, const struct piece *piece, hvmem_u32 owed)
{
    if (piece->owner != 0)
        world_owe(p->world, piece->mfn, piece->frames,
                  owed | (piece->foreign ? HVMEM_OWES_TLB : 0u));
}

/* One piece at random leaves the map: it is about to be freed. 0: none of that kind. */
static int leave(struct play *p, struct piece *piece,
                 int (*fits)(struct play *, const struct piece *))
{
    unsigned start = below(p, PIECES), i;

    for (i = 0; i < p->pieces; i++) {
        struct piece *at = &p->piece[(start + i) % p->pieces];

        if (!fits(p, at))
            continue;
        *piece = *at;
        *at = p->piece[--p->pieces];
        memset(&p->holder[piece->mfn], 0, piece->frames);
        memcpy(&p->debt[piece->mfn], &p->world->debt[piece->mfn], piece->frames);
        memcpy(&p->stale[piece->mfn], &p->world->stale[piece->mfn],
               piece->frames * sizeof *p->stale);
        owe(p, piece, p->owed);
        return 1;
    }
    return 0;
}

static int may_go(struct play *p, const struct piece *piece)
{
    return !(piece->owner != 0 && p->starting == piece->owner);
}

static int is_block(struct play *p, const struct piece *piece)
{
    return may_go(p, piece) && piece->order != HVMEM_ORDER_ANY;
}

static int is_single(struct play *p, const struct piece *piece)
{
    return may_go(p, piece) && piece->order == 0;
}

static int room(const struct play *p)
{
    return p->pieces + 40 < PIECES;
}

/* ---- getting ----------------------------------------------------------------------------------- */

static void sound(hvmem_status status)
{
    CHECK(status != HVMEM_E_CORRUPT);
}

static unsigned some_owner(struct play *p)
{
    unsigned owner = below(p, 4);

    return owner > 2 || (owner != 0 && p->domain[owner] == NULL) ? 0 : owner;
}

static void alloc_request(struct play *p)
{
    unsigned owner = some_owner(p);
    struct hvmem_request what = expect_block(below(p, 5), p->domain[owner]);
    hvmem_mfn mfn = 0;
    hvmem_status status;
    hvmem_node node = 0;

    if (below(p, 3) == 0) {
        what.count = 1 + below(p, 16);
        what.align = below(p, 3);
        what.order = 0;
    }
    if (below(p, 4) == 0) {
        what.lo = below(p, FRAMES);
        what.hi = what.lo + 1 + below(p, FRAMES);
    }
    if (below(p, 4) == 0) {
        what.node = below(p, 2);
        what.flags |= below(p, 2) ? HVMEM_REQ_EXACT_NODE : 0;
    }
    if (what.order == 0 && !what.count && below(p, 4) == 0) {
        what.colour_mask = 3;
        what.colour = below(p, 4);
    }
    if (below(p, 4) == 0)
        what.flags |= HVMEM_REQ_NOFLUSH;
    if (below(p, 4) == 0)
        what.flags |= HVMEM_REQ_NO_CACHE;
    if (owner != 0 && p->building[owner] && below(p, 2))
        what.flags |= HVMEM_REQ_DEFER_ALL & (0x100u << below(p, 5) | 0x100u << below(p, 5));
    p->users[owner]++;
    status = hvmem_alloc(heap_of(p), &what, &mfn);
    p->users[owner]--;
    sound(status);
    if (status != HVMEM_OK)
        return;
    get(p, mfn, what.count ? what.count : 1ull << what.order,
        what.count ? HVMEM_ORDER_ANY : what.order, owner, (what.flags & HVMEM_REQ_DEFER_ALL) != 0);
    CHECK(mfn >= what.lo && (!what.hi || mfn < what.hi));
    if (what.flags & HVMEM_REQ_EXACT_NODE) {
        CHECK_EQ(hvmem_node_of(heap_of(p), mfn, &node), HVMEM_OK);
        CHECK_EQ(node, what.node);
    }
}

static void alloc_short(struct play *p)
{
    unsigned n = 1 + below(p, 6), i;

    for (i = 0; i < n; i++) {
        hvmem_order order = below(p, 2) ? 0 : below(p, 5);
        hvmem_mfn mfn = 0;
        hvmem_status status = order == 0 && below(p, 2)
                                  ? hvmem_alloc_page(heap_of(p), p->handle[world_cpu()], &mfn)
                                  : hvmem_alloc_order(heap_of(p), order, &mfn);

        sound(status);
        if (status == HVMEM_OK)
            get(p, mfn, 1ull << order, order, 0, 0);
    }
}

static void alloc_owned(struct play *p)
{
    unsigned owner = 1 + below(p, 2), n = 1 + below(p, 6), i;

    for (i = 0; i < n && p->domain[owner] != NULL; i++) {
        hvmem_mfn mfn = 0;
        hvmem_status status;

        p->users[owner]++;
        status = below(p, 2) ? hvmem_alloc_page_owned(heap_of(p), p->handle[world_cpu()],
                                                      p->domain[owner], &mfn)
                             : hvmem_alloc_owned(heap_of(p), p->domain[owner], 0, &mfn);
        p->users[owner]--;
        sound(status);
        if (status == HVMEM_OK)
            get(p, mfn, 1, 0, owner, 0);
    }
}

static void alloc_bulk(struct play *p)
{
    unsigned owner = some_owner(p);
    struct hvmem_request what = expect_block(below(p, 3), p->domain[owner]);
    hvmem_mfn frames[20];
    hvmem_u32 got = 0, i;

    if (below(p, 3) == 0)
        what.flags = HVMEM_REQ_NOFLUSH;
    p->users[owner]++;
    sound(hvmem_alloc_bulk(heap_of(p), &what, frames, 1 + below(p, 20), &got));
    p->users[owner]--;
    for (i = 0; i < got; i++)
        get(p, frames[i], 1ull << what.order, what.order, owner, 0);
}

static void reserve(struct play *p)
{
    hvmem_mfn mfn = below(p, BANKS) * STEP + below(p, SPAN);
    hvmem_u64 count = 1 + below(p, 20);
    hvmem_status status = hvmem_reserve(heap_of(p), mfn, count);

    sound(status);
    if (status == HVMEM_OK)
        hold(p, mfn, count, HVMEM_ORDER_ANY, 0, 1);
}

/* ---- giving back -------------------------------------------------------------------------------- */

/* A refusal for want of a barrier changes nothing. */
static void freed(struct play *p, const struct piece *piece, hvmem_status status)
{
    if (status == HVMEM_E_HOST && p->barriers_fail) {
        hold_on(p, piece, piece->mfn, piece->frames, piece->order);
        return;
    }
    if (!CHECK_EQ(status, HVMEM_OK))
        test_note("free of %#llx, %llu frames, order %u, owner %u", (unsigned long long)piece->mfn,
                  (unsigned long long)piece->frames, piece->order, piece->owner);
}

static void free_block(struct play *p)
{
    struct piece piece;
    unsigned n = 1 + below(p, 4);
    hvmem_status status;

    while (n-- && leave(p, &piece, is_block)) {
        hvmem_order order = below(p, 3) ? piece.order : HVMEM_ORDER_ANY;

        p->users[piece.owner]++;
        if (piece.order == 0 && piece.owner == 0 && below(p, 2))
            status = hvmem_free_page(heap_of(p), p->handle[world_cpu()], piece.mfn);
        else if (piece.order == 0 && piece.owner != 0 && below(p, 2))
            status = hvmem_free_page_owned(heap_of(p), p->handle[world_cpu()], piece.mfn,
                                           p->domain[piece.owner]);
        else if (below(p, 2))
            status =
                hvmem_free_owned(heap_of(p), piece.mfn, order, p->domain[piece.owner],
                                 piece.owner != 0 && below(p, 4) == 0 ? HVMEM_OWES_FOREIGN : 0);
        else
            status = hvmem_free(heap_of(p), piece.mfn, order);
        p->users[piece.owner]--;
        freed(p, &piece, status);
    }
}

static void free_list(struct play *p)
{
    struct piece piece[8];
    hvmem_mfn frames[8];
    hvmem_u32 n = 0, done = 0, i;
    hvmem_status status;

    while (n < 8 && leave(p, &piece[n], is_single)) {
        p->users[piece[n].owner]++;
        frames[n] = piece[n].mfn;
        n++;
    }
    status = hvmem_free_bulk(heap_of(p), frames, n, below(p, 2) ? 0 : HVMEM_ORDER_ANY, &done);
    for (i = 0; i < n; i++) {
        p->users[piece[i].owner]--;
        freed(p, &piece[i], i < done ? HVMEM_OK : status);
    }
}

/* A piece or a part of it, beside whoever frees the rest. */
static void free_run(struct play *p)
{
    struct piece piece;
    hvmem_u64 from, to, at;
    hvmem_status status;

    if (!leave(p, &piece, may_go))
        return;
    p->users[piece.owner]++;
    from = below(p, (unsigned)piece.frames);
    to = from + 1 + below(p, (unsigned)(piece.frames - from));
    if (from > 0)
        hold_on(p, &piece, piece.mfn, from, HVMEM_ORDER_ANY);
    if (to < piece.frames)
        hold_on(p, &piece, piece.mfn + to, piece.frames - to, HVMEM_ORDER_ANY);
    status = hvmem_free_run(heap_of(p), piece.mfn + from, to - from);
    if (!(status == HVMEM_E_HOST && p->barriers_fail))
        CHECK_EQ(status, HVMEM_OK);
    /* How far it came is not told: see what is left. */
    for (at = from; status != HVMEM_OK && at < to; at++) {
        struct hvmem_block block;

        if (hvmem_lookup(heap_of(p), piece.mfn + at, &block) == HVMEM_OK &&
            (block.state == HVMEM_BLOCK_ALLOCATED || block.state == HVMEM_BLOCK_OFFLINING ||
             block.state == HVMEM_BLOCK_RESERVED) &&
            block.owner == piece.owner && p->holder[piece.mfn + at] == 0)
            hold_on(p, &piece, piece.mfn + at, 1, HVMEM_ORDER_ANY);
    }
    p->users[piece.owner]--;
}

static void free_scrubbed(struct play *p)
{
    struct piece piece;
    struct replay *replay = &p->replay[below(p, CURSORS)];
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned steps = below(p, 3);

    if (!leave(p, &piece, is_block))
        return;
    p->users[piece.owner]++;
    do {
        status = hvmem_free_scrubbed(heap_of(p), piece.mfn, piece.order, p->domain[piece.owner], 0,
                                     1 + below(p, 4), &cursor);
        replay->mfn = piece.mfn;
        replay->order = piece.order;
        replay->owner = piece.owner;
        replay->cursor = cursor;
    } while (status == HVMEM_AGAIN && steps--);
    p->users[piece.owner]--;
    sound(status);
    if (status != HVMEM_OK) /* still its owner's, who frees it another way */
        hold_on(p, &piece, piece.mfn, piece.frames, piece.order);
}

/* A cursor of long ago, for a frame that anybody may have by now. */
static void replays(struct play *p)
{
    struct replay *replay = &p->replay[below(p, CURSORS)];
    struct hvmem_cursor cursor = replay->cursor;
    hvmem_status status;
    unsigned i;

    if (!cursor.words[0] || (replay->owner != 0 && p->domain[replay->owner] == NULL))
        return;
    /* Where it is still the same block it is a legal call: take it out of the map. */
    for (i = 0; i < p->pieces; i++)
        if (p->piece[i].mfn == replay->mfn && p->piece[i].order == replay->order &&
            p->piece[i].owner == replay->owner)
            return;
    p->users[replay->owner]++;
    status = hvmem_free_scrubbed(heap_of(p), replay->mfn, replay->order, p->domain[replay->owner],
                                 0, 0, &cursor);
    p->users[replay->owner]--;
    sound(status);
    CHECK(status < 0);
}

/* ---- the rest ----------------------------------------------------------------------------------- */

static void offline(struct play *p)
{
    sound(hvmem_offline(heap_of(p), below(p, BANKS) * STEP + below(p, SPAN)));
}

static void online(struct play *p)
{
    hvmem_mfn mfn;

    for (mfn = below(p, STEP); mfn < FRAMES; mfn += 1 + below(p, 40))
        sound(hvmem_online(heap_of(p), mfn));
}

static void drain(struct play *p)
{
    sound(hvmem_drain(heap_of(p)));
}

static void quiesce(struct play *p)
{
    sound(hvmem_quiesce(heap_of(p)));
}

static void scrub(struct play *p)
{
    struct hvmem_cursor cursor = {{0}};
    unsigned steps = below(p, 20);

    while (hvmem_scrub_step(heap_of(p), HVMEM_NODE_ANY, 1 + below(p, 20), &cursor) == HVMEM_AGAIN &&
           steps--)
        continue;
}

static void look(struct play *p)
{
    struct hvmem_stats stats;
    struct hvmem_block block;
    hvmem_u64 cursor = 0;
    hvmem_status status;

    CHECK_EQ(hvmem_stats(heap_of(p), HVMEM_NODE_ANY, sizeof stats, &stats), HVMEM_OK);
    CHECK_EQ(stats.free + stats.allocated + stats.reserved + stats.offline + stats.quarantined,
             stats.frames);
    (void)hvmem_free_frames(heap_of(p));
    while ((status = hvmem_walk(heap_of(p), &cursor, &block)) == HVMEM_AGAIN)
        continue;
    CHECK_EQ(status, HVMEM_OK);
}

static void settle(struct play *p)
{
    unsigned i = below(p, PIECES);
    struct piece piece;

    if (i >= p->pieces || p->piece[i].order == HVMEM_ORDER_ANY)
        return;
    /* Its owner does nothing else with it meanwhile. */
    piece = p->piece[i];
    if (p->starting == piece.owner && piece.owner != 0)
        return;
    p->piece[i] = p->piece[--p->pieces];
    p->users[piece.owner]++;
    if (hvmem_settle(heap_of(p), piece.mfn, piece.frames, HVMEM_OWES_ANY) == HVMEM_OK)
        CHECK_EQ(world_owed(p->world, piece.mfn, piece.frames), 0);
    p->users[piece.owner]--;
    REQUIRE(p->pieces < PIECES);
    p->piece[p->pieces++] = piece;
}

static void foreign(struct play *p)
{
    unsigned i = below(p, PIECES);
    struct piece piece;

    if (i >= p->pieces || p->piece[i].owner == 0 || !is_block(p, &p->piece[i]))
        return;
    piece = p->piece[i];
    p->piece[i] = p->piece[--p->pieces];
    p->users[piece.owner]++;
    if (hvmem_domain_foreign(p->domain[piece.owner], piece.mfn, piece.order) == HVMEM_OK)
        piece.foreign = 1;
    p->users[piece.owner]--;
    REQUIRE(p->pieces < PIECES);
    p->piece[p->pieces++] = piece;
}

static void claim(struct play *p)
{
    unsigned owner = 1 + below(p, 2);

    if (p->domain[owner] == NULL)
        return;
    p->users[owner]++;
    sound(hvmem_domain_claim(p->domain[owner], below(p, 2) ? HVMEM_NODE_ANY : below(p, 2),
                             below(p, 3) ? 0 : below(p, 60)));
    p->users[owner]--;
}

static void limit(struct play *p)
{
    unsigned owner = 1 + below(p, 2);

    if (p->domain[owner] != NULL)
        CHECK_EQ(hvmem_domain_limit(p->domain[owner], below(p, 3) ? ~0ull : below(p, 100)),
                 HVMEM_OK);
}

static void start(struct play *p)
{
    unsigned owner = 1 + below(p, 2), i;
    hvmem_status status;

    if (p->domain[owner] == NULL || !p->building[owner] || p->starting || p->users[owner])
        return;
    p->users[owner]++;
    p->starting = owner;
    status = hvmem_domain_start(p->domain[owner]);
    sound(status);
    if (status == HVMEM_OK) {
        p->building[owner] = 0;
        for (i = 0; i < p->pieces; i++)
            if (p->piece[i].owner == owner)
                CHECK_EQ(world_owed(p->world, p->piece[i].mfn, p->piece[i].frames), 0);
    }
    p->starting = 0;
    p->users[owner]--;
}

/* A domain ends, and another with its id comes. */
static void renew_one(struct play *p, unsigned owner)
{
    unsigned gone = below(p, 2) ? HVMEM_TEARDOWN_IDS_GONE : 0, i;
    struct hvmem_cursor cursor = {{0}};
    struct hvmem_domain *old = p->domain[owner];
    hvmem_status status;

    if (p->users[owner] != 0)
        return;
    if (old == NULL) {
        p->users[owner]++;
        p->domain[owner] = world_domain(p->world, owner, ~0ull, 0, &status);
        sound(status);
        p->building[owner] = 1;
        p->users[owner]--;
        return;
    }
    for (i = 0; i < p->pieces; i++) {
        if (p->piece[i].owner != owner)
            continue;
        memset(&p->holder[p->piece[i].mfn], 0, p->piece[i].frames);
        owe(p, &p->piece[i], gone ? p->owed & ~HVMEM_OWES_TLB : p->owed);
        p->piece[i--] = p->piece[--p->pieces];
    }
    p->users[owner]++;
    p->domain[owner] = NULL;
    do
        status = hvmem_domain_teardown(old, gone, &cursor);
    while (status == HVMEM_AGAIN || (status != HVMEM_OK && (memset(&cursor, 0, sizeof cursor), 1) &&
                                     p->barriers_fail && (p->barriers_fail = 0, 1)));
    if (status == HVMEM_OK)
        status = world_domain_gone(p->world, old);
    if (status !=
        HVMEM_OK) /* credit of a CPU that cannot be reached, a host operation that failed */
        p->domain[owner] = old;
    p->users[owner]--;
}

static void renew(struct play *p)
{
    if (p->renewing) /* the world keeps its domains in a list */
        return;
    p->renewing = 1;
    renew_one(p, 1 + below(p, 2));
    p->renewing = 0;
}

static void banks(struct play *p)
{
    unsigned i = below(p, BANKS);
    hvmem_mfn base = i * STEP;
    hvmem_status status;

    if (p->moving)
        return;
    p->moving = 1;
    if (p->bank_node[i] == HVMEM_NODE_ANY) {
        hvmem_node node = below(p, 2);

        status = world_bank(p->world, base, SPAN, node, HVMEM_BANK_DIRTY);
        sound(status);
        if (status == HVMEM_OK)
            p->bank_node[i] = node;
    } else {
        status = world_remove(p->world, base, SPAN);
        sound(status);
        if (status == HVMEM_OK) {
            CHECK_EQ(world_owed(p->world, base, SPAN) & HVMEM_OWES_TLB, 0);
            world_forgive(p->world, base, SPAN);
            p->bank_node[i] = HVMEM_NODE_ANY;
        }
    }
    p->moving = 0;
}

/* CPU 1 leaves or comes, if it is in no call. */
static void cpus(struct play *p)
{
    unsigned i;

    for (i = 0; i <= p->depth; i++)
        if (p->cpus[i] == 1)
            return;
    if (p->off == 1) {
        world_forget_cpu(p->world, 1);
        if (hvmem_cpu_online(heap_of(p), 1) == HVMEM_OK) {
            p->world->online |= 2;
            p->off = 0;
        }
    } else if (p->off == 0) {
        p->off = 2; /* on its way */
        p->world->online &= ~2ull;
        world_forget_cpu(p->world, 1);
        CHECK_EQ(hvmem_cpu_offline(heap_of(p), 1), HVMEM_OK);
        p->off = 1;
    }
}

typedef void act(struct play *p);
static act *const acts[] = {
    alloc_request, alloc_request, alloc_request, alloc_short, alloc_short, alloc_owned, alloc_owned,
    alloc_bulk,    reserve,       free_block,    free_block,  free_block,  free_block,  free_list,
    free_run,      free_run,      free_scrubbed, replays,     offline,     online,      drain,
    quiesce,       scrub,         look,          settle,      claim,       limit,       start,
    renew,         banks,         banks,         cpus,        foreign,     foreign,
};
#define ACTS      (sizeof acts / sizeof *acts)
#define ACTS_GETS 9u /* of these the first get memory */

static hvmem_cpu free_cpu(struct play *p)
{
    hvmem_cpu cpu = below(p, CPUS);
    unsigned tries, i;

    for (tries = 0; tries < CPUS; tries++, cpu = (cpu + 1) % CPUS) {
        int used = cpu == 1 && p->off != 0;

        for (i = 0; i < p->depth; i++)
            used |= p->cpus[i] == cpu;
        if (!used)
            return cpu;
    }
    return CPUS;
}

static void do_something(struct play *p)
{
    hvmem_cpu cpu = free_cpu(p), before = world_cpu();
    unsigned which = below(p, ACTS);

    if (cpu == CPUS || (which < ACTS_GETS && !room(p)))
        return;
    p->cpus[p->depth] = cpu;
    world_set_cpu(cpu);
    acts[which](p);
    world_set_cpu(before);
}

static void interrupts(struct world *world)
{
    struct play *p = now;

    if (p->depth >= DEEPEST || below(p, 7) != 0)
        return;
    (void)world;
    p->depth++;
    do_something(p);
    p->depth--;
}

static hvmem_status barrier_may_fail(struct world *world, hvmem_cpu cpu)
{
    (void)world;
    (void)cpu;
    return now->barriers_fail && below(now, 4) == 0 ? HVMEM_E_HOST : HVMEM_OK;
}

static const hvmem_u8 node_of_cpu[CPUS] = {0, 0, 1};

static void begin(struct play *p, uint64_t stream)
{
    static const hvmem_u32 owed[] = {HVMEM_OWES_TLB, HVMEM_OWES_TLB | HVMEM_OWES_SCRUB,
                                     HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN, 0};
    struct hvmem_config config = world_config();
    unsigned i;

    memset(p, 0, sizeof *p);
    p->rng = test_rng(stream);
    p->owed = owed[below(p, 4)];
    config.max_order = 4;
    config.arena_order = 4 + below(p, 4);
    config.max_cpus = CPUS;
    config.max_banks = below(p, 2) ? 16 : 3 * BANKS;
    config.cpu_node = node_of_cpu;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.owed_on_free = p->owed;
    config.flags = below(p, 4) == 0 ? HVMEM_CONFIG_NO_CPU_CACHE : 0;
    config.low_frames = below(p, 2) ? 20 : 0;
    p->world = WORLD_NEW(&config, WORLD_HOST_LOCK | (below(p, 4) ? WORLD_BARRIER : 0) |
                                      (below(p, 4) ? 0 : WORLD_BROADCAST));
    world_set_cpu(0);
    world_track(p->world, 0, FRAMES);
    for (i = 0; i < BANKS; i++) {
        p->bank_node[i] = i == 3 ? HVMEM_NODE_ANY : i / 2;
        if (i != 3)
            REQUIRE_EQ(world_bank(p->world, i * STEP, SPAN, i / 2, 0), HVMEM_OK);
    }
    REQUIRE_EQ(world_smp(p->world), HVMEM_OK);
    for (i = 0; i < CPUS; i++)
        p->handle[i] = hvmem_cpu_handle(heap_of(p), i);
    for (i = 1; i < 3; i++) {
        p->domain[i] = world_domain(p->world, i, ~0ull, 0, NULL);
        p->building[i] = 1;
    }
    now = p;
    p->world->barrier = barrier_may_fail;
    p->world->between = interrupts;
}

static void give_all_back(struct play *p)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;

    CHECK_EQ(hvmem_drain(heap_of(p)), HVMEM_OK);
    while (hvmem_walk(heap_of(p), &cursor, &block) == HVMEM_AGAIN)
        if (block.state == HVMEM_BLOCK_OFFLINE)
            CHECK_EQ(hvmem_online(heap_of(p), block.mfn), HVMEM_OK);
        else if (block.state != HVMEM_BLOCK_FREE)
            CHECK_EQ(hvmem_free_run(heap_of(p), block.mfn, 1ull << block.order), HVMEM_OK);
}

static void end(struct play *p)
{
    struct hvmem_stats stats;
    unsigned i;

    p->world->between = NULL;
    p->world->fail_in = 0;
    p->barriers_fail = 0;
    for (i = 0; i < CPUS; i++) { /* each calls once, whatever it was not reached for */
        hvmem_mfn mfn;

        if (i == 1 && p->off != 0)
            continue;
        world_set_cpu(i);
        if (hvmem_alloc_order(heap_of(p), 0, &mfn) == HVMEM_OK)
            CHECK_EQ(hvmem_free(heap_of(p), mfn, 0), HVMEM_OK);
        CHECK_EQ(hvmem_drain(heap_of(p)), HVMEM_OK);
    }
    world_set_cpu(0);
    /* All that is in use is somebody's, and of whom the map says. */
    for (i = 0; i < p->pieces; i++) {
        const struct piece *piece = &p->piece[i];
        hvmem_u64 at;

        for (at = 0; at < piece->frames; at++) {
            struct hvmem_block block = expect_lookup(p->world, piece->mfn + at);

            CHECK_EQ(block.owner, piece->owner);
            CHECK(block.state == HVMEM_BLOCK_ALLOCATED || block.state == HVMEM_BLOCK_OFFLINING ||
                  (block.state == HVMEM_BLOCK_RESERVED && piece->reserved));
        }
    }
    stats = expect_stats(p->world, HVMEM_NODE_ANY);
    for (i = 0; i < p->pieces; i++)
        stats.free += p->piece[i].frames;
    CHECK_EQ(stats.free + stats.offline, stats.frames);
    for (i = 1; i < 3; i++)
        if (p->domain[i] != NULL)
            CHECK_TORN_DOWN(p->world, p->domain[i]);
    give_all_back(p);
    give_all_back(p);
    CHECK_EQ(hvmem_drain(heap_of(p)), HVMEM_OK);
    stats = expect_stats(p->world, HVMEM_NODE_ANY);
    CHECK_EQ(stats.free, stats.frames);
    CHECK_EQ(stats.claimed, 0);
    WORLD_END(p->world);
}

TEST(random_calls_interrupted_by_others)
{
    uint64_t rounds = test_rounds(400), stream;
    struct play p;
    unsigned step;

    for (stream = 0; stream < rounds; stream++) {
        begin(&p, stream);
        for (step = 0; step < 150; step++) {
            if (below(&p, 12) == 0)
                p.world->fail_in = 1 + below(&p, 6);
            p.barriers_fail = stream % 4 == 3 && below(&p, 3) == 0;
            p.depth = 0;
            do_something(&p);
            p.world->fail_in = 0;
            if (p.world->failure[0] != '\0')
                break;
        }
        end(&p);
    }
}
