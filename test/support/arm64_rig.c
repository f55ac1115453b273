/* SPDX-License-Identifier: BSD-2-Clause */
/* An arm64 back-end on a recorder; see arm64_rig.h. */
#include "arm64_rig.h"
#include "coverage.h"
#include "test_main.h"

#include <string.h>

/* MRS words, see the register list of the architecture. */
static void set_registers(struct arm64_rig *r, uint32_t flags, uint32_t level)
{
    int vhe = level == HVMEM_ARM64_VHE;

    r->judged.vttbr = (flags & F_SAME ? 0x55ull : 0x11ull) << 48 | 0x80001000;
    r->judged.hcr = vhe ? 1ull << 34 | 1ull << 27 : 1ull << 31;
    r->judged.tcr = 0x5510;
    r->judged.sctlr = 0x30d00800; /* stage 1 off */
    r->judged.daif = 0x80;
    hvmem_record_set(&r->log, 0xd53c2100, 0, r->judged.vttbr);
    hvmem_record_set(&r->log, 0xd53c1100, 0, r->judged.hcr);
    hvmem_record_set(&r->log, vhe ? 0xd53d2040 : 0xd5382040, 0, r->judged.tcr);
    hvmem_record_set(&r->log, vhe ? 0xd53d1000 : 0xd5381000, 0, r->judged.sctlr);
    hvmem_record_set(&r->log, 0xd53b4220, 0, r->judged.daif);
}

void rig_setup(struct arm64_rig *r, uint32_t level, uint32_t flags, uint32_t page_shift)
{
    hvmem_record_init(&r->log, r->events, ARM64_RIG_EVENTS);
    set_registers(r, flags, level);
    memset(&r->ids, 0, sizeof(r->ids));
    r->ids.midr = 0x410fd0a0; /* a part without errata */
    r->ids.ctr = 3u << 14 | 4u << 16 | 4;
    r->ids.isar0 = (flags & F_RANGE ? 2ull : flags & F_OUTER ? 1ull : 0) << 56;
    r->ids.mmfr0 = 2 << 4;
    r->ids.mmfr1 = 2 << 4;
    r->ids.mmfr2 = (flags & F_TTL ? 1ull : 0) << 48;
    memset(&r->config, 0, sizeof(r->config));
    r->config.size = sizeof(r->config);
    r->config.level = level;
    r->config.page_shift = page_shift;
    if (flags & F_LPA2)
        r->config.flags = HVMEM_ARM64_LPA2_STAGE1 | HVMEM_ARM64_LPA2_STAGE2;
    r->config.quirks_set = (flags & F_REPEAT ? HVMEM_QUIRK_REPEAT_TLBI : 0) |
                           (flags & F_AT ? HVMEM_QUIRK_SPECULATIVE_AT : 0);
    r->config.ids = &r->ids;
    r->config.machine = &r->log;
    REQUIRE_EQ(hvmem_arm64_init(&r->m, &r->be, &r->config), HVMEM_OK);
    r->judged.log = &r->log;
    r->judged.flush = &r->flush;
    r->judged.level = level;
    r->judged.quirks = r->be.caps.quirks;
    memset(&r->flush, 0, sizeof(r->flush));
    r->flush.size = sizeof(r->flush);
    r->flush.ranges = r->ranges;
}

void rig_ask(struct arm64_rig *r, uint32_t what, uint32_t scope, uint32_t regime)
{
    r->flush.what = (uint16_t)what;
    r->flush.scope = (uint16_t)scope;
    r->flush.space.regime = regime;
    r->flush.space.id = 0x55;
    r->flush.space.root = 0x90002000;
    /* A guest's granule is not the back-end's business: no range form there. */
    r->judged.lpa2 = r->config.flags != 0 && regime != HVMEM_REGIME_GUEST;
}

hvmem_status rig_go(struct arm64_rig *r)
{
    hvmem_record_clear(&r->log);
    return r->be.ops->tlb_flush(&r->be, &r->flush);
}

struct arm64_entry rig_entry_of(const struct arm64_rig *r, uint64_t addr, uint32_t shift)
{
    struct arm64_entry e = {.vmid = 0x55, .asid = 0x55, .level = 3};
    uint32_t level = r->config.level, regime = r->flush.space.regime;

