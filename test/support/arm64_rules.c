/* SPDX-License-Identifier: BSD-2-Clause */
/* Rules for recorder logs of arm64; see arm64_rules.h. */
#include "arm64_rules.h"

#include <stddef.h>

#define TGE  (1ull << 27)
#define EPDS (1ull << 7 | 1ull << 23)

enum { W_DAIF, W_VTTBR, W_HCR, W_TCR, W_SCTLR, W_COUNT };

/* MSR words, for E2H = 0 and 1. */
static int written_register(uint32_t word)
{
    switch (word) {
    case 0xd51b4220:
        return W_DAIF;
    case 0xd51c2100:
        return W_VTTBR;
    case 0xd51c1100:
        return W_HCR;
    case 0xd5182040:
    case 0xd51d2040:
        return W_TCR;
    case 0xd5181000:
    case 0xd51d1000:
        return W_SCTLR;
    default:
        return -1;
    }
}

int arm64_decode_tlbi(uint32_t word, struct arm64_tlbi *t)
{
    uint32_t crm = word >> 8 & 15, op2 = word >> 5 & 7;

    if ((word & 0xfff8f000) != 0xd5088000)
        return 0;
    t->op1 = word >> 16 & 7;
    t->op2 = op2;
    t->range = 0;
    switch (crm) {
    case 7:
    case 3:
    case 1:
        t->scope = crm == 7 ? HVMEM_SCOPE_LOCAL : crm == 3 ? HVMEM_SCOPE_INNER : HVMEM_SCOPE_OUTER;
        t->crm = 3;
        return 1;
    case 6:
    case 2:
    case 5:
        t->scope = crm == 6 ? HVMEM_SCOPE_LOCAL : crm == 2 ? HVMEM_SCOPE_INNER : HVMEM_SCOPE_OUTER;
        t->crm = 2;
        t->range = 1;
        return 1;
    case 0:
        t->scope = HVMEM_SCOPE_INNER;
        break;
    case 4: /* local and outer forms of the IPA operations share CRm */
        t->scope =
            op2 == 0 || op2 == 3 || op2 == 4 || op2 == 7 ? HVMEM_SCOPE_OUTER : HVMEM_SCOPE_LOCAL;
        if (t->scope == HVMEM_SCOPE_OUTER)
            t->op2 = op2 == 0 ? 1 : op2 == 3 ? 2 : op2 == 4 ? 5 : 6;
        break;
    default:
        return 0;
    }
    t->crm = 0;
    t->range = t->op2 == 2 || t->op2 == 6;
    return t->op1 == 4;
}

int arm64_decode_range(uint64_t operand, int lpa2, uint64_t *base, uint64_t *bytes)
{
    uint32_t tg = operand >> 46 & 3, scale = operand >> 44 & 3, num = operand >> 39 & 31;

    if (tg == 0)
        return 0;
    *base = (operand & 0x1fffffffff) << (lpa2 ? 16 : 10 + 2 * tg);
    *bytes = (uint64_t)(num + 1) << (5 * scale + 1) << (10 + 2 * tg);
    return 1;
}

/* DSB: domain 0 non-shareable .. 3 full system, or -1; *stores: waits for stores alone. */
static int dsb_domain(uint32_t word, int *stores)
{
    uint32_t crm = word >> 8 & 15;

    if ((word & 0xfffff0ff) != 0xd503309f)
        return -1;
    *stores = (crm & 3) == 2;
    return crm >> 2 == 1 ? 0 : crm >> 2 == 2 ? 1 : crm >> 2 == 0 ? 2 : 3;
}

struct judge {
    const struct arm64_case *c;
    uint64_t reg[W_COUNT];
    uint64_t initial[W_COUNT];
    const char *broken;
    int masked, unsynced, vttbr_unsynced, tcr_unsynced, sctlr_unsynced;
    int dsb_first;
    int pending, groups, group_size;
    int ipa_pending, ipa_done, combined_done;
    int isb_last, hcr_last;
};

static void rule(struct judge *j, int holds, const char *words)
{
    if (!holds && !j->broken)
        j->broken = words;
}

static int guest_request(const struct arm64_case *c)
{
    return (c->flush->what == HVMEM_FLUSH_RANGES || c->flush->what == HVMEM_FLUSH_SPACE) &&
           c->flush->space.regime >= HVMEM_REGIME_STAGE2;
}

