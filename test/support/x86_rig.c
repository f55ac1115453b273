/* SPDX-License-Identifier: BSD-2-Clause */
/* An x86 back-end on a recorder; see x86_rig.h. */
#include "x86_rig.h"
#include "test_main.h"

#include <string.h>

#define EPTP 0x5501eull /* write-back, four levels */

static void set_ids(struct x86_rig *r, uint32_t flags)
{
    struct hvmem_x86_ids *ids = &r->ids;

    memset(ids, 0, sizeof(*ids));
    ids->vendor = 0x68747541;
    ids->leaf1_eax = 0xa00f10;
    ids->leaf1_ebx = 8 << 8;
    ids->leaf1_ecx = 1u << 17 | (flags & F_VMX ? 1u << 5 : 0);
    ids->leaf1_edx = 1u << 13 | 1u << 19;
    ids->leaf7_ebx = 1u << 23 | (flags & F_INVPCID ? 1u << 10 : 0);
    if (flags & F_INVLPGB) {
        ids->ext8_ebx = 1u << 3 | 1u << 21;
        ids->ext8_edx = 7;
    }
    if (flags & F_SVM) {
        ids->exta_ebx = 32768;
        ids->exta_edx = 1u << 6;
    }
    if (flags & F_VMX)
        ids->ept_vpid_cap = 1ull << 20 | 1ull << 25 | 1ull << 26 | 0x70100000000;
}

void x86_rig_setup(struct x86_rig *r, uint32_t flags)
{
    r->flags = flags;
    hvmem_record_init(&r->log, r->events, X86_RIG_EVENTS);
    set_ids(r, flags);
    memset(&r->config, 0, sizeof(r->config));
    r->config.size = sizeof(r->config);
    r->config.flags = (flags & F_VMX ? HVMEM_X86_VMX : 0) | (flags & F_SVM ? HVMEM_X86_SVM : 0) |
                      (flags & F_USER ? HVMEM_X86_USER : 0);
    r->config.quirks_set = (flags & F_GLOBALS ? HVMEM_QUIRK_INVLPG_GLOBAL : 0) |
                           (flags & F_SUPER ? HVMEM_QUIRK_FLUSH_SUPERPAGE : 0);
    r->config.ids = &r->ids;
    r->config.machine = &r->log;
    r->judged.log = &r->log;
    r->judged.flush = &r->flush;
    r->judged.cr4 = 0x20 | (flags & F_PGE ? 1u << 7 : 0) | (flags & F_PCIDE ? 1u << 17 : 0);
    r->judged.cr3 = 0x123000 | (flags & F_PCIDE ? (flags & F_CURRENT ? 5 : 6) : 0);
    r->judged.invlpgb_pages = flags & F_INVLPGB ? 8 : 0;
    r->judged.has_invpcid = flags & F_INVPCID ? 1 : 0;
    r->judged.misses_globals = flags & F_GLOBALS ? 1 : 0;
    hvmem_record_set(&r->log, HVMEM_X86_REG_CR3, 0, r->judged.cr3);
    hvmem_record_set(&r->log, HVMEM_X86_REG_CR4, 0, r->judged.cr4);
    REQUIRE_EQ(hvmem_x86_init(&r->m, &r->be, &r->config), HVMEM_OK);
    memset(&r->flush, 0, sizeof(r->flush));
    r->flush.size = sizeof(r->flush);
    r->flush.ranges = r->ranges;
}

void x86_rig_ask(struct x86_rig *r, uint32_t what, uint32_t scope, uint32_t regime)
{
    r->flush.what = (uint16_t)what;
    r->flush.scope = (uint16_t)scope;
    r->flush.space.regime = regime;
    r->flush.space.id = 5;
    /* The whole matrix asks for what exists: without PCIDE there is PCID 0. */
    if (regime == HVMEM_REGIME_USER && !(r->flags & F_PCIDE))
        r->flush.space.id = 0;
    r->flush.space.root = EPTP;
}

