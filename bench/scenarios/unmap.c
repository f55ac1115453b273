/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of the unmap of a guest's memory on arm64: TLB operations that the back-end issues (its
 * recording build), entry by entry as the reports did it, and by the library: hvmem_stage2_unmap() of
 * real tables, its gather, the range policy. Each count is of a run whose operations were seen to cover
 * exactly what was unmapped.
 */
#include "guest_tables.h"

#include "bench/common/figure.h"

#include <hvmem/arm64.h>
#include <hvmem/record.h>

#include <stdint.h>
#include <string.h>

#define EVENTS 8192u
#define GIB    (1ull << 30)
#define GUEST  (192 * GIB) /* of the reports */
#define VMID   9u
#define VTTBR  0xd53c2100u
#define PAGE   12u

struct machine {
    struct hvmem_record log;
    struct hvmem_record_event events[EVENTS];
    struct hvmem_arm64_ids ids;
    struct hvmem_arm64 arm64;
    struct hvmem_backend be;
};

struct counts {
    uint64_t pages;    /* by single-page operations by IPA */
    uint64_t ranges;   /* range operations by IPA */
    uint64_t stage1;   /* VMALLE1, which each batch by IPA needs */
    uint64_t whole;    /* VMALLS12E1 */
    uint64_t barriers; /* DSB */
    uint64_t next;     /* IPA up to which everything is covered; ~0: not in order */
};

static void start(struct machine *m, int ranges)
{
    struct hvmem_arm64_config config = {.size = sizeof config, .level = HVMEM_ARM64_EL2};

    memset(m, 0, sizeof *m);
    hvmem_record_init(&m->log, m->events, EVENTS);
    hvmem_record_set(&m->log, VTTBR, 0, (uint64_t)VMID << 48 | 0x80001000);
    m->ids.midr = 0x410fd0a0; /* a part without errata */
    m->ids.ctr = 3u << 14 | 4u << 16 | 4;
    m->ids.isar0 = (ranges ? 2ull : 1ull) << 56;
    m->ids.mmfr0 = 2 << 4;
    m->ids.mmfr1 = 2 << 4;
    config.ids = &m->ids;
    config.machine = &m->log;
    FIGURE_REQUIRE(hvmem_arm64_init(&m->arm64, &m->be, &config) == HVMEM_OK);
}

/* A by-IPA operation covers [base, base + pages) in units of 4 KiB, in rising order. */
static void cover(struct counts *counts, uint64_t base, uint64_t pages)
{
    if (counts->next != base << PAGE)
        counts->next = ~0ull;
    else
        counts->next += pages << PAGE;
}

/* Arm ARM C5.5: TLBI is sys #op1, c8, CRm, #op2; the forms by IPA have op1 = 4 and CRm 0 or 4. */
static void count_event(struct counts *counts, const struct hvmem_record_event *event,
                        uint64_t stride)
{
    unsigned op1 = event->code >> 16 & 7, crn = event->code >> 12 & 15, crm = event->code >> 8 & 15;
    unsigned op2 = event->code >> 5 & 7;
    uint64_t x = event->operand[0];

    if ((event->code & 0xfffff0ffu) == 0xd503309fu) {
        counts->barriers++;
    } else if ((event->code & 0xfff80000u) != 0xd5080000u || crn != 8) {
        return;
    } else if (op1 == 4 && crm == 0 && (op2 == 2 || op2 == 6)) {
        counts->ranges++;
        cover(counts, x & 0x1fffffffffu, ((x >> 39 & 31) + 1) << (5 * (x >> 44 & 3) + 1));
    } else if (op1 == 4 && crm == 0) {
        counts->pages++;
        cover(counts, x & 0xfffffffffu, stride);
    } else if (op1 == 4 && crm == 3 && op2 == 6) {
        counts->whole++;
    } else {
        counts->stage1++;
    }
}

/* What was recorded since the log was cleared, of leaves of 2^shift bytes. */
static void count_log(const struct machine *m, struct counts *counts, unsigned shift)
{
    unsigned i;

    FIGURE_REQUIRE(m->log.lost == 0);
    for (i = 0; i < m->log.count; i++)
        count_event(counts, &m->events[i], 1ull << (shift - PAGE));
}

/* The invalidation of one entry of 2^shift bytes. */
static void flush(struct machine *m, struct counts *counts, uint64_t ipa, unsigned shift)
{
    struct hvmem_tlb_range range = {.start = ipa, .pages = 1ull << (shift - PAGE)};
    struct hvmem_tlb_flush flush = {.size = sizeof flush, .scope = HVMEM_SCOPE_INNER};

    range.stride_shift = (hvmem_u8)shift;
    range.level = (hvmem_u8)(3 - (shift - PAGE) / 9);
    range.flags = HVMEM_RANGE_LEAF;
    flush.space.regime = HVMEM_REGIME_STAGE2;
    flush.space.id = VMID;
    flush.space.root = 0x80001000;
    flush.ranges = &range;
    flush.count = 1;
    hvmem_record_clear(&m->log);
    FIGURE_REQUIRE(m->be.ops->tlb_flush(&m->be, &flush) == HVMEM_OK);
    count_log(m, counts, shift);
}

