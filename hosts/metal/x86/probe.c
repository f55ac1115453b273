/* SPDX-License-Identifier: BSD-2-Clause */
/* Single accesses that may fault, all by the one call that survives a fault (metal_probe_call). */
#include "../common/boot.h"

struct access {
    uintptr_t va;
    uint64_t value;
};

static void do_read(void *arg)
{
    struct access *a = arg;

    a->value = *(volatile uint64_t *)a->va;
}

static void do_write(void *arg)
{
    const struct access *a = arg;

    *(volatile uint64_t *)a->va = a->value;
}

static void do_exec(void *arg)
{
    struct access *a = arg;

    a->value = ((uint64_t(*)(void))a->va)();
}

int metal_probe_read(uintptr_t va, uint64_t *value, struct metal_fault *fault)
{
    struct access a = {va, 0};
    const int faulted = metal_probe_call(do_read, &a, fault);

    if (!faulted)
        *value = a.value;
    return faulted;
}

int metal_probe_write(uintptr_t va, uint64_t value, struct metal_fault *fault)
{
    struct access a = {va, value};

    return metal_probe_call(do_write, &a, fault);
}

int metal_probe_exec(uintptr_t va, uint64_t *value, struct metal_fault *fault)
{
    struct access a = {va, 0};
    const int faulted = metal_probe_call(do_exec, &a, fault);

    if (!faulted)
        *value = a.value;
    return faulted;
}