static void judge_tlbi(struct judge *j, const struct arm64_tlbi *t)
{
    const struct arm64_case *c = j->c;
    int ipa = t->crm == 0;
    int vmalle1 = t->op1 == 0 && t->op2 == 0 && t->crm == 3;

    rule(j, t->scope == c->flush->scope, "a TLBI has another scope than asked");
    rule(j, j->dsb_first, "no DSB before the first TLBI");
    rule(j, !j->unsynced, "no ISB between a register write and a TLBI");
    if (guest_request(c)) {
        rule(j, j->reg[W_VTTBR] >> 48 == c->flush->space.id, "TLBI under another VMID");
        /* A context switch in between would change the VMID. */
        rule(j, j->masked, "guest TLBI with interrupts on");
        rule(j, c->level != HVMEM_ARM64_VHE || !(j->reg[W_HCR] & TGE), "guest TLBI while TGE is 1");
    }
    rule(j, !vmalle1 || !j->ipa_pending, "VMALLE1 before the IPAS2 operations completed");
    if (vmalle1 && j->ipa_done)
        j->combined_done = 1;
    j->ipa_pending |= ipa;
    j->pending = 1;
    j->group_size++;
}

static void judge_dsb(struct judge *j, int domain, int stores)
{
    int enough = domain >= (int)j->c->flush->scope;

    if (enough && !j->pending && (!stores || !guest_request(j->c)))
        j->dsb_first = 1;
    if (!enough || stores || !j->pending)
        return;
    j->pending = 0;
    j->groups++;
    j->group_size = 0;
    j->ipa_done |= j->ipa_pending;
    j->ipa_pending = 0;
    j->isb_last = 0;
}

static void judge_write(struct judge *j, int reg, uint64_t value)
{
    int guarded = j->c->quirks & HVMEM_QUIRK_SPECULATIVE_AT ? 1 : 0;

    if (reg == W_DAIF) {
        rule(j, j->isb_last, "interrupts on before the ISB");
        j->masked = 0;
        j->reg[reg] = value;
        return;
    }
    rule(j, j->masked, "register written with interrupts on");
    rule(j, !j->pending, "register written before TLBI completed");
    rule(j, j->dsb_first, "register written before the first DSB");
    if (reg == W_VTTBR && guarded && value >> 48 != j->initial[reg] >> 48) {
        rule(j, (j->reg[W_TCR] & EPDS) == EPDS, "VMID switched without stopping table walks");
        rule(j, j->reg[W_SCTLR] & 1, "VMID switched with stage 1 off");
        rule(j, !j->unsynced, "no ISB before the VMID switch");
    }
    /* A guest's tables, while its stage 1 is off, may be anything: they must not be walked for an instant. */
    if (reg == W_SCTLR && guarded && (value & 1) && !(j->reg[reg] & 1))
        rule(j, (j->reg[W_TCR] & EPDS) == EPDS && !j->tcr_unsynced,
             "stage 1 turned on before table walks have stopped");
    if (reg == W_SCTLR && guarded && !(value & 1))
        rule(j, j->reg[W_VTTBR] == j->initial[W_VTTBR] && !j->vttbr_unsynced,
             "stage 1 off again before the VMID is back");
    if (reg == W_TCR && (value & EPDS) != EPDS) {
        rule(j, j->reg[W_VTTBR] == j->initial[W_VTTBR] && !j->vttbr_unsynced,
             "table walks on again before the VMID is back");
        rule(j, j->reg[W_SCTLR] == j->initial[W_SCTLR] && !j->sctlr_unsynced,
             "table walks on again before stage 1 is as it was");
    }
    j->reg[reg] = value;
    j->unsynced = 1;
    j->isb_last = 0;
    j->vttbr_unsynced |= reg == W_VTTBR;
    j->tcr_unsynced |= reg == W_TCR;
    j->sctlr_unsynced |= reg == W_SCTLR;
}

static void judge_end(struct judge *j)
{
    const struct arm64_case *c = j->c;
    int by_ipa = 0, groups = 1, i;

    for (i = 0; i < W_COUNT; i++)
        rule(j, j->reg[i] == j->initial[i], "a register was not restored");
    rule(j, !j->masked, "interrupts were left masked");
    rule(j, !j->pending, "no DSB after the last TLBI");
    rule(j, j->isb_last && !j->unsynced, "no ISB at the end");
    rule(j, !j->ipa_done || j->combined_done, "no VMALLE1 after IPAS2");
    by_ipa = j->ipa_done || j->ipa_pending;
    groups += by_ipa;
    groups += (c->quirks & HVMEM_QUIRK_REPEAT_TLBI) && c->flush->scope != HVMEM_SCOPE_LOCAL;
    rule(j, j->groups == groups, "number of TLBI + DSB groups (repeat-TLBI workaround)");
}

