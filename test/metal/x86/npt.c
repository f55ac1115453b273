/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * npt: the library's nested page tables under a real guest (AMD SVM). Access tracking: nothing faults
 * before it is armed, then each page once, and the pages counted as touched are those the guest read
 * or wrote; a page that was unmapped, or made read-only, faults for good. First touch: frames with an
 * earlier owner's secret are scrubbed by the fault, which the guest shows by finding it where scrubbing is
 * claimed and not executed. Each entry flushes everything, as QEMU does by itself: what an entry owes
 * is guest_ids' subject.
 */
#include "hosts/metal/x86/svm_vmcb.h"
#include "test/metal/check.h"
#include "test/metal/x86/nested.h"

#include <hvmem/populate.h>
#include <hvmem/track.h>

#define PAGES     NESTED_PAGES
#define EXIT_NPF  0x400u
#define NPF_WRITE (1u << 1) /* APM vol. 2 15.25.6: the page-fault error code */
#define NPF_FETCH (1u << 4)
#define FLUSH_ALL 1u /* TLB_CONTROL */
#define SECRET    0x5EC4E75EC4E75EC4ull

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
        volatile uint64_t *word = metal_frame((nested.first + i) << METAL_PAGE_SHIFT);

        if (job->writes)
            *word = i;
        else
            for (unsigned w = 0; w < METAL_PAGE_BYTES / 8; w++)
                seen |= word[w];
    }
}

static void take_fault(void)
{
    const uint64_t info = *vmcb64(nested.guest.vmcb, VMCB_EXIT_INFO1);
    const uint64_t gpa = *vmcb64(nested.guest.vmcb, VMCB_EXIT_INFO2);
    const uint32_t access = info & NPF_FETCH   ? HVMEM_S2_X
                            : info & NPF_WRITE ? HVMEM_S2_W
                                               : HVMEM_S2_R;

    faults += (gpa >> METAL_PAGE_SHIFT) - nested.first < PAGES;
    CHECK_EQUAL(hvmem_stage2_fault(nested.s2, gpa, access, &outcome), HVMEM_OK);
}

/* 1: the guest did its job; 0: it faulted and the library has nothing to repair. */
static int run(unsigned from, unsigned to, int writes)
{
    static struct job job;
    uint64_t exit = 0;

    job = (struct job){from, to, writes};
    faults = 0;
    seen = 0;
    metal_svm_guest_call(&nested.guest, touch, &job);
    for (unsigned turns = 0; turns < 10000; turns++) {
        const uint64_t irq = metal_irq_save();

        metal__vmcb_copy_cpu(nested.guest.vmcb);
        *vmcb32(nested.guest.vmcb, VMCB_ASID) = 1;
        nested.guest.vmcb[VMCB_TLB_CONTROL] = FLUSH_ALL;
        metal__svm_enter((uintptr_t)nested.guest.vmcb, nested.guest.regs);
        exit = *vmcb64(nested.guest.vmcb, VMCB_EXIT_CODE);
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

    CHECK_EQUAL(hvmem_track_age(nested.s2, nested.first, PAGES, 0, &frames), HVMEM_OK);
    return frames;
}

static void arm(void)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status;

    while ((status = hvmem_track_arm(nested.s2, &cursor)) == HVMEM_AGAIN)
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
    CHECK_EQUAL(hvmem_stage2_unmap(nested.s2, nested.first + 3, 1, NULL, NULL), HVMEM_OK);
    CHECK(run(0, 3, 1) && !run(3, 4, 0));
    CHECK_EQUAL(outcome, HVMEM_FAULT_UNMAPPED);
    CHECK_EQUAL(hvmem_stage2_protect(nested.s2, nested.first + 5, 1, HVMEM_S2_R, NULL, NULL),
                HVMEM_OK);
    CHECK(run(5, 6, 0) && !run(5, 6, 1));
    CHECK_EQUAL(outcome, HVMEM_FAULT_RIGHTS);
    CHECK_EQUAL(hvmem_stage2_protect(nested.s2, nested.first + 5, 1, HVMEM_S2_RWX, NULL, NULL),
                HVMEM_OK);
    CHECK(run(5, 6, 1));
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
    const hvmem_size bytes = hvmem_domain_size(nested.heap.heap);
    struct hvmem_domain *domain = NULL;

    CHECK_EQUAL(hvmem_domain_create(nested.heap.heap, metal_pages(bytes, METAL_PAGE_BYTES), bytes,
                                    &config, &domain),
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
        if (hvmem_alloc(nested.heap.heap, &request, &held[held_count].mfn) == HVMEM_OK)
            held_count++;
        else if (request.order-- == 0)
            break;
    }
    CHECK(held_count < sizeof held / sizeof held[0]);
}

