/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * npt: the library's nested page tables under a real guest (AMD SVM). Access tracking: nothing faults
 * before it is armed, then each page once, and the pages counted as touched are those the guest read
 * or wrote; a page that was unmapped, or made read-only, faults for good. First touch: frames with an
 * earlier owner's secret are scrubbed by the fault, which the guest shows by finding it where scrubbing is
 * claimed and not executed. Each entry flushes everything, as QEMU does by itself: what an entry owes
 * is guest_ids' subject.
 */
#include "hosts/metal/common/host.h"
#include "hosts/metal/x86/svm_guest.h"
#include "hosts/metal/x86/svm_vmcb.h"
#include "test/metal/check.h"

#include <hvmem/ident.h>
#include <hvmem/populate.h>
#include <hvmem/space.h>
#include <hvmem/track.h>
#include <hvmem/x86.h>

#define PAGES     16u
#define EXIT_NPF  0x400u
#define NPF_WRITE (1u << 1) /* APM vol. 2 15.25.6: the page-fault error code */
#define NPF_FETCH (1u << 4)
#define FLUSH_ALL 1u /* TLB_CONTROL */
#define SECRET    0x5EC4E75EC4E75EC4ull

static struct hvmem_x86 x86;
static struct hvmem_backend backend;
static struct metal_heap heap;
static struct hvmem_stage2 *s2;
static struct metal_svm_guest guest;
static hvmem_gfn first;   /* guest frames of the pages, in 4 KiB entries */
static unsigned faults;   /* on them */
static hvmem_u32 outcome; /* of the last fault */
static int scrubs;        /* 0: zeroing is claimed and not executed */
static unsigned zeroed;   /* calls of it */
static uint64_t seen;     /* OR of all words that the guest read */

struct job {
    unsigned from, to;
    int writes;
};

static void touch(void *arg)
{
    const struct job *job = arg;

    for (unsigned i = job->from; i < job->to; i++) {
        volatile uint64_t *word = metal_frame((first + i) << METAL_PAGE_SHIFT);

        if (job->writes)
            *word = i;
        else
            for (unsigned w = 0; w < METAL_PAGE_BYTES / 8; w++)
                seen |= word[w];
    }
}

static void take_fault(void)
{
    const uint64_t info = *vmcb64(guest.vmcb, VMCB_EXIT_INFO1);
    const uint64_t gpa = *vmcb64(guest.vmcb, VMCB_EXIT_INFO2);
    const uint32_t access = info & NPF_FETCH   ? HVMEM_S2_X
                            : info & NPF_WRITE ? HVMEM_S2_W
                                               : HVMEM_S2_R;

    faults += (gpa >> METAL_PAGE_SHIFT) - first < PAGES;
    CHECK_EQUAL(hvmem_stage2_fault(s2, gpa, access, &outcome), HVMEM_OK);
}

/* 1: the guest did its job; 0: it faulted and the library has nothing to repair. */
static int run(unsigned from, unsigned to, int writes)
{
    static struct job job;
    uint64_t exit = 0;

    job = (struct job){from, to, writes};
    faults = 0;
    seen = 0;
    metal_svm_guest_call(&guest, touch, &job);
    for (unsigned turns = 0; turns < 10000; turns++) {
        const uint64_t irq = metal_irq_save();

        metal__vmcb_copy_cpu(guest.vmcb);
        *vmcb32(guest.vmcb, VMCB_ASID) = 1;
        guest.vmcb[VMCB_TLB_CONTROL] = FLUSH_ALL;
        metal__svm_enter((uintptr_t)guest.vmcb, guest.regs);
        exit = *vmcb64(guest.vmcb, VMCB_EXIT_CODE);
        metal_irq_restore(irq);
        if (exit == EXIT_VMMCALL)
            return 1;
        if (exit == EXIT_NPF) {
            take_fault();
            if (outcome > HVMEM_FAULT_AGAIN)
                return 0;
        } else if (exit != EXIT_INTR && exit != EXIT_NMI) {
            break;
        }
    }
    metal_printf("npt: exit 0x%llx\n", (unsigned long long)exit);
    CHECK(0);
    return 0;
}

