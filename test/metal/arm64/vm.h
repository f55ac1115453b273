/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A virtual machine made of the library alone: VMIDs, a space, a stage 2 whose tables come from a
 * heap, and vCPUs of the monitor that run the image's own functions on it. EL2 without VHE only.
 */
#ifndef TEST_METAL_ARM64_VM_H
#define TEST_METAL_ARM64_VM_H

#include <hvmem/domain.h>
#include <hvmem/ident.h>
#include <hvmem/space.h>
#include <hvmem/stage2.h>

#include "hosts/metal/arm64/monitor.h"

#define VM_INPUT_BITS 40u

struct vm {
    struct hvmem_heap *heap; /* of the tables */
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    struct hvmem_stage2 *s2;
    uint64_t vttbr; /* of the id that the CPUs loaded last */
    void *space_memory, *s2_memory;
};

struct vm_options {
    struct hvmem_heap *heap;          /* of the tables, and of frames that gathers free */
    const struct hvmem_host_ops *ops; /* of the heap */
    void *host;
    struct hvmem_backend *backend;
    struct hvmem_domain *domain; /* charged for tables; NULL: the host */
    uint32_t flags;              /* HVMEM_S2_* */
    uint32_t largest;            /* order of the largest entries: 0, 9, 18 */
    struct hvmem_ident *ident;   /* its ids; NULL: of its own */
};

/*
 * Makes all of it; 0: refused, and said so. A VM of the same `largest` whose space was destroyed and whose
 * stage 2 was torn down is made anew in the memory it had.
 */
int vm_make(struct vm *vm, const struct vm_options *options);

/* This CPU loads the space; to be called on every CPU that shall run vCPUs. */
void vm_load(void *vm);

/* Maps guest frames to the machine frames of the same number. */
int vm_map_identity(struct vm *vm, uint64_t base, uint64_t bytes);

/*
 * The image with its data, stacks and own tables, without which its functions do not run; not what the heap
 * has of it: pages of the guest's tables among it.
 */
int vm_map_image(struct vm *vm);

/* A vCPU on this CPU that will run fn(arg) as a guest; aborts go to vm_abort with `vm`. */
int vm_vcpu(struct vm *vm, struct metal_vcpu *v, metal_call_fn fn, void *arg);

/* This CPU leaves the space; its id stays in hardware unless `load_none`. */
void vm_unload(struct vm *vm, int load_none);

/* The handler of stage-2 aborts: hvmem_stage2_fault. */
int vm_abort(void *vm, uint64_t ipa, unsigned access);

#endif
