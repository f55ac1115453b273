/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tlb_guest: the back-end at EL2 against translations of guests. A guest on this CPU and one on another,
 * of one VMID, read a page again and again; between two reads an entry of their stage 2 (or of their
 * own stage 1) is moved to another page and the back-end is asked to invalidate. Negative controls as
 * in tlb_stage1. Also: stage-2 faults arrive with their address and are repaired. An image at EL1
 * checks that all of it is refused.
 */
#include "hosts/metal/arm64/cpu.h"
#include "hosts/metal/arm64/monitor.h"
#include "hosts/metal/arm64/stage2.h"
#include "test/metal/check.h"
#include "test/metal/forms.h"
#include "test/metal/subject.h"

#define ROUNDS     1000u /* where the old page must be seen */
#define FEW        200u  /* where it must not: one stale round fails */
#define OLD        1u
#define NEW        2u
#define VMID       5u
#define OTHER_CPU  1u
#define NOT_GLOBAL (1ull << 11)

/* Which tables a round changes. */
enum stage { STAGE_1, STAGE_2 };

static struct metal_s2 s2;
static struct metal_vcpu vcpu[2];
static uint64_t seen[2]; /* what each guest read last, 0 = it left otherwise */
static uint64_t *old_page, *new_page;
static uintptr_t va;

/* ---- guests ---- */

static void watch(void *arg)
{
    for (;;)
        (void)metal_guest_hvc(METAL_HVC_CALL, *(volatile uint64_t *)arg);
}

static void guest_make(void *arg)
{
    const unsigned cpu = metal_cpu_id();

    (void)arg;
    CHECK_EQUAL(metal_guest_init(&vcpu[cpu], watch, (void *)va, metal_guest_stack()), METAL_OK);
    vcpu[cpu].hcr = METAL_HCR_VM;
    vcpu[cpu].vtcr = s2.vtcr;
    vcpu[cpu].vttbr = metal_s2_vttbr(&s2, VMID);
}

/* Lets this CPU's guest read once. */
static void guest_look(void *arg)
{
    const unsigned cpu = metal_cpu_id();
    struct metal_guest_exit e;

    (void)arg;
    seen[cpu] = 0;
    if (metal_guest_run(&vcpu[cpu], &e) == METAL_OK && e.kind == METAL_EXIT_HVC &&
        e.imm == METAL_HVC_CALL)
        seen[cpu] = vcpu[cpu].x[0];
}

static void forget(void *arg)
{
    (void)arg;
    metal_flush_own();
}

/* ---- rounds ---- */

struct outcome {
    unsigned own_stale, other_stale, broken, refused;
};

/* The guests' address leads to `page` by the tables of the given stage. */
static void lead_to(enum stage stage, const uint64_t *page, uint64_t bits)
{
    if (stage == STAGE_2) {
        metal_s2_map(&s2, metal_maddr(old_page), metal_maddr(page), METAL_4K, METAL_S2_RWX);
        return;
    }
    metal_map(va, metal_maddr(page), METAL_4K, METAL_P | METAL_W);
    if (bits != 0)
        metal_pte_write(va, METAL_4K, metal_pte(va, METAL_4K) | bits);
}

static hvmem_status round_of(enum stage stage, const struct hvmem_tlb_flush *flush, uint64_t bits,
                             struct outcome *o)
{
    const uint64_t both = 1ull << OTHER_CPU | 1;
    struct hvmem_backend *be = subject_backend();
    hvmem_status status = HVMEM_OK;

    lead_to(stage, old_page, bits);
    metal_call_cpus(both, forget, NULL);
    metal_call_cpus(both, guest_look, NULL);
    o->broken += seen[0] != OLD || seen[OTHER_CPU] != OLD;
    lead_to(stage, new_page, bits);
    if (flush != NULL)
        status = be->ops->tlb_flush(be, flush);
    guest_look(NULL);
    metal_call_cpus(1ull << OTHER_CPU, guest_look, NULL);
    o->own_stale += seen[0] == OLD;
    o->other_stale += seen[OTHER_CPU] == OLD;
    o->broken += seen[0] == 0 || seen[OTHER_CPU] == 0;
    return status;
}

static struct outcome rounds_of(enum stage stage, const struct hvmem_tlb_flush *flush,
                                uint64_t bits, unsigned rounds)
{
    struct outcome o = {0, 0, 0, 0};

    for (unsigned i = 0; i < rounds; i++)
        o.refused += round_of(stage, flush, bits, &o) != HVMEM_OK;
    CHECK_EQUAL(o.refused, 0);
    CHECK_EQUAL(o.broken, 0);
    return o;
}