const char *arm64_rules_tlb(const struct arm64_case *c)
{
    struct judge j = {.c = c, .initial = {c->daif, c->vttbr, c->hcr, c->tcr, c->sctlr}};
    uint32_t i;

    for (i = 0; i < W_COUNT; i++)
        j.reg[i] = j.initial[i];
    rule(&j, c->log->lost == 0, "the log overflowed");
    for (i = 0; i < c->log->count; i++) {
        const struct hvmem_record_event *e = &c->log->events[i];
        struct arm64_tlbi t;
        int stores = 0, domain = dsb_domain(e->code, &stores), reg = written_register(e->code);

        rule(&j, !j.hcr_last || e->code == 0xd5033fdf, "HCR_EL2 written without an ISB behind it");
        j.hcr_last = reg == W_HCR;
        if (arm64_decode_tlbi(e->code, &t)) {
            judge_tlbi(&j, &t);
        } else if (domain >= 0) {
            judge_dsb(&j, domain, stores);
        } else if (e->code == 0xd5033fdf) {
            j.unsynced = j.vttbr_unsynced = j.tcr_unsynced = j.sctlr_unsynced = 0;
            j.isb_last = 1;
        } else if (e->code == 0xd50343df) {
            j.masked = 1;
            rule(&j, j.reg[W_DAIF] == j.initial[W_DAIF], "mask after restore");
        } else if (reg >= 0) {
            judge_write(&j, reg, e->operand[0]);
        } else {
            rule(&j, 0, "an instruction that does not belong to TLB maintenance");
        }
    }
    judge_end(&j);
    return j.broken;
}

/* Does [entry) hold the address of a single-page operand (bits 55:12)? */
static int page_hit(const struct arm64_entry *e, uint64_t operand, uint64_t mask)
{
    uint64_t page = (operand & mask) << 12;

    return page - (e->base & (mask << 12 | 0xfff)) < e->bytes;
}

static int ttl_fits(const struct arm64_entry *e, uint32_t ttl)
{
    return ttl == 0 || (!e->table && e->level == ttl);
}

/* Address, level and range part of a hit. */
static int address_hit(const struct arm64_entry *e, const struct arm64_tlbi *t, uint64_t operand,
                       int lpa2)
{
    uint64_t base, bytes, field;

    if (!t->range) {
        if (!ttl_fits(e, operand >> 46 & 3 ? operand >> 44 & 3 : 0))
            return 0;
        return page_hit(e, operand, t->crm == 0 ? (1ull << 40) - 1 : (1ull << 44) - 1);
    }
    if (!arm64_decode_range(operand, lpa2, &base, &bytes) || !ttl_fits(e, operand >> 37 & 3))
        return 0;
    field = lpa2 ? (1ull << 53) - 1 : (1ull << (37 + 10 + 2 * (operand >> 46 & 3))) - 1;
    /* Overlap of two intervals, modulo the width of the base field. */
    return ((e->base - base) & field) < bytes || ((base - e->base) & field) < e->bytes;
}

static int el1_hit(const struct arm64_entry *e, const struct arm64_tlbi *t, uint64_t operand,
                   int lpa2)
{
    if (t->crm == 3 && t->op2 == 0)
        return 1;
    if (t->crm == 3 && t->op2 == 2)
        return !e->global && e->asid == operand >> 48;
    if (e->table && t->op2 >= 5)
        return 0; /* leaf forms */
    if ((t->op2 == 1 || t->op2 == 5) && !e->global && e->asid != operand >> 48)
        return 0;
    return address_hit(e, t, operand, lpa2);
}

static int el2_hit(const struct arm64_entry *e, const struct arm64_tlbi *t, uint64_t operand,
                   uint32_t vmid, int lpa2)
{
    if (t->crm == 0) /* IPAS2E1 and kin */
        return e->regime == ARM64_S2 && e->vmid == vmid && !(e->table && t->op2 >= 5) &&
               address_hit(e, t, operand, lpa2);
    if (t->crm == 3 && t->op2 == 4)
        return e->regime != ARM64_EL2_REGIME;
    if (t->crm == 3 && t->op2 == 6)
        return e->regime != ARM64_EL2_REGIME && e->vmid == vmid;
    if (e->regime != ARM64_EL2_REGIME)
        return 0;
    if (t->crm == 3 && t->op2 == 0)
        return 1;
    return !(e->table && t->op2 >= 5) && address_hit(e, t, operand, lpa2);
}

int arm64_removes(const struct arm64_case *c, const struct arm64_entry *entry)
{
    uint64_t vttbr = c->vttbr, hcr = c->hcr;
    uint32_t i;

    for (i = 0; i < c->log->count; i++) {
        const struct hvmem_record_event *e = &c->log->events[i];
        int reg = written_register(e->code);
        struct arm64_tlbi t;

        if (reg == W_VTTBR)
            vttbr = e->operand[0];
        if (reg == W_HCR)
            hcr = e->operand[0];
        if (!arm64_decode_tlbi(e->code, &t))
            continue;
        if (t.op1 == 0) {
            int target = c->level == HVMEM_ARM64_VHE && (hcr & TGE) ? ARM64_EL2_REGIME : ARM64_EL10;

            if (entry->regime == target && (target || entry->vmid == vttbr >> 48) &&
                el1_hit(entry, &t, e->operand[0], c->lpa2))
                return 1;
        } else if (el2_hit(entry, &t, e->operand[0], (uint32_t)(vttbr >> 48), c->lpa2)) {
            return 1;
        }
    }
    return 0;
}