static uint64_t touched(void)
{
    hvmem_u64 frames = 0;

    CHECK_EQUAL(hvmem_track_age(s2, first, PAGES, 0, &frames), HVMEM_OK);
    return frames;
}

static void arm(void)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status;

    while ((status = hvmem_track_arm(s2, &cursor)) == HVMEM_AGAIN)
        ;
    CHECK_EQUAL(status, HVMEM_OK);
}

static void check_tracking(void)
{
    CHECK(run(0, PAGES, 0));
    CHECK_EQUAL(faults, 0);
    for (unsigned round = 0; round < 3; round++) {
        arm();
        CHECK_EQUAL(touched(), 0);
        for (unsigned i = 1; i <= PAGES; i++) {
            CHECK(run(0, i, (int)(i & 1)));
            CHECK_EQUAL(faults, 1);
            CHECK_EQUAL(touched(), i);
        }
        CHECK(run(0, PAGES, 1));
        CHECK_EQUAL(faults, 0);
    }
}

static void check_refusals(void)
{
    CHECK_EQUAL(hvmem_stage2_unmap(s2, first + 3, 1, NULL, NULL), HVMEM_OK);
    CHECK(run(0, 3, 1) && !run(3, 4, 0));
    CHECK_EQUAL(outcome, HVMEM_FAULT_UNMAPPED);
    CHECK_EQUAL(hvmem_stage2_protect(s2, first + 5, 1, HVMEM_S2_R, NULL, NULL), HVMEM_OK);
    CHECK(run(5, 6, 0) && !run(5, 6, 1));
    CHECK_EQUAL(outcome, HVMEM_FAULT_RIGHTS);
    CHECK_EQUAL(hvmem_stage2_protect(s2, first + 5, 1, HVMEM_S2_RWX, NULL, NULL), HVMEM_OK);
    CHECK(run(5, 6, 1));
}

static int map(hvmem_gfn gfn, hvmem_u64 frames)
{
    const struct hvmem_stage2_map request = {
        .size = sizeof request, .gfn = gfn, .frames = frames, .mfn = gfn, .rights = HVMEM_S2_RWX};

    return CHECK_EQUAL(hvmem_stage2_map(s2, &request, NULL), HVMEM_OK);
}

/* Its id is never asked for: every entry of this guest flushes all. */
static int space_make(struct hvmem_space **space)
{
    const struct hvmem_ident_config config = {.size = sizeof config,
                                              .flags = HVMEM_IDENT_PER_CPU | HVMEM_IDENT_ENTRY,
                                              .regime = HVMEM_REGIME_STAGE2,
                                              .first = 1,
                                              .ids = 7,
                                              .max_cpus = metal_boot_info()->cpu_count,
                                              .lock_regime = HVMEM_LOCK_PLAIN,
                                              .host = &heap.ops,
                                              .host_ctx = &heap.host,
                                              .backend = &backend};
    const struct hvmem_space_config of = {.size = sizeof of, .regime = HVMEM_REGIME_STAGE2};
    struct hvmem_ident *ident;
    hvmem_size bytes = 0;

    if (!CHECK_EQUAL(hvmem_ident_size(&config, &bytes), HVMEM_OK) ||
        !CHECK_EQUAL(hvmem_ident_init(metal_pages(bytes, METAL_PAGE_BYTES), bytes, &config, &ident),
                     HVMEM_OK))
        return 0;
    bytes = hvmem_space_size(ident);
    return CHECK_EQUAL(
        hvmem_space_create(ident, metal_pages(bytes, METAL_PAGE_BYTES), bytes, &of, space),
        HVMEM_OK);
}

