/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap that dies at any store to its tables: each instruction that writes to one is let through alone, and
 * what the tables are after it is adopted. Another heap finds every frame in one block, hands each free one
 * out once, with all that it owes paid, and none that its owner had before the call and after it. (Single steps:
 * x86-64.)
 */
#define _GNU_SOURCE /* REG_EFL */
#include "callers.h"
#include "expect.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)

#    define MOST 1024u /* stores of one call that are looked at */
#    define TRAP 0x100ll

static struct callers callers;

static unsigned moving = CALLERS_BANKS; /* the bank that goes and comes, if one does */

/* What there is after each store: the tables, and what frames owe. */
struct recording {
    unsigned stores;
    unsigned char *table[MOST][CALLERS_BANKS];
    unsigned char debt[MOST][CALLERS_FRAMES];
    uint64_t stale[MOST][CALLERS_FRAMES];
};
static struct recording first, second;

/* Whose tables are watched, and where they are. */
static struct recording *recording;
static struct world *watched;
static struct {
    unsigned char *memory;
    size_t bytes, mapped;
} place[CALLERS_BANKS];
static unsigned char *copies[CALLERS_BANKS]; /* of the tables, to be adopted under watch */

static void protect(int rights)
{
    unsigned i;

    for (i = 0; i < CALLERS_BANKS; i++)
        mprotect(place[i].memory, place[i].mapped, rights);
}

/* A store to a table: this one instruction. */
static void written(int number, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    unsigned i;

    for (i = 0; i < CALLERS_BANKS; i++) {
        if ((size_t)((unsigned char *)info->si_addr - place[i].memory) >= place[i].mapped)
            continue;
        protect(PROT_READ | PROT_WRITE);
        uc->uc_mcontext.gregs[REG_EFL] |= TRAP;
        return;
    }
    signal(number, SIG_DFL);
}

static void record(void)
{
    unsigned i, k = recording->stores++;

    if (k >= MOST)
        return;
    for (i = 0; i < CALLERS_BANKS; i++)
        memcpy(recording->table[k][i], place[i].memory, place[i].bytes);
    memcpy(recording->debt[k], watched->debt, sizeof recording->debt[k]);
    memcpy(recording->stale[k], watched->stale, sizeof recording->stale[k]);
}

/* It is done. */
static void stepped(int number, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    (void)number;
    (void)info;

    uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP;
    record();
    protect(PROT_READ);
}

/* Tables are watched that are at `copies`, or else where the callers have them. */
static void watch_begin(struct recording *to, struct world *world)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    unsigned i;

    for (i = 0; i < CALLERS_BANKS; i++) {
        const struct world_table *t = &callers.world->tables[i];

        place[i].memory = world == callers.world ? t->memory : copies[i];
        place[i].bytes = t->bytes;
        place[i].mapped = t->mapped;
    }
    recording = to;
    watched = world;
    to->stores = 0;
    action.sa_sigaction = written;
    sigaction(SIGSEGV, &action, NULL);
    action.sa_sigaction = stepped;
    sigaction(SIGTRAP, &action, NULL);
    protect(PROT_READ);
}

static void watch_end(void)
{
    protect(PROT_READ | PROT_WRITE);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);
}

static void watch(void (*call)(struct callers *))
{
    watch_begin(&first, callers.world);
    call(&callers);
    watch_end();
}

/* What is held: 1 a frame. */
static void mark_held(unsigned char *frame)
{
    unsigned i;

    for (i = 0; i < callers.count; i++)
        memset(frame + callers.held[i].mfn, 1, callers.held[i].frames);
}

/* Another heap, which knows what frames owe after a store. */
static struct world *successor(const struct recording *from, unsigned k)
{
    struct world *fresh = WORLD_NEW(&callers.world->config, WORLD_BROADCAST);
    unsigned i;

    world_track(fresh, 0, CALLERS_FRAMES);
    memcpy(fresh->debt, from->debt[k], sizeof from->debt[k]);
    memcpy(fresh->stale, from->stale[k], sizeof from->stale[k]);
    for (i = 0; i < 2; i++)
        world_domain(fresh, i + 1, ~0ull, 0, NULL);
    return fresh;
}