static void check_control(enum stage stage)
{
    const struct outcome o = rounds_of(stage, NULL, 0, ROUNDS);

    metal_printf("control guest stage %u: no request: own stale %u, other stale %u of %u\n",
                 stage == STAGE_2 ? 2 : 1, o.own_stale, o.other_stale, ROUNDS);
    CHECK(o.own_stale >= ROUNDS - ROUNDS / 1000);
    CHECK(o.other_stale >= ROUNDS - ROUNDS / 1000);
}

static const char *regime_name(uint32_t regime)
{
    return regime == HVMEM_REGIME_STAGE2  ? "stage2"
           : regime == HVMEM_REGIME_GUEST ? "guest"
                                          : "user";
}

static void check_form(const struct form *f, uint32_t scope, uint32_t regime)
{
    const enum stage stage = regime == HVMEM_REGIME_STAGE2 ? STAGE_2 : STAGE_1;
    const uint64_t at = stage == STAGE_2 ? metal_maddr(old_page) : va;
    const uint32_t id = regime == HVMEM_REGIME_USER ? 0 : VMID;
    /* ASIDE1 leaves global entries. */
    const uint64_t bits = regime == HVMEM_REGIME_USER ? NOT_GLOBAL : 0;
    const unsigned rounds = scope == HVMEM_SCOPE_LOCAL ? ROUNDS : FEW;
    struct hvmem_tlb_range range;
    struct hvmem_tlb_flush flush = request(f, scope, regime, id, &range, at);
    struct outcome o = {0, 0, 0, 0};
    hvmem_status status;
    char names[96];

    flush.space.root = s2.vtcr == 0 ? 0 : metal_maddr(s2.root);
    status = round_of(stage, &flush, bits, &o);
    if (status != HVMEM_OK) {
        metal_printf("refused el2: %s %s %s: status %d\n", regime_name(regime), f->name,
                     scope_name(scope), (int)status);
        CHECK_EQUAL(status, HVMEM_E_UNSUPPORTED);
        CHECK_EQUAL(scope, HVMEM_SCOPE_OUTER);
        return;
    }
    o = rounds_of(stage, &flush, bits, rounds);
    subject_name(&flush, names, sizeof names);
    metal_printf("run el2: %s: %s %s %s: own stale %u, other stale %u of %u\n", names,
                 regime_name(regime), f->name, scope_name(scope), o.own_stale, o.other_stale,
                 rounds);
    CHECK_EQUAL(o.own_stale, 0);
    /* QEMU broadcasts the local VMALLS12E1: its locality is proven by record alone. */
    if (metal_emulator() != NULL && scope == HVMEM_SCOPE_LOCAL && f->what == HVMEM_FLUSH_SPACE &&
        regime == HVMEM_REGIME_STAGE2)
        return;
    if (scope == HVMEM_SCOPE_LOCAL)
        CHECK(o.other_stale >= rounds - rounds / 1000);
    else
        CHECK_EQUAL(o.other_stale, 0);
}

/* ---- another VM in force ---- */

/* The request is for a VMID that this CPU does not run: switched to, and the old one restored. */
static void check_vmid_restored(void)
{
    const uint64_t mine = metal_s2_vttbr(&s2, VMID + 1);
    struct hvmem_backend *be = subject_backend();
    struct hvmem_tlb_range range;

    for (unsigned i = 0; i < 5; i++) {
        const struct hvmem_tlb_flush flush = request(
            &forms[i], HVMEM_SCOPE_INNER, HVMEM_REGIME_STAGE2, VMID, &range, metal_maddr(old_page));
        hvmem_status status;

        write_sysreg(vttbr_el2, mine);
        isb();
        status = be->ops->tlb_flush(be, &flush);
        CHECK_EQUAL(status, HVMEM_OK);
        CHECK_EQUAL(read_sysreg(vttbr_el2), mine);
    }
}

/* ---- faults ---- */

/* Runs this CPU's guest into the fault that the entry with these flags makes, repairs it, goes on. */
static void check_fault(unsigned flags, unsigned status, const char *name)
{
    const uint64_t ipa = metal_maddr(old_page);
    struct metal_guest_exit e;
    int rc;

    metal_s2_map(&s2, ipa, ipa, METAL_4K, flags);
    metal_flush_own();
    rc = metal_guest_run(&vcpu[0], &e);
    CHECK_EQUAL(rc, METAL_OK);
    CHECK_EQUAL(e.kind, METAL_EXIT_DATA);
    CHECK_EQUAL(e.status, status);
    CHECK_EQUAL(e.ipa, ipa);
    CHECK_EQUAL(e.far, va);
    CHECK_EQUAL(e.is_write, 0);
    CHECK_EQUAL(e.on_walk, 0);
    metal_printf("fault %s: status 0x%x ipa 0x%lx\n", name, e.status, (unsigned long)e.ipa);
    metal_s2_map(&s2, ipa, ipa, METAL_4K, METAL_S2_RWX);
    guest_look(NULL);
    CHECK_EQUAL(seen[0], OLD);
}