static void release_others(void)
{
    for (; held_count > 0; held_count--)
        CHECK_EQUAL(
            hvmem_free(nested.heap.heap, held[held_count - 1].mfn, held[held_count - 1].order),
            HVMEM_OK);
}

static void leave_secrets(struct hvmem_domain *earlier)
{
    const struct hvmem_request request = {
        .size = sizeof request, .node = HVMEM_NODE_ANY, .domain = earlier};
    hvmem_mfn mfn[PAGES];

    for (unsigned i = 0; i < PAGES; i++) {
        uint64_t *words;

        CHECK_EQUAL(hvmem_alloc(nested.heap.heap, &request, &mfn[i]), HVMEM_OK);
        words = metal_frame(mfn[i] << METAL_PAGE_SHIFT);
        for (unsigned w = 0; w < METAL_PAGE_BYTES / 8; w++)
            words[w] = SECRET;
    }
    hold_others();
    for (unsigned i = 0; i < PAGES; i++)
        CHECK_EQUAL(hvmem_free_owned(nested.heap.heap, mfn[i], 0, earlier, HVMEM_OWES_SCRUB),
                    HVMEM_OK);
}

static struct hvmem_extent extents[PAGES];

static void populate(struct hvmem_domain *domain)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    const struct hvmem_populate request = {
        .size = sizeof request, .extents = extents, .count = PAGES, .node = HVMEM_NODE_ANY};
    hvmem_status status;

    for (unsigned i = 0; i < PAGES; i++)
        extents[i] =
            (struct hvmem_extent){.gfn = nested.first + i, .flags = HVMEM_EXTENT_FIRST_TOUCH};
    do
        status = hvmem_domain_populate(domain, &request, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQUAL(status, HVMEM_OK);
    for (unsigned i = 0; i < PAGES; i++)
        CHECK_EQUAL(*(uint64_t *)metal_frame(extents[i].mfn << METAL_PAGE_SHIFT), SECRET);
}

static void give_back(struct hvmem_domain *domain)
{
    CHECK_EQUAL(hvmem_stage2_unmap(nested.s2, nested.first, PAGES, NULL, NULL), HVMEM_OK);
    for (unsigned i = 0; i < PAGES; i++)
        CHECK_EQUAL(hvmem_free_owned(nested.heap.heap, extents[i].mfn, 0, domain, 0), HVMEM_OK);
}

static void check_first_touch(void)
{
    struct hvmem_domain *earlier = domain_make(1), *domain = domain_make(2);
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    struct hvmem_domain_ops tables;
    hvmem_status status;

    if (earlier == NULL || domain == NULL || !CHECK(nested_tables(NULL, domain)))
        return;
    hvmem_stage2_ops(&tables);
    CHECK_EQUAL(hvmem_domain_attach(domain, &tables, nested.s2, nested.space), HVMEM_OK);
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
    if (!CHECK(nested_make(touch)))
        return check_result();
    ops = *nested.backend.ops;
    machine_zero = ops.zero;
    ops.zero = spy_zero;
    nested.backend.ops = &ops;
    scrubs = 1;
    if (CHECK(nested_tables(NULL, NULL))) {
        for (unsigned i = 0; i < PAGES; i++)
            CHECK(nested_map(nested.first + i, 1));
        check_tracking();
        check_refusals();
    }
    check_first_touch();
    CHECK_EQUAL(nested.heap.host.reports, 0);
    metal_svm_guests_end();
    return check_result();
}

METAL_PROGRAM(npt, npt);
