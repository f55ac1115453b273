/* SPDX-License-Identifier: BSD-2-Clause */
/* Rules for recorder logs of x86; see x86_rules.h. */
#include "x86_rules.h"

#include <stddef.h>

#define PGE   (1ull << 7)
#define PCIDE (1ull << 17)

struct state {
    const struct x86_case *c;
    const char *broken;
    uint64_t cr3;
    uint64_t cr4;
    int masked;
    int unsynced; /* INVLPGB without TLBSYNC */
};

static void rule(struct state *s, int holds, const char *words)
{
    if (!holds && !s->broken)
        s->broken = words;
}

static int canonical(uint64_t addr)
{
    uint64_t top = addr >> 47;

    return top == 0 || top == 0x1ffff;
}

static void judge_invpcid(struct state *s, const struct hvmem_record_event *e)
{
    uint64_t type = e->operand[0] >> 16, pcid = e->operand[0] & 0xffff;

    rule(s, s->c->has_invpcid, "INVPCID on a CPU without it");
    rule(s, type <= 3 && pcid <= 0xfff, "INVPCID: type or reserved bits");
    rule(s, (s->cr4 & PCIDE) || type >= 2 || pcid == 0,
         "INVPCID 0 or 1 of a PCID while PCIDE is 0");
    rule(s, type != 0 || canonical(e->operand[1]), "INVPCID 0 of a non-canonical address");
}

static void judge_invlpgb(struct state *s, const struct hvmem_record_event *e)
{
    uint64_t rax = e->operand[0], ecx = e->operand[1] >> 32, edx = e->operand[1] & 0xffffffff;

    rule(s, s->c->invlpgb_pages != 0, "INVLPGB on a CPU without it");
    rule(s, (ecx & 0xffff) < s->c->invlpgb_pages, "INVLPGB: more pages than the CPU takes");
    rule(s, (ecx & 0x7fff0000) == 0 && (rax & 0xfc0) == 0 && edx >> 28 == 0,
         "INVLPGB: reserved bits");
    rule(s, (rax & 1) || (ecx == 0 && rax >> 12 == 0), "INVLPGB: address without the VA flag");
    rule(s, (s->cr4 & PCIDE) || (edx >> 16 & 0xfff) == 0, "INVLPGB of a PCID while PCIDE is 0");
    s->unsynced = 1;
}

static void judge_event(struct state *s, const struct hvmem_record_event *e)
{
    uint64_t written = e->operand[0];

    switch (e->code) {
    case HVMEM_X86_INSN_INVPCID:
        judge_invpcid(s, e);
        break;
    case HVMEM_X86_INSN_INVLPGB:
        judge_invlpgb(s, e);
        break;
    case HVMEM_X86_INSN_TLBSYNC:
        rule(s, s->unsynced, "TLBSYNC with nothing to wait for");
        s->unsynced = 0;
        break;
    case HVMEM_X86_INSN_CLI:
        s->masked = 1;
        break;
    case HVMEM_X86_INSN_POPF:
        rule(s, s->masked, "interrupts restored that were not off");
        s->masked = 0;
        break;
    case HVMEM_X86_INSN_CR3:
        rule(s, s->masked, "CR3 read and written with interrupts on");
        rule(s, (written & ~(1ull << 63)) == s->c->cr3, "CR3 changed");
        s->cr3 = written & ~(1ull << 63);
        break;
    case HVMEM_X86_INSN_CR4:
        rule(s, s->masked, "CR4 read and written with interrupts on");
        rule(s, ((written ^ s->c->cr4) & ~PGE) == 0, "CR4: another bit than PGE changed");
        s->cr4 = written;
        break;
    case HVMEM_X86_INSN_INVLPG:
    case HVMEM_X86_INSN_INVLPGA:
    case HVMEM_X86_INSN_INVEPT:
    case HVMEM_X86_INSN_INVVPID:
        break;
    default:
        rule(s, 0, "an instruction that does not belong to TLB maintenance");
        break;
    }
}

const char *x86_rules_tlb(const struct x86_case *c)
{
    struct state s = {.c = c, .cr3 = c->cr3, .cr4 = c->cr4};
    uint32_t i;

    rule(&s, c->log->lost == 0, "the log overflowed");
    for (i = 0; i < c->log->count; i++) {
        uint32_t code = c->log->events[i].code;

        if (c->flush->scope != HVMEM_SCOPE_LOCAL)
            rule(&s, code == HVMEM_X86_INSN_INVLPGB || code == HVMEM_X86_INSN_TLBSYNC,
                 "a local form where all CPUs are meant");
        judge_event(&s, &c->log->events[i]);
    }
    rule(&s, s.cr4 == c->cr4 && s.cr3 == c->cr3, "a control register was not restored");
    rule(&s, !s.masked, "interrupts were left off");
    rule(&s, !s.unsynced, "INVLPGB without TLBSYNC");
    return s.broken;
}