static void write_it(void *arg)
{
    *(volatile uint64_t *)arg = NEW;
}

static int count_writes(void *context, struct metal_vcpu *v, const struct metal_guest_exit *e)
{
    const uint64_t ipa = metal_maddr(old_page);

    (void)v;
    if (e->kind != METAL_EXIT_DATA || !e->is_write || (e->status & 0x3C) != 0x0C)
        return METAL_GUEST_UNHANDLED;
    ++*(unsigned *)context;
    metal_s2_map(&s2, ipa, ipa, METAL_4K, METAL_S2_RWX);
    return 0;
}

/* A write to a read-only page faults once, is repaired, and happens. */
static void check_write_fault(void)
{
    struct metal_vcpu v;
    unsigned writes = 0;
    int rc = metal_guest_init(&v, write_it, (void *)va, metal_guest_stack());

    CHECK_EQUAL(rc, METAL_OK);
    v.hcr = METAL_HCR_VM;
    v.vtcr = s2.vtcr;
    v.vttbr = metal_s2_vttbr(&s2, VMID);
    metal_s2_map(&s2, metal_maddr(old_page), metal_maddr(old_page), METAL_4K,
                 METAL_S2_R | METAL_S2_AF);
    metal_flush_own();
    rc = metal_guest_call(&v, count_writes, &writes);
    CHECK_EQUAL(rc, METAL_OK);
    CHECK_EQUAL(writes, 1);
    CHECK_EQUAL(*(volatile uint64_t *)old_page, NEW);
    *old_page = OLD;
}

/* ---- at EL1 ---- */

static int refused_at_el1(void)
{
    struct hvmem_backend *be = subject_backend();
    struct metal_guest_exit e;
    struct hvmem_tlb_range range;

    CHECK_EQUAL(metal_s2_init(&s2), METAL_E_LACK);
    CHECK_EQUAL(metal_guest_init(&vcpu[0], watch, NULL, metal_guest_stack()), METAL_E_LACK);
    CHECK_EQUAL(metal_guest_run(&vcpu[0], &e), METAL_E_LACK);
    for (uint32_t regime = HVMEM_REGIME_STAGE2; regime <= HVMEM_REGIME_GUEST; regime++)
        for (uint32_t i = 0; i < FORM_COUNT; i++) {
            const struct hvmem_tlb_flush flush =
                request(&forms[i], HVMEM_SCOPE_INNER, regime, VMID, &range, 0x200000);
            const hvmem_status status = be->ops->tlb_flush(be, &flush);

            if (forms[i].what != HVMEM_FLUSH_ALL)
                CHECK_EQUAL(status, HVMEM_E_LEVEL);
        }
    return check_result();
}

static int prepare(void)
{
    old_page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    new_page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    va = metal_window() + 0x155000;
    *old_page = OLD;
    *new_page = NEW;
    if (metal_s2_init(&s2) != METAL_OK ||
        metal_s2_map(&s2, metal_maddr(old_page), metal_maddr(old_page), METAL_4K, METAL_S2_RWX) !=
            METAL_OK ||
        metal_s2_map_all(&s2) != METAL_OK) {
        metal_printf("no stage-2 tables\n");
        return 0;
    }
    if (metal_start_cpus(NULL) < 2) {
        metal_printf("needs two CPUs\n");
        return 0;
    }
    lead_to(STAGE_1, old_page, 0);
    metal_call_cpus(1ull << OTHER_CPU | 1, guest_make, NULL);
    return 1;
}

static int tlb_guest(void)
{
    static const uint32_t regimes[] = {HVMEM_REGIME_STAGE2, HVMEM_REGIME_GUEST, HVMEM_REGIME_USER};

    if (current_el() != 2)
        return refused_at_el1();
    if (!prepare())
        return 1;
    check_fault(0, 0x07, "no entry");
    check_fault(METAL_S2_R | METAL_S2_W | METAL_S2_X, 0x0B, "access flag");
    check_write_fault();
    check_control(STAGE_2);
    lead_to(STAGE_2, old_page, 0);
    check_control(STAGE_1);
    for (unsigned r = 0; r < 3; r++) {
        lead_to(STAGE_1, old_page, 0);
        lead_to(STAGE_2, old_page, 0);
        metal_call_cpus(1ull << OTHER_CPU | 1, forget, NULL);
        for (uint32_t scope = HVMEM_SCOPE_LOCAL; scope <= HVMEM_SCOPE_OUTER; scope++)
            for (uint32_t i = 0; i < FORM_COUNT; i++)
                if (forms[i].what != HVMEM_FLUSH_ALL || regimes[r] == HVMEM_REGIME_STAGE2)
                    check_form(&forms[i], scope, regimes[r]);
    }
    check_vmid_restored();
    return check_result();
}

METAL_PROGRAM(tlb_guest, tlb_guest, slow);