/* It takes over what was left. A table that was just laid out is no table yet: its bank comes anew. */
static void adopt(struct world *fresh, unsigned char *const *tables)
{
    hvmem_status status;
    hvmem_u64 cursor = 0;
    unsigned i, missing = 0;

    for (i = 0; i < CALLERS_BANKS; i++) {
        struct hvmem_bank bank = callers_bank_at(i);

        status = hvmem_bank_adopt(fresh->heap, &bank, tables[i], callers.world->tables[i].bytes);
        if (status == HVMEM_E_GEOMETRY && i == moving)
            missing |= 1u << i;
        else
            REQUIRE_EQ(status, HVMEM_OK);
    }
    do
        status = hvmem_adopt_finish(fresh->heap, &cursor);
    while (status == HVMEM_AGAIN);
    REQUIRE_EQ(status, HVMEM_OK);
    for (i = 0; i < CALLERS_BANKS; i++) {
        struct hvmem_bank bank = callers_bank_at(i);

        bank.flags = HVMEM_BANK_DIRTY;
        if (missing >> i & 1)
            REQUIRE_EQ(
                hvmem_bank_add(fresh->heap, &bank, tables[i], callers.world->tables[i].bytes),
                HVMEM_OK);
    }
}

/* What was in no block, or in a gather, comes back unless somebody has it. */
static void release_quarantine(struct world *fresh, const unsigned char *others)
{
    hvmem_mfn mfn = 0;

    while (mfn < CALLERS_FRAMES) {
        struct hvmem_block block = expect_lookup(fresh, mfn);
        hvmem_u64 frames = (hvmem_u64)1 << block.order;

        mfn = block.mfn + frames;
        if (block.state == HVMEM_BLOCK_QUARANTINE && !memchr(others + block.mfn, 1, frames))
            CHECK_EQ(hvmem_quarantine_release(fresh->heap, block.mfn), HVMEM_OK);
    }
}

static hvmem_u64 use_all(struct world *fresh, const unsigned char *others)
{
    unsigned char seen[CALLERS_FRAMES] = {0};
    hvmem_mfn mfn[CALLERS_FRAMES + 1];
    hvmem_u64 n, i;

    CHECK_AUDIT(fresh);
    release_quarantine(fresh, others);
    CHECK_AUDIT(fresh);
    n = expect_stats(fresh, HVMEM_NODE_ANY).free;
    CHECK_EQ(expect_take_all(fresh, mfn, CALLERS_FRAMES + 1), n);
    for (i = 0; i < n; i++)
        if (!CHECK(mfn[i] < CALLERS_FRAMES && !seen[mfn[i]]++ && !others[mfn[i]]) ||
            !CHECK_EQ(world_owed(fresh, mfn[i], 1), 0))
            test_note("frame %llu", (unsigned long long)mfn[i]);
    CHECK_AUDIT(fresh);
    return n;
}

/* The heap that takes over after a store dies in turn, after some of its own. */
static void adopt_twice(unsigned k, const unsigned char *others)
{
    struct world *dying = successor(&first, k), *fresh;
    unsigned i, at, step = 1 + (unsigned)test_below(&callers.rng, 8);

    for (i = 0; i < CALLERS_BANKS; i++)
        memcpy(copies[i], first.table[k][i], callers.world->tables[i].bytes);
    watch_begin(&second, dying);
    adopt(dying, copies);
    watch_end();
    for (at = step - 1; at < second.stores && at < MOST; at += step) {
        fresh = successor(&second, at);
        adopt(fresh, second.table[at]);
        (void)use_all(fresh, others);
        CHECK(world_delete(fresh));
    }
    CHECK(world_delete(dying));
}

/* What has an owner before a call and after it, and all the time: 1 a frame. */
static void watch_owners(void (*call)(struct callers *), unsigned char *others)
{
    unsigned char before[CALLERS_FRAMES] = {0};
    unsigned k;

    memset(others, 0, CALLERS_FRAMES);
    memset(callers.left, 0, sizeof callers.left);
    mark_held(before);
    watch(call);
    mark_held(others);
    for (k = 0; k < CALLERS_FRAMES; k++)
        others[k] &= before[k] && !callers.left[k];
}