    e.base = addr >> shift << shift;
    e.bytes = 1ull << shift;
    if (r->config.page_shift == 12)
        e.level = shift >= 30 ? 1 : shift >= 21 ? 2 : 3;
    e.regime = ARM64_EL10;
    if (regime == HVMEM_REGIME_STAGE2)
        e.regime = ARM64_S2;
    if ((regime == HVMEM_REGIME_HOST && level != HVMEM_ARM64_EL1) ||
        (regime == HVMEM_REGIME_USER && level == HVMEM_ARM64_VHE))
        e.regime = ARM64_EL2_REGIME;
    /* Without a switch stage 1 belongs to the VMID in force. */
    if (regime <= HVMEM_REGIME_USER)
        e.vmid = (uint32_t)(r->judged.vttbr >> 48);
    return e;
}

/* Everything the request asks for and that a CPU may hold in one entry at addr is gone. */
static int entry_gone(const struct arm64_rig *r, const struct hvmem_tlb_range *range, uint64_t addr,
                      uint32_t shift)
{
    struct arm64_entry e = rig_entry_of(r, addr, shift);
    int ok = arm64_removes(&r->judged, &e);

    e.global = 1;
    if (r->flush.space.regime != HVMEM_REGIME_STAGE2)
        ok &= arm64_removes(&r->judged, &e);
    e.table = !(range->flags & HVMEM_RANGE_LEAF);
    return ok & arm64_removes(&r->judged, &e);
}

/* The same for a page of the back-end; second stages and guests have pages of 4 KiB. */
static int gone(const struct arm64_rig *r, const struct hvmem_tlb_range *range, uint64_t addr)
{
    struct arm64_entry both = {.regime = ARM64_EL10, .vmid = 0x55, .asid = 3, .level = 3};
    uint32_t shift = range->stride_shift ? range->stride_shift : r->config.page_shift;
    uint64_t end = addr + (1ull << r->config.page_shift);
    int ok = 1;

    if (r->flush.space.regime < HVMEM_REGIME_STAGE2 || range->stride_shift)
        return entry_gone(r, range, addr, shift);
    for (; addr != end; addr += 4096)
        ok &= entry_gone(r, range, addr, 12);
    both.base = 0x123456789000; /* both stages combined, at any VA */
    both.bytes = 4096;
    return ok && (r->flush.space.regime == HVMEM_REGIME_GUEST || arm64_removes(&r->judged, &both));
}

/* FLUSH_ALL: every regime of the level. */
static int whole_gone(const struct arm64_rig *r)
{
    struct arm64_entry e = {
        .vmid = 0x11, .asid = 1, .global = 1, .level = 3, .base = 0x7000, .bytes = 4096};
    int ok;

    if (r->flush.what != HVMEM_FLUSH_ALL)
        return 1;
    e.vmid = (uint32_t)(r->judged.vttbr >> 48);
    e.regime = ARM64_EL10;
    ok = arm64_removes(&r->judged, &e);
    if (r->config.level == HVMEM_ARM64_EL1)
        return ok;
    e.vmid = 0x77;
    ok &= arm64_removes(&r->judged, &e);
    e.regime = ARM64_EL2_REGIME;
    ok &= arm64_removes(&r->judged, &e);
    e.regime = ARM64_S2;
    return ok & arm64_removes(&r->judged, &e);
}

/* All pages of all ranges, or about 64 of each. */
int rig_all_gone(const struct arm64_rig *r)
{
    uint32_t i;
    uint64_t page, step;

    for (i = 0; i < r->flush.count; i++) {
        const struct hvmem_tlb_range *range = &r->ranges[i];

        step = range->pages > 200 ? range->pages / 64 : 1;
        for (page = 0; page < range->pages; page += step)
            if (!gone(r, range, range->start + (page << r->config.page_shift)))
                return 0;
        if (!gone(r, range, range->start + ((range->pages - 1) << r->config.page_shift)))
            return 0;
    }
    return whole_gone(r);
}

int rig_judge(const struct arm64_rig *r)
{
    const char *broken = arm64_rules_tlb(&r->judged);
    const int gone = rig_all_gone(r);

    if (!CHECK(broken == NULL))
        test_note("rule: %s", broken);
    if (!CHECK(gone))
        test_note("a translation of the ranges is left");
    if (broken == NULL && gone)
        coverage_judged_arm64(&r->log);
    return broken == NULL;
}
