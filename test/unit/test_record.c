/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder itself: order, capacity, registers, the CPU stamp, planted failures. */
#include "test_main.h"

#include <hvmem/record.h>

TEST(keeps_order_and_counts_what_is_lost)
{
    struct hvmem_record_event events[3];
    struct hvmem_record log;
    uint32_t i;

    hvmem_record_init(&log, events, 3);
    for (i = 0; i < 5; i++) {
        log.cpu = i;
        CHECK_EQ(hvmem_record_insn(&log, 10 + i, i, 2 * i), 0);
    }
    CHECK_EQ(log.count, 3);
    CHECK_EQ(log.lost, 2);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(events[i].code, 10 + i);
        CHECK_EQ(events[i].cpu, i);
        CHECK_EQ(events[i].operand[0], i);
        CHECK_EQ(events[i].operand[1], 2 * i);
    }
    hvmem_record_clear(&log);
    CHECK_EQ(log.count, 0);
    CHECK_EQ(log.lost, 0);
}

TEST(registers_have_values_by_code_and_index)
{
    struct hvmem_record log;
    uint32_t i;

    hvmem_record_init(&log, NULL, 0);
    CHECK_EQ(hvmem_record_get(&log, 7, 0), 0);
    for (i = 0; i < HVMEM_RECORD_REGS; i++)
        CHECK(hvmem_record_set(&log, 7, i, i + 100));
    CHECK(!hvmem_record_set(&log, 8, 0, 1));
    CHECK(hvmem_record_set(&log, 7, 5, 999)); /* a known one still changes */
    CHECK_EQ(hvmem_record_get(&log, 7, 5), 999);
    CHECK_EQ(hvmem_record_get(&log, 7, 6), 106);
    CHECK_EQ(hvmem_record_get(&log, 8, 0), 0);
}

TEST(planted_failures_meet_their_instruction_only)
{
    struct hvmem_record_event events[4];
    struct hvmem_record log;

    hvmem_record_init(&log, events, 4);
    log.fail_code = HVMEM_X86_INSN_INVEPT;
    log.fail_operand = 1;
    CHECK_EQ(hvmem_record_insn(&log, HVMEM_X86_INSN_INVEPT, 2, 0), 0);
    CHECK_EQ(hvmem_record_insn(&log, HVMEM_X86_INSN_INVVPID, 1, 0), 0);
    CHECK_EQ(hvmem_record_insn(&log, HVMEM_X86_INSN_INVEPT, 1, 0), 1);
    CHECK_EQ(log.count, 3);
}
