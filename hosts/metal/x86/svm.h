/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recording of maintenance instructions that a function really executes: it runs as a guest (AMD
 * SVM, nested paging one to one, the image's own page tables) in which each of them is intercepted.
 */
#ifndef METAL_X86_SVM_H
#define METAL_X86_SVM_H

#include "../common/metal.h"

#define METAL_SVM_INVLPG  1u /* operand = linear address */
#define METAL_SVM_CR3     2u /* operand = value written, bit 63 included */
#define METAL_SVM_CR4     3u /* operand = value written */
#define METAL_SVM_WBINVD  4u /* no operand; extra = 1: WBNOINVD */
#define METAL_SVM_INVLPGA 5u /* operand = RAX, extra = ASID */

struct metal_svm_op {
    uint32_t what;
    uint32_t extra;
    uint64_t operand;
};

/*
 * Runs fn(arg) on this CPU and logs its first `max` maintenance instructions in order; *count is how
 * many there were in all. Each takes effect (registers change, the guest's translations are dropped
 * no less than asked). fn runs at the same addresses, on a stack of 16 KiB, interrupts as the
 * caller has them; what it does to memory and per-CPU data is real. One recording at a time.
 *
 * METAL_E_LACK: no SVM with nested paging, or firmware locked it. METAL_E_INVAL: fn faulted, executed
 * an intercepted instruction in a form unknown here (both printed), or a recording is running.
 * METAL_E_FULL: a million exits and no end.
 */
int metal_svm_record(metal_call_fn fn, void *arg, struct metal_svm_op *log, unsigned max,
                     unsigned *count);

/*
 * Length of the instruction at `code` if it is one of the intercepted ones, else 0; *op says what it
 * does with these registers (by hardware number), ip being its own
 * address. Pure function.
 */
unsigned metal_svm_decode(const uint8_t *code, const uint64_t regs[16], uint64_t ip,
                          struct metal_svm_op *op);

#endif
