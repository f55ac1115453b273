/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks that tests of the heap share: a refusal changes nothing, is counted and reported once; the
 * audit passes; helpers that make and end a world, and short forms of common calls.
 */
#ifndef HVMEM_TEST_EXPECT_H
#define HVMEM_TEST_EXPECT_H

#include "shadow.h"
#include "snapshot.h"
#include "test_main.h"
#include "world.h"

#define EXPECT_NO_MFN (~(hvmem_mfn)0)

struct refusal {
    struct world *world;
    struct snapshot *before;
    uint64_t reports;
};

/*
 * CALL must return CODE and leave everything as it was. Codes of caller mistakes (below -15) must
 * be counted once and reported once; MFN is the frame the report must name (EXPECT_NO_MFN: not
 * looked at). Bytes of tables are compared where no lock lives in them.
 */
#define CHECK_REFUSED_AT(world, call, code, mfn)                                                   \
    do {                                                                                           \
        struct refusal refusal_ = refusal_begin(world);                                            \
        refusal_end(&refusal_, (call), (code), (mfn), #call, __FILE__, __LINE__);                  \
    } while (0)
#define CHECK_REFUSED(world, call, code) CHECK_REFUSED_AT(world, call, code, EXPECT_NO_MFN)

struct refusal refusal_begin(struct world *world);
void refusal_end(struct refusal *refusal, hvmem_status got, hvmem_status code, hvmem_mfn mfn,
                 const char *text, const char *file, int line);

/* The audit finds nothing; no rule of host or back-end was broken. */
#define CHECK_AUDIT(world) expect_audit(world, __FILE__, __LINE__)
void expect_audit(struct world *world, const char *file, int line);

/* A world, or the case ends. */
#define WORLD_NEW(config, flags) expect_world(config, flags, __FILE__, __LINE__)
struct world *expect_world(const struct hvmem_config *config, unsigned flags, const char *file,
                           int line);
/* Audit, then delete the world and check that nothing was broken. */
#define WORLD_END(world) expect_end(world, __FILE__, __LINE__)
void expect_end(struct world *world, const char *file, int line);

/* Compare heap and shadow once more, then end both: whether no deviation was seen. */
#define SHADOW_END(shadow) expect_shadow_end(shadow, __FILE__, __LINE__)
bool expect_shadow_end(struct shadow *shadow, const char *file, int line);

/* Tear a domain down, however many calls that takes, and forget it. */
#define CHECK_TORN_DOWN(world, domain) expect_torn_down(world, domain, __FILE__, __LINE__)
void expect_torn_down(struct world *world, struct hvmem_domain *domain, const char *file, int line);

/* A world with one bank on node 0, caches off, one CPU, caller serialises. */
#define WORLD_SIMPLE(base, frames) expect_simple(base, frames, __FILE__, __LINE__)
struct world *expect_simple(hvmem_mfn base, hvmem_u64 frames, const char *file, int line);

/* A request for a block of `order` from anywhere for `domain` (may be NULL). */
struct hvmem_request expect_block(hvmem_order order, struct hvmem_domain *domain);
/* A request for a run. */
struct hvmem_request expect_run(hvmem_u64 count, hvmem_u32 align, hvmem_mfn lo, hvmem_mfn hi);

struct hvmem_stats expect_stats(struct world *world, hvmem_node node);
struct hvmem_block expect_lookup(struct world *world, hvmem_mfn mfn);
hvmem_node expect_node(struct world *world, hvmem_mfn mfn);
struct hvmem_domain_stats expect_domain(struct hvmem_domain *domain);

/* Every frame that can be had as single frames, in the order given; the count. */
size_t expect_take_all(struct world *world, hvmem_mfn *frames, size_t room);

/* Free blocks exactly as listed: pairs of first frame and order, ended by order -1. */
struct expect_free_block {
    hvmem_mfn mfn;
    int order;
};
#define CHECK_FREE_BLOCKS(world, ...)                                                              \
    do {                                                                                           \
        const struct expect_free_block blocks_[] = {__VA_ARGS__, {0, -1}};                         \
        expect_free_blocks(world, blocks_, __FILE__, __LINE__);                                    \
    } while (0)
void expect_free_blocks(struct world *world, const struct expect_free_block *blocks,
                        const char *file, int line);

#endif
