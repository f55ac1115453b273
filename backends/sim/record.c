/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder: an append-only log of instructions and a small table of register values. */
#include <hvmem/record.h>

void hvmem_record_init(struct hvmem_record *record, struct hvmem_record_event *events,
                       hvmem_u32 capacity)
{
    record->events = events;
    record->capacity = capacity;
    record->count = 0;
    record->lost = 0;
    record->cpu = 0;
    record->regs = 0;
    record->fail_code = 0;
    record->reserved = 0;
    record->fail_operand = 0;
}

void hvmem_record_clear(struct hvmem_record *record)
{
    record->count = 0;
    record->lost = 0;
}

/* Index of the register in the table; record->regs if it is not there. */
static hvmem_u32 find_reg(const struct hvmem_record *record, hvmem_u32 code, hvmem_u32 index)
{
    hvmem_u32 i;

    for (i = 0; i < record->regs; i++)
        if (record->reg[i].code == code && record->reg[i].index == index)
            break;
    return i;
}

int hvmem_record_set(struct hvmem_record *record, hvmem_u32 code, hvmem_u32 index, hvmem_u64 value)
{
    hvmem_u32 i = find_reg(record, code, index);

    if (i == HVMEM_RECORD_REGS)
        return 0;
    if (i == record->regs)
        record->regs++;
    record->reg[i].code = code;
    record->reg[i].index = index;
    record->reg[i].value = value;
    return 1;
}

hvmem_u64 hvmem_record_get(const struct hvmem_record *record, hvmem_u32 code, hvmem_u32 index)
{
    hvmem_u32 i = find_reg(record, code, index);

    return i == record->regs ? 0 : record->reg[i].value;
}

int hvmem_record_insn(struct hvmem_record *record, hvmem_u32 code, hvmem_u64 operand0,
                      hvmem_u64 operand1)
{
    struct hvmem_record_event *event;

    if (record->count == record->capacity) {
        record->lost++;
    } else {
        event = &record->events[record->count++];
        event->code = code;
        event->cpu = record->cpu;
        event->operand[0] = operand0;
        event->operand[1] = operand1;
    }
    return code == record->fail_code && operand0 == record->fail_operand;
}