/* The reports: an invalidation with its barriers for each entry, one GiB of them. */
static struct counts by_entry(unsigned shift)
{
    static struct machine m;
    struct counts counts = {.next = GIB};
    uint64_t ipa;

    start(&m, 0);
    for (ipa = GIB; ipa < 2 * GIB; ipa += 1ull << shift)
        flush(&m, &counts, ipa, shift);
    FIGURE_REQUIRE(counts.next == 2 * GIB && counts.whole == 0);
    return counts;
}

static uint64_t operations(const struct counts *counts)
{
    return counts->pages + counts->ranges + counts->stage1 + counts->whole;
}

/*
 * A guest has `mapped` bytes in entries of 2^shift; `bytes` of them from `ipa` on are unmapped in one
 * call. Walkers see the tables without a clean of data caches: only what the TLBs cost is recorded.
 */
static struct counts unmap(uint64_t mapped, unsigned shift, uint64_t ipa, uint64_t bytes,
                           int ranges)
{
    static struct machine m;
    struct counts counts = {.next = ipa};
    struct guest_tables rig;
    hvmem_u64 done;

    start(&m, ranges);
    m.be.caps.dline = 0;
    guest_tables_open_on(&rig, shift - PAGE, &m.be);
    guest_tables_map(&rig, 0, mapped >> PAGE, 0);
    guest_tables_run(&rig);
    hvmem_record_clear(&m.log);
    FIGURE_REQUIRE(hvmem_stage2_unmap(rig.s2, ipa >> PAGE, bytes >> PAGE, NULL, &done) ==
                       HVMEM_OK &&
                   done == bytes >> PAGE);
    count_log(&m, &counts, shift);
    FIGURE_REQUIRE(counts.whole == 1 || counts.next == ipa + bytes);
    guest_tables_close(&rig);
    return counts;
}

FIGURE(unmap_tlbi_before, "unmap.tlbi_before", "TLBI/GiB",
       "unmap of stage 2 in 4 KiB entries, an invalidation each, as the reports did (recorded)")
{
    struct counts small = by_entry(12), medium = by_entry(21), large = by_entry(30);

    figure_comment("by entry, a GiB: 4 KiB %llu TLBI and %llu DSB, 2 MiB %llu and %llu, 1 GiB %llu "
                   "and %llu",
                   (unsigned long long)operations(&small), (unsigned long long)small.barriers,
                   (unsigned long long)operations(&medium), (unsigned long long)medium.barriers,
                   (unsigned long long)operations(&large), (unsigned long long)large.barriers);
    return (double)operations(&small);
}

FIGURE(unmap_tlbi_after, "unmap.tlbi_after", "TLBI/GiB",
       "1 GiB of 4 KiB entries unmapped by hvmem_stage2_unmap(): operations by IPA (recorded)")
{
    static const unsigned shifts[] = {30, 21, 12};
    struct counts gib = {.next = 0}, without = gib, guest, one;
    unsigned i;

    for (i = 0; i < 3; i++) {
        gib = unmap(2 * GIB, shifts[i], GIB, GIB, 1);
        without = unmap(2 * GIB, shifts[i], GIB, GIB, 0);
        figure_comment("1 GiB in entries of %llu KiB: %llu by IPA (%llu range), %llu VMALLE1, %llu "
                       "DSB; without range operations %llu by IPA, %llu whole-VM",
                       1ull << (shifts[i] - 10), (unsigned long long)(gib.ranges + gib.pages),
                       (unsigned long long)gib.ranges, (unsigned long long)gib.stage1,
                       (unsigned long long)gib.barriers, (unsigned long long)without.pages,
                       (unsigned long long)without.whole);
        FIGURE_REQUIRE(gib.ranges + gib.pages == 1 && gib.stage1 == 1 && gib.whole == 0);
    }
    FIGURE_REQUIRE(without.whole == 1 && operations(&without) == 1);
    guest = unmap(GUEST, 21, 0, GUEST, 1);
    FIGURE_REQUIRE(guest.whole == 1 && operations(&guest) == 1);
    one = unmap(GIB, 12, GIB / 2, 1ull << PAGE, 1);
    FIGURE_REQUIRE(one.pages == 1 && one.stage1 == 1 && one.ranges == 0 && one.whole == 0);
    figure_comment("192 GiB in one call: %llu whole-VM; one page: %llu by IPA, %llu VMALLE1",
                   (unsigned long long)guest.whole, (unsigned long long)one.pages,
                   (unsigned long long)one.stage1);
    return (double)(gib.ranges + gib.pages);
}