/* An empty stage 2, which the guest runs on from now on, with all but its pages mapped one to one. */
static int tables_make(struct hvmem_domain *domain, struct hvmem_space *space)
{
    const struct hvmem_stage2_config config = {.size = sizeof config,
                                               .format = HVMEM_S2_NPT,
                                               .input_bits = 40,
                                               .start_level = HVMEM_S2_LEVEL_AUTO,
                                               .output_bits = 40,
                                               .largest = 9,
                                               .node = HVMEM_NODE_ANY,
                                               .heap = heap.heap,
                                               .domain = domain,
                                               .space = space};
    hvmem_size bytes = 0;
    void *memory;
    hvmem_u64 root = 0;

    if (!CHECK_EQUAL(hvmem_stage2_size(&config, &bytes), HVMEM_OK))
        return 0;
    memory = metal_pages(bytes, METAL_PAGE_BYTES);
    if (!CHECK(memory != NULL) ||
        !CHECK_EQUAL(hvmem_stage2_init(memory, bytes, &config, &s2), HVMEM_OK))
        return 0;
    if (!map(0, 1ull << (30 - METAL_PAGE_SHIFT)))
        return 0;
    CHECK_EQUAL(hvmem_stage2_unmap(s2, first, PAGES, NULL, NULL), HVMEM_OK);
    CHECK_EQUAL(hvmem_stage2_root(s2, 0, &root), HVMEM_OK);
    *vmcb64(guest.vmcb, VMCB_NESTED_CR3) = root;
    return 1;
}

/* ---- first touch ---- */

static struct hvmem_backend_ops ops;
static hvmem_status (*machine_zero)(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes);

static hvmem_status spy_zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    zeroed++;
    return scrubs ? machine_zero(be, addr, bytes) : HVMEM_OK;
}

static struct hvmem_domain *domain_make(hvmem_u32 id)
{
    const struct hvmem_domain_config config = {.size = sizeof config, .id = id, .limit = ~0ull};
    const hvmem_size bytes = hvmem_domain_size(heap.heap);
    struct hvmem_domain *domain = NULL;

    CHECK_EQUAL(hvmem_domain_create(heap.heap, metal_pages(bytes, METAL_PAGE_BYTES), bytes, &config,
                                    &domain),
                HVMEM_OK);
    return domain;
}

/* All memory but what the secrets are in, so that the guest gets that. */
static struct held {
    hvmem_mfn mfn;
    hvmem_order order;
} held[1024];
static unsigned held_count;

static void hold_others(void)
{
    struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY, .order = 18};

    while (held_count < sizeof held / sizeof held[0]) {
        held[held_count].order = request.order;
        if (hvmem_alloc(heap.heap, &request, &held[held_count].mfn) == HVMEM_OK)
            held_count++;
        else if (request.order-- == 0)
            break;
    }
    CHECK(held_count < sizeof held / sizeof held[0]);
}

static void release_others(void)
{
    for (; held_count > 0; held_count--)
        CHECK_EQUAL(hvmem_free(heap.heap, held[held_count - 1].mfn, held[held_count - 1].order),
                    HVMEM_OK);
}

static void leave_secrets(struct hvmem_domain *earlier)
{
    const struct hvmem_request request = {
        .size = sizeof request, .node = HVMEM_NODE_ANY, .domain = earlier};
    hvmem_mfn mfn[PAGES];

    for (unsigned i = 0; i < PAGES; i++) {
        uint64_t *words;

        CHECK_EQUAL(hvmem_alloc(heap.heap, &request, &mfn[i]), HVMEM_OK);
        words = metal_frame(mfn[i] << METAL_PAGE_SHIFT);
        for (unsigned w = 0; w < METAL_PAGE_BYTES / 8; w++)
            words[w] = SECRET;
    }
    hold_others();
    for (unsigned i = 0; i < PAGES; i++)
        CHECK_EQUAL(hvmem_free_owned(heap.heap, mfn[i], 0, earlier, HVMEM_OWES_SCRUB), HVMEM_OK);
}

static struct hvmem_extent extents[PAGES];

