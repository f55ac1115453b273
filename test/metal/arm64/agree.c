/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparison of executed with recorded instructions; see agree.h. */
#include "test/metal/arm64/agree.h"

#include "test/metal/subject.h"

#define DC_ZVA        0xd50b7420u
#define MSR_HCR_EL2   0xd51c1100u
#define MSR_VTTBR_EL2 0xd51c2100u
#define MSR_SCTLR_EL1 0xd5181000u
#define MSR_TCR_EL1   0xd5182040u

uint32_t executed_word(const struct metal_monitor_op *o)
{
    return 0xd5000000u | (uint32_t)o->op.op0 << 19 | (uint32_t)o->op.op1 << 16 |
           (uint32_t)o->op.crn << 12 | (uint32_t)o->op.crm << 8 | (uint32_t)o->op.op2 << 5 |
           (o->has_operand ? 0u : 31u);
}

static int is_trapped(uint32_t word)
{
    return word == MSR_HCR_EL2 || word == MSR_VTTBR_EL2 || word == MSR_SCTLR_EL1 ||
           word == MSR_TCR_EL1 || (subject_insn_name(word) != NULL && (word | 31) != (DC_ZVA | 31));
}

uint32_t first_difference(const struct metal_monitor_op *log, uint32_t count,
                          const struct hvmem_record *record)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < record->count; i++) {
        const struct hvmem_record_event *e = &record->events[i];

        if (!is_trapped(e->code))
            continue;
        if (at == count)
            return count + 1; /* recorded, and not executed */
        if (executed_word(&log[at]) != e->code ||
            (log[at].has_operand && log[at].operand != e->operand[0]))
            return at;
        at++;
    }
    return at;
}

int comparison_can_fail(struct metal_monitor_op *log, uint32_t count,
                        const struct hvmem_record *record)
{
    const struct metal_monitor_op right = log[count - 1];
    int seen = 1;

    log[count - 1].operand ^= 1ull << 44;
    log[count - 1].has_operand = 1;
    seen &= first_difference(log, count, record) != count;
    log[count - 1] = right;
    log[count - 1].op.crm ^= 4;
    seen &= first_difference(log, count, record) != count;
    log[count - 1] = right;
    seen &= first_difference(log, count - 1, record) != count - 1;
    return seen & (first_difference(log, count, record) == count);
}

void print_agreement(const char *level, const struct metal_monitor_op *log, uint32_t count,
                     const char *name)
{
    const char *last = NULL;

    metal_printf("recorded %s:", level);
    for (uint32_t i = 0; i < count; i++) {
        const char *insn = subject_insn_name(executed_word(&log[i]));

        if (insn != NULL && insn != last)
            metal_printf(" %s", insn);
        last = insn != NULL ? insn : last;
    }
    metal_printf(": %s: %u instructions agree\n", name, count);
}
