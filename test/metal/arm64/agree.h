/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the EL2 monitor saw executed against what the recording twin logged for the same call: the
 * instructions that trap, in their order, with their operands. Barriers and DC ZVA do not trap: for those the
 * recorder alone speaks.
 */
#ifndef TEST_METAL_ARM64_AGREE_H
#define TEST_METAL_ARM64_AGREE_H

#include <hvmem/record.h>

#include "hosts/metal/arm64/monitor.h"

/* The instruction's word with register x0, or xzr where it has no operand. */
uint32_t executed_word(const struct metal_monitor_op *op);

/* `count` when all of both agree; else the number of the first that differs, count + 1: one is missing. */
uint32_t first_difference(const struct metal_monitor_op *log, uint32_t count,
                          const struct hvmem_record *record);

/*
 * A comparison that cannot fail proves nothing: 1 if another operand, another shareability and a missing
 * instruction are seen. Of a log that agrees, count > 0; it is left as it was.
 */
int comparison_can_fail(struct metal_monitor_op *log, uint32_t count,
                        const struct hvmem_record *record);

/* One line: the different instructions in the order they came, and how many in all. */
void print_agreement(const char *level, const struct metal_monitor_op *log, uint32_t count,
                     const char *name);

#endif
