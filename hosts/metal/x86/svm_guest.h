/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Guests of tests (AMD SVM): each has nested tables of its own, which map everything one to one but the
 * pages that a test places elsewhere, and runs one function of the image again and again.
 */
#ifndef METAL_X86_SVM_GUEST_H
#define METAL_X86_SVM_GUEST_H

#include "../common/metal.h"

struct metal_svm_guest {
    uint8_t *vmcb;
    uint64_t *pdpt;
    uint64_t *pd; /* of the one GiB and the one 2 MiB piece that hold placed pages */
    uint64_t *pt;
    metal_call_fn fn;
    void *arg;
    uint64_t stack_top;
    uint64_t regs[16]; /* by hardware number */
};

/* How a run ended. */
#define METAL_SVM_RETURNED 1 /* the function returned: the next run calls it anew */
#define METAL_SVM_KICKED   2 /* an interrupt came and was served: the next run goes on */

/* Makes a guest that runs fn(arg). METAL_E_LACK: no SVM with nested paging; METAL_E_FULL: no memory. */
int metal_svm_guest_make(struct metal_svm_guest *g, metal_call_fn fn, void *arg);

/*
 * The guest's physical page gpa is maddr from now on; no invalidation is made. All placed pages of a
 * guest lie in one aligned 2 MiB (METAL_E_INVAL else).
 */
int metal_svm_guest_place(struct metal_svm_guest *g, uint64_t gpa, uint64_t maddr);

/* The next run calls fn(arg), whatever the guest was in. */
void metal_svm_guest_call(struct metal_svm_guest *g, metal_call_fn fn, void *arg);

/*
 * Lets the guest run on this CPU under this ASID, TLB_CONTROL as given for this entry alone. Returns
 * METAL_SVM_*, or METAL_E_INVAL after any other exit (printed) or with ASID 0.
 */
int metal_svm_guest_run(struct metal_svm_guest *g, uint32_t asid, uint8_t tlb_control);

/* Every CPU that runs guests calls the first before and the second after. */
void metal_svm_guests_begin(void);
void metal_svm_guests_end(void);

#endif
