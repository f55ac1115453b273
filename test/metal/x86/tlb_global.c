/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tlb_global: which requests reach global translations and which spare them, with and without INVPCID
 * and PCIDs. Each line "run ..." names the instructions at work. QEMU's TCG has neither and ignores the G
 * bit; Bochs has them but its TLB carries no PCID, so that an INVPCID for any PCID reaches the entry:
 * the PCID operand is the recorder's to check, this shows the type and what it spares.
 */
#include "hosts/metal/x86/regs.h"
#include "test/metal/check.h"
#include "test/metal/forms.h"
#include "test/metal/x86/pair.h"

#define ROUNDS 1000u /* where the old page must be seen */
#define FEW    100u  /* where it must not */
#define OLD    1u
#define NEW    2u

#define CR4_PCIDE    (1ull << 17)
#define CR3_NO_FLUSH (1ull << 63)
#define INVPCID_BIT  (1u << 10) /* of leaf 7, EBX */

static uint64_t *old_page, *new_page;
static uintptr_t va;
static struct x86_pair pair;
static int honours_global, honours_tags;

static void look(void *arg)
{
    *(volatile uint64_t *)arg = *(volatile uint64_t *)va;
}

static void forget(void *arg)
{
    (void)arg;
    metal_flush_own();
}

struct outcome {
    unsigned own, other; /* rounds in which the old page was still seen */
};

/* `act(arg)` on this CPU between the change of the entry and the second look. */
static struct outcome rounds_of(unsigned rounds, unsigned map_flags, metal_call_fn act, void *arg)
{
    struct outcome o = {0, 0};
    unsigned broken = 0;

    for (unsigned i = 0; i < rounds; i++) {
        volatile uint64_t own = 0, other = 0;

        metal_map(va, metal_maddr(old_page), METAL_4K, METAL_P | map_flags);
        metal_call_cpus(3, forget, NULL);
        metal_call_cpus(2, look, (void *)(uintptr_t)&other);
        look((void *)(uintptr_t)&own);
        broken += own != OLD || other != OLD;
        metal_map(va, metal_maddr(new_page), METAL_4K, METAL_P | map_flags);
        act(arg);
        look((void *)(uintptr_t)&own);
        metal_call_cpus(2, look, (void *)(uintptr_t)&other);
        o.own += own == OLD;
        o.other += other == OLD;
    }
    CHECK_EQUAL(broken, 0);
    return o;
}

/* ---- the machine itself, before the back-end is judged ---- */

static void nothing(void *arg)
{
    (void)arg;
}

static void reload_cr3(void *arg)
{
    (void)arg;
    write_cr3(read_cr3());
}

/* To PCID 5 and back without a flush: does the entry of PCID 0 survive? */
static void visit_other_pcid(void *arg)
{
    const uint64_t cr3 = read_cr3();

    (void)arg;
    write_cr3(cr3 | 5);
    write_cr3(cr3 | CR3_NO_FLUSH);
}

static void learn_machine(int pcide)
{
    struct outcome o = rounds_of(ROUNDS, METAL_G, nothing, NULL);

    CHECK(o.own >= ROUNDS - ROUNDS / 1000 && o.other >= ROUNDS - ROUNDS / 1000);
    o = rounds_of(FEW, 0, reload_cr3, NULL);
    CHECK_EQUAL(o.own, 0);
    o = rounds_of(ROUNDS, METAL_G, reload_cr3, NULL);
    CHECK(o.own == 0 || o.own >= ROUNDS - ROUNDS / 1000);
    honours_global = o.own != 0;
    honours_tags = pcide && rounds_of(FEW, 0, visit_other_pcid, NULL).own != 0;
    metal_printf("control: PCID %s, global entries %s a CR3 write, entries %s a PCID\n",
                 pcide ? "on" : "off", honours_global ? "survive" : "do not survive",
                 honours_tags ? "carry" : "do not carry");
}

/* ---- the back-end ---- */

static void flush_here(void *arg)
{
    CHECK_EQUAL(pair.backend.ops->tlb_flush(&pair.backend, arg), HVMEM_OK);
}