/* Each of the stores of a call is the last one of a heap. */
static void adopt_each(void (*call)(struct callers *))
{
    unsigned char others[CALLERS_FRAMES];
    hvmem_u64 got;
    unsigned k;

    watch_owners(call, others);
    for (k = 0; k < first.stores && k < MOST; k++) {
        struct world *fresh = successor(&first, k);

        adopt(fresh, first.table[k]);
        got = use_all(fresh, others);
        if (moving < CALLERS_BANKS) /* nobody had a frame */
            CHECK_EQ(got, CALLERS_FRAMES);
        CHECK(world_delete(fresh));
    }
}

static void *copy_of(size_t bytes)
{
    void *copy = aligned_alloc(64, (bytes + 63) & ~63ull);

    REQUIRE(copy != NULL);
    return copy;
}

static void begin(uint64_t stream)
{
    unsigned i, k;

    callers = callers_new(stream);
    for (i = 0; i < CALLERS_BANKS; i++) {
        copies[i] = mmap(NULL, callers.world->tables[i].mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(copies[i] != MAP_FAILED);
    }
    for (k = 0; k < MOST; k++)
        for (i = 0; i < CALLERS_BANKS; i++) {
            first.table[k][i] = copy_of(callers.world->tables[i].bytes);
            second.table[k][i] = copy_of(callers.world->tables[i].bytes);
        }
}

static void end(void)
{
    unsigned i, k;

    for (k = 0; k < MOST; k++)
        for (i = 0; i < CALLERS_BANKS; i++) {
            free(first.table[k][i]);
            free(second.table[k][i]);
        }
    for (i = 0; i < CALLERS_BANKS; i++)
        munmap(copies[i], callers.world->tables[i].mapped);
    callers_end(&callers);
}

static void adopt_all(void)
{
    uint64_t stream, rounds = test_rounds(15);
    unsigned i, all = 0;

    for (stream = 0; stream < rounds; stream++) {
        begin(stream);
        for (i = 0; i < 40; i++) {
            if (i & 1)
                (void)hvmem_quiesce(callers.heap);
            adopt_each(callers_call);
            CHECK(first.stores <= MOST);
            all += first.stores;
        }
        end();
    }
    CHECK(all > rounds * 100);
}

/* One store of each call. */
static void adopt_again(void)
{
    unsigned char others[CALLERS_FRAMES];
    uint64_t stream, rounds = test_rounds(6), all = 0;
    unsigned i;

    for (stream = 0; stream < rounds; stream++) {
        begin(stream);
        for (i = 0; i < 40; i++) {
            if (i & 1)
                (void)hvmem_quiesce(callers.heap);
            watch_owners(callers_call, others);
            if (!first.stores)
                continue;
            adopt_twice((unsigned)test_below(&callers.rng, first.stores), others);
            all += second.stores;
        }
        end();
    }
    CHECK(all > rounds * 100);
}

/* Two CPUs are in calls. */
static void adopt_two(void)
{
    uint64_t stream, rounds = test_rounds(6);
    unsigned i;

    for (stream = 0; stream < rounds; stream++) {
        begin(CALLERS_TWO | stream);
        for (i = 0; i < 40; i++) {
            if (i & 1)
                (void)hvmem_quiesce(callers.heap);
            adopt_each(callers_call_two);
        }
        end();
    }
}

static void quiesce(struct callers *c)
{
    (void)hvmem_quiesce(c->heap);
}

/* Between two holds, in which a block is split. */
static int quiesce_again(const char *name, void *context)
{
    if (strcmp(name, "take_again") == 0)
        CHECK_EQ(hvmem_quiesce(context), HVMEM_OK);
    return 0;
}

static void take_one(struct callers *c)
{
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn = 0;

    request.lo = 256;
    request.hi = 257;
    test_set_point_hook(quiesce_again, c->heap);
    CHECK_EQ(hvmem_alloc(c->heap, &request, &mfn), HVMEM_OK);
    test_set_point_hook(NULL, NULL);
    c->held[c->count++] = (struct callers_held){mfn, 1, NULL};
}

/* A block that lies in two banks. */
static void adopt_split(void)
{
    begin(1);
    CHECK_EQ(expect_lookup(callers.world, 300).mfn, 256);
    adopt_each(take_one);
    CHECK(first.stores > 50);
    end();
}

/* With blocks in caches. */
static void adopt_quiesced(void)
{
    uint64_t stream, rounds = test_rounds(15);
    unsigned i, k;

    for (stream = 0; stream < rounds; stream++) {
        begin(stream);
        for (i = 0; i < 4; i++) {
            for (k = 0; k < 8; k++)
                callers_call(&callers);
            adopt_each(quiesce);
        }
        end();
    }
}

static void move_bank(struct callers *c)
{
    struct hvmem_bank bank = callers_bank_at(moving);
    const struct world_table *t = &c->world->tables[moving];

    CHECK_EQ(hvmem_bank_remove(c->heap, bank.base, bank.frames), HVMEM_OK);
    bank.flags = HVMEM_BANK_DIRTY;
    CHECK_EQ(hvmem_bank_add(c->heap, &bank, t->memory, t->bytes), HVMEM_OK);
}

/* A bank goes and comes back, and blocks are cut and merge where it meets others. */
static void adopt_moved(void)
{
    uint64_t stream, rounds = test_rounds(6);
    unsigned i, k;

    for (stream = 0; stream < rounds; stream++) {
        begin(stream);
        for (moving = 0; moving < CALLERS_BANKS; moving++) {
            for (k = 0; k < 20; k++)
                callers_call(&callers);
            callers_release_all(&callers);
            if (callers.bad != EXPECT_NO_MFN)
                CHECK_EQ(hvmem_online(callers.heap, callers.bad), HVMEM_OK);
            callers.bad = EXPECT_NO_MFN;
            for (i = 0; i < CALLERS_FRAMES; i++)
                if (expect_lookup(callers.world, i).state == HVMEM_BLOCK_QUARANTINE)
                    CHECK_EQ(hvmem_quarantine_release(callers.heap, i), HVMEM_OK);
            adopt_each(move_bank);
        }
        end();
    }
    moving = CALLERS_BANKS;
}

static void free_held(struct callers *c)
{
    c->count--;
    CHECK_EQ(hvmem_free_run(c->heap, c->held[c->count].mfn, c->held[c->count].frames), HVMEM_OK);
}

/* One bad frame, first, last or within, in a block in a bank and in one over the border of two. */
static void adopt_bad(void)
{
    static const struct callers_held block[] = {{128, 64, NULL}, {256, 64, NULL}};
    static const hvmem_mfn at[] = {0, 31, 32, 63};
    struct hvmem_request request = expect_block(6, NULL);
    hvmem_mfn mfn;
    unsigned i, k, quiet;

    for (i = 0; i < 2; i++)
        for (k = 0; k < 4; k++)
            for (quiet = 0; quiet < 2; quiet++) {
                begin(0);
                request.lo = block[i].mfn;
                request.hi = block[i].mfn + block[i].frames;
                REQUIRE_EQ(hvmem_alloc(callers.heap, &request, &mfn), HVMEM_OK);
                callers.held[callers.count++] = block[i];
                REQUIRE_EQ(hvmem_offline(callers.heap, block[i].mfn + at[k]), HVMEM_AGAIN);
                if (quiet)
                    CHECK_EQ(hvmem_quiesce(callers.heap), HVMEM_OK);
                adopt_each(free_held);
                CHECK(first.stores > 10);
                end();
            }
}

#else

static void adopt_all(void)
{
    CHECK(1);
}

static void adopt_again(void)
{
    CHECK(1);
}

static void adopt_quiesced(void)
{
    CHECK(1);
}

static void adopt_two(void)
{
    CHECK(1);
}

static void adopt_moved(void)
{
    CHECK(1);
}

static void adopt_split(void)
{
    CHECK(1);
}

static void adopt_bad(void)
{
    CHECK(1);
}

#endif

TEST(whatever_was_stored_can_be_adopted)
{
    adopt_all();
}

TEST(block_with_a_bad_frame_is_sorted_out)
{
    adopt_bad();
}

TEST(adoption_that_ends_in_the_middle)
{
    adopt_again();
}

TEST(heap_that_ends_while_it_is_quiesced)
{
    adopt_quiesced();
}

TEST(heap_that_is_quiesced_within_a_split, points)
{
    adopt_split();
}

TEST(heap_that_ends_while_a_bank_moves)
{
    adopt_moved();
}

TEST(heap_that_ends_in_two_calls)
{
    adopt_two();
}
