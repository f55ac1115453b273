/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A second, naive account of a heap: one entry a frame in a plain array. Every call is made through
 * here, its result judged by brute force, and the heap compared with the array after it. Knows the
 * public interface only. What the interface leaves open (which of several blocks is handed out, how
 * the rest of a partly freed block is cut) is learned from the heap and checked for soundness.
 *
 * Like the world it does not use the test harness: the first deviation is kept in failure.
 */
#ifndef HVMEM_TEST_SHADOW_H
#define HVMEM_TEST_SHADOW_H

#include "world.h"

enum shadow_state {
    SHADOW_HOLE,
    SHADOW_FREE,
    SHADOW_USED,
    SHADOW_RESERVED,
    SHADOW_LEAVING, /* used, goes offline when freed */
    SHADOW_OFFLINE
};

#define SHADOW_MAX_DOMAINS 16u

struct shadow_frame {
    unsigned char state;
    unsigned char node;
    unsigned char order;       /* of its block, while used or reserved */
    unsigned char maybe_dirty; /* the heap may believe that it owes a scrub */
    unsigned char cached;      /* scratch of shadow_check */
    hvmem_u32 owner;
    hvmem_mfn head; /* first frame of its block, while used or reserved */
};

struct shadow_domain {
    struct hvmem_domain *handle; /* NULL: not there */
    hvmem_u64 limit;
    hvmem_u64 pages;
    hvmem_u64 node_mask;
    hvmem_u64 claim_any;
    hvmem_u64 claim_node[HVMEM_NODE_LIMIT];
    hvmem_u32 state;
    bool may_owe; /* a start failed half-way: what it had taken over it owes as a whole */
};

struct shadow {
    struct world *world;
    hvmem_mfn base; /* the frames looked at: [base, base + span) */
    hvmem_u64 span;
    struct shadow_frame *frame;
    struct shadow_domain domain[SHADOW_MAX_DOMAINS + 1]; /* by id; 0 is the host */
    hvmem_u64 steps;
    char failure[256];
};

/* The world must hold no bank yet; its debts are tracked over the same frames. */
struct shadow *shadow_new(struct world *world, hvmem_mfn base, hvmem_u64 span);
void shadow_delete(struct shadow *shadow);
/* Note a deviation (printf form); only the first is kept. */
void shadow_fail(struct shadow *shadow, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Compare everything: audit, walk, look-up, counts by order and node, domains. */
void shadow_check(struct shadow *shadow);

/* The public calls, mirrored (shadow.c). */
hvmem_status shadow_alloc(struct shadow *shadow, const struct hvmem_request *request,
                          hvmem_mfn *mfn);
hvmem_status shadow_alloc_bulk(struct shadow *shadow, const struct hvmem_request *request,
                               hvmem_mfn *frames, hvmem_u32 n, hvmem_u32 *got);
hvmem_status shadow_free(struct shadow *shadow, hvmem_mfn mfn, hvmem_order order);
hvmem_status shadow_free_owned(struct shadow *shadow, hvmem_mfn mfn, hvmem_order order,
                               hvmem_u32 id, hvmem_u32 owed);
hvmem_status shadow_free_run(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count);
hvmem_status shadow_free_bulk(struct shadow *shadow, const hvmem_mfn *frames, hvmem_u32 n,
                              hvmem_order order, hvmem_u32 *done);
hvmem_status shadow_reserve(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count);

/* The other calls (shadow_admin.c). */
hvmem_status shadow_settle(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count, hvmem_u32 owed);
hvmem_status shadow_offline(struct shadow *shadow, hvmem_mfn mfn);
hvmem_status shadow_online(struct shadow *shadow, hvmem_mfn mfn);
hvmem_status shadow_bank(struct shadow *shadow, hvmem_mfn base, hvmem_u64 frames, hvmem_node node,
                         hvmem_u32 flags);
hvmem_status shadow_remove(struct shadow *shadow, hvmem_mfn base, hvmem_u64 frames);
hvmem_status shadow_domain_new(struct shadow *shadow, hvmem_u32 id, hvmem_u64 limit,
                               hvmem_u64 node_mask);
hvmem_status shadow_domain_start(struct shadow *shadow, hvmem_u32 id);
hvmem_status shadow_domain_kill(struct shadow *shadow, hvmem_u32 id);
hvmem_status shadow_domain_gone(struct shadow *shadow, hvmem_u32 id);
/* Whether a domain may owe as a whole, which keeps the heap from being quiesced. */
bool shadow_domains_may_owe(const struct shadow *shadow);
hvmem_status shadow_domain_limit(struct shadow *shadow, hvmem_u32 id, hvmem_u64 limit);
hvmem_status shadow_claim(struct shadow *shadow, hvmem_u32 id, hvmem_node node, hvmem_u64 frames);

/* Helpers shared by the files of the shadow (shadow_rules.c). */
struct shadow_frame *shadow_at(struct shadow *shadow, hvmem_mfn mfn); /* NULL: outside */
hvmem_u32 shadow_id(struct shadow *shadow, const struct hvmem_domain *domain);
/* Free frames on a node, HVMEM_NODE_ANY: everywhere. */
hvmem_u64 shadow_free_count(struct shadow *shadow, hvmem_node node);
hvmem_u64 shadow_claims(struct shadow *shadow, hvmem_node node, bool node_claims_only);
/* Frames a request takes. */
hvmem_u64 shadow_wanted(const struct hvmem_request *request);
/* Nodes the request may use: bit n. */
hvmem_u64 shadow_nodes(struct shadow *shadow, const struct hvmem_request *request);
/* Is there a place for the request on this node? */
bool shadow_fits(struct shadow *shadow, const struct hvmem_request *request, hvmem_node node);
/* Do the claims of others leave room for it on this node? */
bool shadow_unclaimed(struct shadow *shadow, const struct hvmem_request *request, hvmem_node node);
/* The claims of its owner that an allocation on this node used up. */
void shadow_use_claims(struct shadow *shadow, const struct hvmem_request *request, hvmem_node node);
/* What freeing must return. domain_id ~0: any owner. */
hvmem_status shadow_free_code(struct shadow *shadow, hvmem_mfn mfn, hvmem_order order,
                              hvmem_u32 domain_id);
/* These frames are free now (owed: by the caller, on top of what their owner leaves). */
void shadow_freed(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count, hvmem_u32 owed);
/* Ask the heap how the used frames of this range are cut into blocks, and check the answer. */
void shadow_learn(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count);
/* HVMEM_REQ_DEFER_* as the HVMEM_OWES_* that may stay. */
hvmem_u32 shadow_deferred(hvmem_u32 flags);

#endif
