/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tlb_stage1: every form of TLB request of the contract against the machine's TLBs, for the tables the
 * image itself runs on. Two CPUs hold a translation, the entry is moved to another page, the back-end
 * invalidates, both look again. Without the request both must still see the old page (negative
 * control); with it the own CPU sees the new one, and the other CPU exactly when the scope reaches it.
 * Each line "run ..." names instructions that were seen at work.
 */
#include "test/metal/check.h"
#include "test/metal/forms.h"
#include "test/metal/subject.h"

#define ROUNDS     1000u /* where the old page must be seen */
#define FEW        100u  /* where it must not: one stale round fails */
#define OLD        1u
#define NEW        2u
#define OTHER_PAGE 0x40000u /* distance of a page that has nothing to do with the tested one */

static uint64_t *old_page, *new_page;
static uintptr_t va;
static unsigned other; /* the CPU that looks on */

struct outcome {
    unsigned own_stale;
    unsigned other_stale;
    unsigned broken; /* rounds in which a CPU did not see the old page at first */
};

static void look(void *arg)
{
    *(volatile uint64_t *)arg = *(volatile uint64_t *)va;
}

static void forget(void *arg)
{
    (void)arg;
    metal_flush_own();
}

/* One round; `flush` NULL: no request at all. Returns the back-end's status. */
static hvmem_status round_of(const struct hvmem_tlb_flush *flush, unsigned map_flags,
                             struct outcome *o)
{
    struct hvmem_backend *be = subject_backend();
    volatile uint64_t own = 0, far = 0;
    hvmem_status status = HVMEM_OK;

    metal_map(va, metal_maddr(old_page), METAL_4K, METAL_P | METAL_W | map_flags);
    metal_call_cpus(1ull << other | 1, forget, NULL);
    metal_call_cpus(1ull << other, look, (void *)(uintptr_t)&far);
    look((void *)(uintptr_t)&own);
    o->broken += own != OLD || far != OLD;
    metal_map(va, metal_maddr(new_page), METAL_4K, METAL_P | METAL_W | map_flags);
    if (flush != NULL)
        status = be->ops->tlb_flush(be, flush);
    look((void *)(uintptr_t)&own);
    metal_call_cpus(1ull << other, look, (void *)(uintptr_t)&far);
    o->own_stale += own == OLD;
    o->other_stale += far == OLD;
    return status;
}

static struct outcome rounds_of(const struct hvmem_tlb_flush *flush, unsigned map_flags,
                                unsigned rounds)
{
    struct outcome o = {0, 0, 0};
    unsigned refused = 0;

    for (unsigned i = 0; i < rounds; i++)
        refused += round_of(flush, map_flags, &o) != HVMEM_OK;
    CHECK_EQUAL(refused, 0);
    CHECK_EQUAL(o.broken, 0);
    return o;
}

static void check_controls(void)
{
    struct hvmem_tlb_range range;
    const struct hvmem_tlb_flush elsewhere =
        request(&forms[0], HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST, 0, &range, va + OTHER_PAGE);
    struct outcome o = rounds_of(NULL, 0, ROUNDS);

    metal_printf("control %s: no request: own stale %u, other stale %u of %u\n", subject_level(),
                 o.own_stale, o.other_stale, ROUNDS);
    CHECK(o.own_stale >= ROUNDS - ROUNDS / 1000);
    CHECK(o.other_stale >= ROUNDS - ROUNDS / 1000);
    o = rounds_of(&elsewhere, 0, ROUNDS);
    metal_printf("control %s: another page: own stale %u, other stale %u of %u\n", subject_level(),
                 o.own_stale, o.other_stale, ROUNDS);
    CHECK(o.own_stale >= ROUNDS - ROUNDS / 1000);
    CHECK(o.other_stale >= ROUNDS - ROUNDS / 1000);
}

/* One form in one scope: proven by run, or refused with the documented code. */
static void check_form(const struct form *f, uint32_t scope, uint32_t regime, uint32_t id)
{
    const char *regime_name = regime == HVMEM_REGIME_HOST ? "host" : "user";
    struct hvmem_tlb_range range;
    const struct hvmem_tlb_flush flush = request(f, scope, regime, id, &range, va);
    /* The host's own pages are global, a user space's are not. */
    const unsigned map_flags = regime == HVMEM_REGIME_HOST ? METAL_G : 0;
    struct outcome o = {0, 0, 0};
    const hvmem_status status = round_of(&flush, map_flags, &o);
    const unsigned rounds = scope == HVMEM_SCOPE_LOCAL ? ROUNDS : FEW;
    char names[96];

    if (status != HVMEM_OK) {
        metal_printf("refused %s: %s %s %s: status %d\n", subject_level(), regime_name, f->name,
                     scope_name(scope), (int)status);
        CHECK_EQUAL(status, HVMEM_E_UNSUPPORTED);
        CHECK(scope != HVMEM_SCOPE_LOCAL || regime != HVMEM_REGIME_HOST);
        return;
    }
    o = rounds_of(&flush, map_flags, rounds);
    subject_name(&flush, names, sizeof names);
    metal_printf("run %s: %s: %s %s %s: own stale %u, other stale %u of %u\n", subject_level(),
                 names, regime_name, f->name, scope_name(scope), o.own_stale, o.other_stale,
                 rounds);
    CHECK_EQUAL(o.own_stale, 0);
    if (scope == HVMEM_SCOPE_LOCAL)
        CHECK(o.other_stale >= rounds - rounds / 1000);
    else
        CHECK_EQUAL(o.other_stale, 0);
}

static int tlb_stage1(void)
{
    uint32_t id;

    old_page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    new_page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    va = metal_window() + METAL_WINDOW_APART;
    *old_page = OLD;
    *new_page = NEW;
    if (metal_start_cpus(NULL) < 2) {
        metal_printf("needs two CPUs\n");
        return 1;
    }
    other = 1;
    check_controls();
    for (uint32_t scope = HVMEM_SCOPE_LOCAL; scope <= HVMEM_SCOPE_OUTER; scope++)
        for (uint32_t i = 0; i < FORM_COUNT; i++) {
            check_form(&forms[i], scope, HVMEM_REGIME_HOST, 0);
            if (subject_user_space(&id) && forms[i].what != HVMEM_FLUSH_ALL)
                check_form(&forms[i], scope, HVMEM_REGIME_USER, id);
        }
    metal_window_clear();
    return check_result();
}

METAL_PROGRAM(tlb_stage1, tlb_stage1, slow);