static int at(const struct x86_entry *e, uint64_t addr)
{
    return addr - e->base < e->bytes;
}

static int invlpgb_removes(const struct hvmem_record_event *ev, const struct x86_entry *e)
{
    uint64_t rax = ev->operand[0], addr = rax & ~0xfffull;
    uint32_t ecx = (uint32_t)(ev->operand[1] >> 32), edx = (uint32_t)ev->operand[1];
    uint64_t bytes = (uint64_t)((ecx & 0xffff) + 1) << (ecx >> 31 ? 21 : 12);
    uint32_t asid = e->kind == X86_HOST ? 0 : e->tag;

    if (e->kind == X86_VPID || e->kind == X86_EPT)
        return 0;
    if (e->kind == X86_NESTED && (!(rax & 32) || (rax & 1)))
        return 0;
    if ((rax & 4) && (edx & 0xffff) != asid)
        return 0;
    if (e->global ? !(rax & 8) : (rax & 2) && (edx >> 16 & 0xfff) != e->pcid)
        return 0;
    if ((rax & 16) && e->table)
        return 0;
    return !(rax & 1) || addr - e->base < e->bytes || e->base - addr < bytes;
}

static int invpcid_removes(const struct hvmem_record_event *ev, const struct x86_entry *e)
{
    uint32_t type = (uint32_t)(ev->operand[0] >> 16), pcid = ev->operand[0] & 0xffff;

    if (e->kind != X86_HOST)
        return 0;
    if (type == 2)
        return 1;
    if (e->global)
        return 0;
    if (type == 3)
        return 1;
    return e->pcid == pcid && (type == 1 || at(e, ev->operand[1]));
}

static int invvpid_removes(const struct hvmem_record_event *ev, const struct x86_entry *e)
{
    uint32_t type = (uint32_t)(ev->operand[0] >> 16), vpid = ev->operand[0] & 0xffff;

    if (e->kind != X86_VPID)
        return 0;
    if (type == 2)
        return 1;
    return e->tag == vpid && (type == 1 || at(e, ev->operand[1]));
}

static int event_removes(const struct x86_case *c, uint64_t cr4,
                         const struct hvmem_record_event *ev, const struct x86_entry *e)
{
    int pcide = (c->cr4 & PCIDE) != 0;
    int host = e->kind == X86_HOST;

    switch (ev->code) {
    case HVMEM_X86_INSN_INVLPG:
        if (!host || !at(e, ev->operand[0]))
            return 0;
        return e->global ? !(pcide && c->misses_globals) : !pcide || e->pcid == (c->cr3 & 0xfff);
    case HVMEM_X86_INSN_INVPCID:
        return invpcid_removes(ev, e);
    case HVMEM_X86_INSN_CR3:
        return host && !e->global && !(ev->operand[0] >> 63) &&
               (!pcide || e->pcid == (ev->operand[0] & 0xfff));
    case HVMEM_X86_INSN_CR4:
        return host && ((ev->operand[0] ^ cr4) & PGE);
    case HVMEM_X86_INSN_INVLPGB:
        return invlpgb_removes(ev, e);
    case HVMEM_X86_INSN_INVLPGA:
        return e->kind == X86_GUEST && e->tag == ev->operand[1] && at(e, ev->operand[0]);
    case HVMEM_X86_INSN_INVEPT:
        return e->kind == X86_EPT && (ev->operand[0] == 2 || e->root == ev->operand[1]);
    case HVMEM_X86_INSN_INVVPID:
        return invvpid_removes(ev, e);
    default:
        return 0;
    }
}

int x86_removes(const struct x86_case *c, const struct x86_entry *entry)
{
    uint64_t cr4 = c->cr4;
    uint32_t i;

    for (i = 0; i < c->log->count; i++) {
        const struct hvmem_record_event *ev = &c->log->events[i];

        if (event_removes(c, cr4, ev, entry))
            return 1;
        if (ev->code == HVMEM_X86_INSN_CR4)
            cr4 = ev->operand[0];
    }
    return 0;
}
