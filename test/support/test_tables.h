/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables of a guest for tests of domains: an array from guest frame to frame, behind the operations
 * that a domain is attached with. Watches the rules of those operations.
 */
#ifndef TEST_TABLES_H
#define TEST_TABLES_H

#include <hvmem/populate.h>
#include <stdint.h>

#define TABLES_GFNS      8192u
#define TABLES_UNMAPPED  (~0ull)
#define TABLES_UNTOUCHED (1ull << 62) /* or'ed to the frame */

struct test_tables {
    struct hvmem_domain_ops ops;
    uint64_t map[TABLES_GFNS];
    uint64_t maps;       /* calls that mapped */
    uint64_t started;    /* calls of the hook */
    unsigned map_fail;   /* the n-th map from now fails; 0: none */
    unsigned hook_fails; /* so many calls of the hook fail */
    unsigned unmaps;     /* calls of unmap_all */
    unsigned unmap_steps;
    /* Called with each block before it is mapped; may be NULL. */
    void (*mapping)(void *context, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order);
    void *context;
    const char *broken; /* a rule that was broken */
};

void test_tables_init(struct test_tables *tables);
/* Guest frames that are mapped. */
uint64_t test_tables_mapped(const struct test_tables *tables);

#endif
