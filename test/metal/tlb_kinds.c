/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tlb_kinds: what may be stale besides the address. For pages of every size an entry loses its presence
 * or its write right, and a 4 KiB one its execute right; until the back-end's single-page request the CPU
 * still grants the old right, afterwards it faults. Then the same for all CPUs at once, each asked by a
 * call to make the request (the shootdown of machines without broadcast).
 */
#include "test/metal/check.h"
#include "test/metal/forms.h"
#include "test/metal/subject.h"

#define ROUNDS 1000u
#define FEW    100u

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_EXEC };

struct kind {
    const char *name;
    unsigned before, after; /* flags of metal_map */
    enum access access;     /* allowed before, not after */
};

static const struct kind kinds[] = {
    {"not present", METAL_P | METAL_W, 0, ACCESS_READ},
    {"read-only", METAL_P | METAL_W, METAL_P, ACCESS_WRITE},
    {"no-execute", METAL_P | METAL_X, METAL_P, ACCESS_EXEC},
};

/* Data and code apart: QEMU's TCG looks a page up again at a write when it has translated code of it. */
static uint64_t *data_page, *code_page;
static uint64_t *page;    /* one of them */
static uintptr_t mapping; /* start of the tested entry's range */
static uintptr_t va;      /* where `page` appears in it */
static enum access access_kind;

/* 1: the access was granted on this CPU. */
static int try_access(void)
{
    uint64_t value = 0;

    switch (access_kind) {
    case ACCESS_READ:
        return !metal_probe_read(va, &value, NULL);
    case ACCESS_WRITE:
        return !metal_probe_write(va + 64, 1, NULL);
    default:
        return !metal_probe_exec(va, &value, NULL) && value == 77;
    }
}

static uint64_t granted; /* bit per CPU */

static void try_here(void *arg)
{
    (void)arg;
    if (try_access())
        __atomic_fetch_or(&granted, 1ull << metal_cpu_id(), __ATOMIC_SEQ_CST);
}

static uint64_t granted_on(uint64_t cpus)
{
    granted = 0;
    CHECK_EQUAL(metal_call_cpus(cpus, try_here, NULL), METAL_OK);
    return granted;
}

static void forget(void *arg)
{
    (void)arg;
    metal_flush_own();
}

static void flush_here(void *arg)
{
    struct hvmem_backend *be = subject_backend();

    if (be->ops->tlb_flush(be, arg) != HVMEM_OK)
        metal_panic("the back-end refuses the flush");
}

/* Leaves the entry changed, with every CPU of the set holding the old one. */
static void prime(const struct kind *k, unsigned shift, uint64_t cpus)
{
    const uint64_t base = metal_maddr(page) & ~((1ull << shift) - 1);

    CHECK_EQUAL(metal_map(mapping, base, shift, k->before), METAL_OK);
    CHECK_EQUAL(metal_call_cpus(cpus, forget, NULL), METAL_OK);
    CHECK_EQUAL(granted_on(cpus), cpus);
    CHECK_EQUAL(metal_map(mapping, base, shift, k->after), METAL_OK);
}

static void place(const struct kind *k, unsigned shift)
{
    page = k->access == ACCESS_EXEC ? code_page : data_page;
    mapping = metal_window() + (1ull << METAL_1G);
    va = mapping + (metal_maddr(page) & ((1ull << shift) - 1));
    access_kind = k->access;
}

static void check_kind(const struct kind *k, unsigned shift)
{
    const uint64_t cpus = metal_online();
    unsigned stale = 0, stale_after = 0, rounds;
    struct hvmem_tlb_range range;
    struct hvmem_tlb_flush flush;

    place(k, shift);
    flush = request(&forms[0], HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST, 0, &range, mapping);
    range.pages = 1ull << (shift - METAL_PAGE_SHIFT);
    range.stride_shift = (hvmem_u8)shift;
    for (rounds = 0; rounds < ROUNDS; rounds++) {
        prime(k, shift, 1);
        stale += try_access() != 0;
        if (rounds >= FEW)
            continue;
        flush_here(&flush);
        stale_after += try_access() != 0;
    }
    metal_printf("run %s: %s, 2^%u bytes: no request: stale %u of %u; page local: stale %u of %u\n",
                 subject_level(), k->name, shift, stale, ROUNDS, stale_after, FEW);
    CHECK(stale >= ROUNDS - ROUNDS / 1000);
    CHECK_EQUAL(stale_after, 0);
    stale = stale_after = 0;
    for (rounds = 0; rounds < FEW; rounds++) {
        prime(k, shift, cpus);
        stale += granted_on(cpus) == cpus;
        CHECK_EQUAL(metal_call_cpus(cpus, flush_here, &flush), METAL_OK);
        stale_after += granted_on(cpus) != 0;
    }
    metal_printf("run %s: %s, 2^%u bytes: all CPUs called: stale %u of %u, after: %u\n",
                 subject_level(), k->name, shift, stale, FEW, stale_after);
    CHECK_EQUAL(stale, FEW);
    CHECK_EQUAL(stale_after, 0);
    metal_window_clear();
}

static int tlb_kinds(void)
{
    static const unsigned shifts[] = {METAL_4K, METAL_2M, METAL_1G};

    data_page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    code_page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    metal_code_return(code_page, 77);
    metal_code_visible(code_page, 64);
    if (metal_start_cpus(NULL) < 2) {
        metal_printf("needs two CPUs\n");
        return 1;
    }
    for (unsigned s = 0; s < sizeof shifts / sizeof shifts[0]; s++) {
        if (metal_map(metal_window(), 0, shifts[s], METAL_P) == METAL_E_LACK) {
            metal_printf("no pages of 2^%u bytes on this machine\n", shifts[s]);
            continue;
        }
        metal_window_clear();
        /*
         * Execution from large pages is left out: TCG keeps translated code of the other 4 KiB parts
         * of a large page after its INVLPG, so that it looks stale for ever.
         */
        for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            if (kinds[i].access != ACCESS_EXEC || shifts[s] == METAL_4K)
                check_kind(&kinds[i], shifts[s]);
    }
    return check_result();
}

METAL_PROGRAM(tlb_kinds, tlb_kinds);