static void populate(struct hvmem_domain *domain)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    const struct hvmem_populate request = {
        .size = sizeof request, .extents = extents, .count = PAGES, .node = HVMEM_NODE_ANY};
    hvmem_status status;

    for (unsigned i = 0; i < PAGES; i++)
        extents[i] = (struct hvmem_extent){.gfn = first + i, .flags = HVMEM_EXTENT_FIRST_TOUCH};
    do
        status = hvmem_domain_populate(domain, &request, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQUAL(status, HVMEM_OK);
    for (unsigned i = 0; i < PAGES; i++)
        CHECK_EQUAL(*(uint64_t *)metal_frame(extents[i].mfn << METAL_PAGE_SHIFT), SECRET);
}

static void give_back(struct hvmem_domain *domain)
{
    CHECK_EQUAL(hvmem_stage2_unmap(s2, first, PAGES, NULL, NULL), HVMEM_OK);
    for (unsigned i = 0; i < PAGES; i++)
        CHECK_EQUAL(hvmem_free_owned(heap.heap, extents[i].mfn, 0, domain, 0), HVMEM_OK);
}

static void check_first_touch(void)
{
    struct hvmem_domain *earlier = domain_make(1), *domain = domain_make(2);
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    struct hvmem_domain_ops tables;
    struct hvmem_space *space;
    hvmem_status status;

    if (earlier == NULL || domain == NULL || !space_make(&space) || !tables_make(domain, space))
        return;
    hvmem_stage2_ops(&tables);
    CHECK_EQUAL(hvmem_domain_attach(domain, &tables, s2, space), HVMEM_OK);
    for (scrubs = 0; scrubs <= 1; scrubs++) {
        leave_secrets(earlier);
        populate(domain);
        release_others();
        zeroed = 0;
        for (unsigned i = 0; i < PAGES; i++) {
            CHECK(run(i, i + 1, 0));
            CHECK_EQUAL(faults, 1);
            CHECK_EQUAL(seen, scrubs ? 0 : SECRET);
            CHECK_EQUAL(zeroed, i + 1);
        }
        CHECK(run(0, PAGES, 1));
        CHECK_EQUAL(faults, 0);
        give_back(domain);
    }
    do
        status = hvmem_domain_teardown(domain, 0, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQUAL(status, HVMEM_OK);
    metal_printf(
        "npt: first touch: the secret of %u pages read where scrubbing is suppressed, of 0 "
        "else\n",
        PAGES);
}

static int npt(void)
{
    const struct hvmem_x86_config config = {.size = sizeof config,
                                            .flags = HVMEM_X86_SVM | HVMEM_X86_SVM_ENTRY_FLUSH};
    void *pages = metal_pages(PAGES * METAL_PAGE_BYTES, PAGES * METAL_PAGE_BYTES);
    struct hvmem_space *space;
    const struct metal_heap_options options = {
        .backend = &backend, .max_domains = 2, .lock_regime = HVMEM_LOCK_PLAIN};

    if (!CHECK_EQUAL(hvmem_x86_init(&x86, &backend, &config), HVMEM_OK) || !CHECK(pages != NULL))
        return check_result();
    ops = *backend.ops;
    machine_zero = ops.zero;
    ops.zero = spy_zero;
    backend.ops = &ops;
    scrubs = 1;
    first = metal_maddr(pages) >> METAL_PAGE_SHIFT;
    if (!CHECK_EQUAL(metal_heap_boot(&heap, &options), HVMEM_OK) ||
        !CHECK_EQUAL(metal_svm_guest_make(&guest, touch, NULL), METAL_OK))
        return check_result();
    if (space_make(&space) && tables_make(NULL, space)) {
        for (unsigned i = 0; i < PAGES; i++)
            (void)map(first + i, 1);
        check_tracking();
        check_refusals();
    }
    check_first_touch();
    CHECK_EQUAL(heap.host.reports, 0);
    metal_svm_guests_end();
    return check_result();
}

METAL_PROGRAM(npt, npt);