hvmem_status x86_rig_go(struct x86_rig *r)
{
    hvmem_record_clear(&r->log);
    return r->be.ops->tlb_flush(&r->be, &r->flush);
}

static int kind_of(const struct x86_rig *r)
{
    switch (r->flush.space.regime) {
    case HVMEM_REGIME_STAGE2:
        return r->flags & F_SVM ? X86_NESTED : X86_EPT;
    case HVMEM_REGIME_GUEST:
        return r->flags & F_SVM ? X86_GUEST : X86_VPID;
    default:
        return X86_HOST;
    }
}

/* Entries may be global only where CR4.PGE is 1. */
static int globals(const struct x86_rig *r)
{
    return (r->judged.cr4 >> 7 & 1) || kind_of(r) != X86_HOST;
}

/* The variants of one entry: as it is, in other PCIDs, global, as a cached walk. */
static int variants_gone(const struct x86_rig *r, struct x86_entry e, int other, int global,
                         int table)
{
    int ok = x86_removes(&r->judged, &e);

    if (table) {
        e.table = 1;
        ok &= x86_removes(&r->judged, &e);
    }
    if (other) {
        e.pcid = 77;
        ok &= x86_removes(&r->judged, &e);
    }
    if (global && globals(r)) {
        e.table = 0;
        e.global = 1;
        ok &= x86_removes(&r->judged, &e);
    }
    return ok;
}

static int range_gone(const struct x86_rig *r, const struct hvmem_tlb_range *range)
{
    struct x86_entry e = {.kind = kind_of(r), .tag = 5, .root = EPTP};
    uint32_t shift = range->stride_shift ? range->stride_shift : 12;
    uint64_t page;
    int pcids = (r->judged.cr4 >> 17 & 1) != 0, host = r->flush.space.regime == HVMEM_REGIME_HOST;
    int only_global = host && (range->flags & HVMEM_RANGE_GLOBAL) && globals(r);
    int ok = 1;

    e.pcid = host && pcids ? (uint32_t)(r->judged.cr3 & 0xfff) : r->flush.space.id;
    e.bytes = 1ull << shift;
    for (page = 0; page < range->pages && ok; page++) {
        e.base = (range->start + (page << 12)) >> shift << shift;
        ok = variants_gone(r, e, pcids && host && !only_global,
                           range->flags & HVMEM_RANGE_GLOBAL || e.kind == X86_VPID,
                           !(range->flags & HVMEM_RANGE_LEAF));
    }
    return ok;
}

/* Whole forms: an arbitrary entry of everything they name. */
static int whole_gone(const struct x86_rig *r)
{
    struct x86_entry e = {
        .kind = kind_of(r), .tag = 5, .root = EPTP, .base = 0x5555000, .bytes = 4096};
    int pcids = (r->judged.cr4 >> 17 & 1) != 0;
    int host = r->flush.space.regime == HVMEM_REGIME_HOST;
    int wide = r->flush.what == HVMEM_FLUSH_REGIME;
    int ok;

    e.pcid = r->flush.space.regime == HVMEM_REGIME_USER ? r->flush.space.id : 0;
    if (r->flush.what != HVMEM_FLUSH_ALL) {
        if (wide)
            e.tag = 9, e.root = EPTP + 0x1000;
        return variants_gone(r, e, pcids && (host || wide), host || e.kind != X86_HOST, 1);
    }
    e.kind = X86_HOST;
    ok = variants_gone(r, e, pcids, (r->judged.cr4 >> 7 & 1) != 0, 1);
    for (e.kind = X86_VPID; e.kind <= X86_NESTED; e.kind++)
        if (r->flags & (e.kind <= X86_EPT ? F_VMX : F_SVM))
            ok &= variants_gone(r, e, 1, 1, 1);
    return ok;
}

int x86_rig_all_gone(const struct x86_rig *r)
{
    uint32_t i;

    if (r->flush.what != HVMEM_FLUSH_RANGES)
        return whole_gone(r);
    for (i = 0; i < r->flush.count; i++)
        if (!range_gone(r, &r->ranges[i]))
            return 0;
    return 1;
}