static int contains(const char *text, const char *word)
{
    for (; *text != '\0'; text++) {
        size_t n = 0;

        while (word[n] != '\0' && text[n] == word[n])
            n++;
        if (word[n] == '\0')
            return 1;
    }
    return 0;
}

/* Some instruction of the list reaches global entries (SDM vol. 3, 4.10.4.1). */
static int reaches_globals(const char *names)
{
    return contains(names, "INVLPG") || contains(names, "MOV-CR4") || contains(names, "INVPCID 2");
}

static void check_form(const struct form *f, uint32_t regime, uint32_t id, int global)
{
    struct hvmem_tlb_range range;
    struct hvmem_tlb_flush flush = request(f, HVMEM_SCOPE_LOCAL, regime, id, &range, va);
    struct outcome o;
    char names[96];
    int spared;

    x86_pair_name(&pair, &flush, names, sizeof names);
    /* What the request promises does not depend on the instruction: host requests reach globals. */
    if (regime == HVMEM_REGIME_HOST || f->what == HVMEM_FLUSH_ALL)
        CHECK(reaches_globals(names));
    spared = global && honours_global && !reaches_globals(names);
    o = rounds_of(spared ? ROUNDS : FEW, global ? METAL_G : 0, flush_here, &flush);
    metal_printf("run x86-64: %s: %s %s local, %s entry: own stale %u, other stale %u of %u\n",
                 names, regime == HVMEM_REGIME_HOST ? "host" : "user", f->name,
                 global ? "global" : "tagged", o.own, o.other, spared ? ROUNDS : FEW);
    if (spared)
        CHECK(o.own >= ROUNDS - ROUNDS / 1000);
    else
        CHECK_EQUAL(o.own, 0);
    CHECK(o.other >= (spared ? ROUNDS - ROUNDS / 1000 : FEW));
}

static void check_forms(const struct hvmem_x86_ids *ids, uint32_t user_id)
{
    const struct hvmem_x86_config config = {.size = sizeof config, .ids = ids};

    x86_pair_make(&pair, &config);
    for (int global = 0; global <= 1; global++)
        for (unsigned i = 0; i < FORM_COUNT; i++) {
            check_form(&forms[i], HVMEM_REGIME_HOST, 0, global);
            if (forms[i].what != HVMEM_FLUSH_ALL)
                check_form(&forms[i], HVMEM_REGIME_USER, user_id, global);
        }
}

static void set_pcide(void *arg)
{
    const uint64_t cr4 = read_cr4();

    write_cr4(arg != NULL ? cr4 | CR4_PCIDE : cr4 & ~CR4_PCIDE);
}

static int tlb_global(void)
{
    const struct hvmem_x86_config config = {.size = sizeof config};
    struct hvmem_x86_ids ids, without;
    int has_pcid;

    old_page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    new_page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    va = metal_window() + METAL_WINDOW_APART;
    *old_page = OLD;
    *new_page = NEW;
    if (metal_start_cpus(NULL) < 2) {
        metal_printf("needs two CPUs\n");
        return 1;
    }
    x86_pair_make(&pair, &config);
    ids = without = pair.ids;
    without.leaf7_ebx &= ~INVPCID_BIT;
    has_pcid = (pair.backend.caps.features & HVMEM_CAP_USER_IDS) != 0;
    /* An image that is told to be on a CPU with INVPCID must not pass without having used it. */
    CHECK(!metal_arg_is("need", "invpcid") || ((ids.leaf7_ebx & INVPCID_BIT) != 0 && has_pcid));
    for (int pcide = 0; pcide <= has_pcid; pcide++) {
        CHECK_EQUAL(metal_call_cpus(3, set_pcide, pcide ? &ids : NULL), METAL_OK);
        learn_machine(pcide);
        check_forms(&ids, 0);
        if (pcide && !honours_tags)
            check_forms(&ids, 5);
        if ((ids.leaf7_ebx & INVPCID_BIT) != 0)
            check_forms(&without, 0);
    }
    CHECK_EQUAL(metal_call_cpus(3, set_pcide, NULL), METAL_OK);
    metal_window_clear();
    return check_result();
}

METAL_PROGRAM(tlb_global, tlb_global);
