/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap that dies at any store to its tables: each instruction that writes to one is let through alone, and
 * what the tables are after it is adopted. Another heap finds every frame in one block, hands each free one
 * out once, and none that its owner had before the call and after it. (Single steps: x86-64.)
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
static unsigned char *stored[MOST][CALLERS_BANKS];
static unsigned stores;

static void protect(int rights)
{
    unsigned i;

    for (i = 0; i < CALLERS_BANKS; i++)
        mprotect(callers.world->tables[i].memory, callers.world->tables[i].mapped, rights);
}

/* A store to a table: this one instruction. */
static void written(int number, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    unsigned i;

    for (i = 0; i < CALLERS_BANKS; i++) {
        struct world_table *t = &callers.world->tables[i];

        if ((size_t)((unsigned char *)info->si_addr - t->memory) >= t->mapped)
            continue;
        protect(PROT_READ | PROT_WRITE);
        uc->uc_mcontext.gregs[REG_EFL] |= TRAP;
        return;
    }
    signal(number, SIG_DFL);
}

/* It is done. */
static void stepped(int number, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    unsigned i;
    (void)number;
    (void)info;

    uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP;
    for (i = 0; i < CALLERS_BANKS && stores < MOST; i++)
        memcpy(stored[stores][i], callers.world->tables[i].memory, callers.world->tables[i].bytes);
    stores++;
    protect(PROT_READ);
}

static void watch(void (*call)(struct callers *))
{
    struct sigaction action = {.sa_flags = SA_SIGINFO};

    stores = 0;
    action.sa_sigaction = written;
    sigaction(SIGSEGV, &action, NULL);
    action.sa_sigaction = stepped;
    sigaction(SIGTRAP, &action, NULL);
    protect(PROT_READ);
    call(&callers);
    protect(PROT_READ | PROT_WRITE);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);
}

/* What is held: 1 a frame. */
static void mark_held(unsigned char *frame)
{
    unsigned i;

    for (i = 0; i < callers.count; i++)
        memset(frame + callers.held[i].mfn, 1, callers.held[i].frames);
}

/* Another heap takes over what was left. */
static struct world *adopt(unsigned char *const *tables)
{
    struct world *fresh = WORLD_NEW(&callers.world->config, WORLD_BROADCAST);
    hvmem_status status;
    hvmem_u64 cursor = 0;
    unsigned i;

    for (i = 0; i < 2; i++)
        world_domain(fresh, i + 1, ~0ull, 0, NULL);
    for (i = 0; i < CALLERS_BANKS; i++) {
        struct world_table *t = &callers.world->tables[i];
        struct hvmem_bank bank = {sizeof bank, t->flags, t->base, t->frames, 0, 0};

        REQUIRE_EQ(hvmem_bank_adopt(fresh->heap, &bank, tables[i], t->bytes), HVMEM_OK);
    }
    do
        status = hvmem_adopt_finish(fresh->heap, &cursor);
    while (status == HVMEM_AGAIN);
    REQUIRE_EQ(status, HVMEM_OK);
    return fresh;
}

static void use_all(struct world *fresh, const unsigned char *others)
{
    hvmem_u64 n = expect_stats(fresh, HVMEM_NODE_ANY).free, i;
    unsigned char seen[CALLERS_FRAMES] = {0};
    hvmem_mfn mfn[CALLERS_FRAMES + 1];

    CHECK_AUDIT(fresh);
    CHECK_EQ(expect_take_all(fresh, mfn, CALLERS_FRAMES + 1), n);
    for (i = 0; i < n; i++)
        if (!CHECK(mfn[i] < CALLERS_FRAMES && !seen[mfn[i]]++ && !others[mfn[i]]))
            test_note("frame %llu", (unsigned long long)mfn[i]);
    CHECK_AUDIT(fresh);
}

/* Each of the stores of a call is the last one of a heap. */
static void adopt_each(void (*call)(struct callers *))
{
    unsigned char before[CALLERS_FRAMES] = {0}, after[CALLERS_FRAMES] = {0};
    unsigned k;

    mark_held(before);
    watch(call);
    mark_held(after);
    for (k = 0; k < CALLERS_FRAMES; k++)
        after[k] &= before[k];
    CHECK(stores <= MOST);
    for (k = 0; k < stores && k < MOST; k++) {
        struct world *fresh = adopt(stored[k]);

        use_all(fresh, after);
        CHECK(world_delete(fresh));
    }
}

static void begin(uint64_t stream)
{
    unsigned i;

    callers = callers_new(stream);
    for (i = 0; i < MOST * CALLERS_BANKS; i++) {
        unsigned char **copy = &stored[i / CALLERS_BANKS][i % CALLERS_BANKS];

        *copy = aligned_alloc(64, (callers.world->tables[i % CALLERS_BANKS].bytes + 63) & ~63ull);
        REQUIRE(*copy != NULL);
    }
}

static void end(void)
{
    unsigned i;

    for (i = 0; i < MOST * CALLERS_BANKS; i++)
        free(stored[i / CALLERS_BANKS][i % CALLERS_BANKS]);
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
            all += stores;
        }
        end();
    }
    CHECK(all > rounds * 100);
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
                CHECK(stores > 10);
                end();
            }
}

#else

static void adopt_all(void)
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
