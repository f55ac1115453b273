/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cost of what user space may do of the contract: caches by line and zeroing, by the loops of the metal
 * image (bench/bodies/cost_body.h). Native on x86-64; for arm64 a static program under qemu-user.
 */
#define _GNU_SOURCE
#include "bench/bodies/cost_body.h"

#if defined(__x86_64__)
#    include <hvmem/x86.h>
#else
#    include <hvmem/arm64.h>
#endif

#include <stdio.h>
#include <time.h>

#define BYTES (64u << 10)
#define PAGE  4096u

static _Alignas(4096) unsigned char memory[BYTES];

static hvmem_u64 now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (hvmem_u64)t.tv_sec * 1000000000u + (hvmem_u64)t.tv_nsec;
}

static hvmem_status open_backend(struct hvmem_backend *be)
{
#if defined(__x86_64__)
    static struct hvmem_x86 machine;
    struct hvmem_x86_config config = {.size = sizeof config, .flags = HVMEM_X86_USER};

    return hvmem_x86_init(&machine, be, &config);
#else
    static struct hvmem_arm64 machine;
    struct hvmem_arm64_config config = {.size = sizeof config, .level = HVMEM_ARM64_EL0};

    return hvmem_arm64_init(&machine, be, &config);
#endif
}

int main(int argc, char **argv)
{
    struct hvmem_backend be;
    hvmem_u64 least;
    int kind;

    if (open_backend(&be) != HVMEM_OK)
        return 1;
    printf("\n  %-38s %10s\n", argc > 1 ? argv[1] : "user space", "ns");
    for (kind = COST_CLEAN; kind < COST_KINDS; kind++) {
        hvmem_u64 each = kind == COST_ICACHE ? be.caps.iline
                         : kind < COST_ZERO  ? be.caps.dline
                                             : PAGE;

        if (each == 0 ||
            cost_measure(&be, (enum cost_kind)kind, memory, BYTES, now, &least) != HVMEM_OK) {
            printf("  (%s: not here)\n", cost_words((enum cost_kind)kind));
            continue;
        }
        printf("  %-30s %-7s %10.1f\n", cost_words((enum cost_kind)kind),
               kind < COST_ZERO ? "a line" : "a page", (double)least * (double)each / BYTES);
    }
    return 0;
}
