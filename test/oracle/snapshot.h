/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All that a host can see of a heap, for "a refused call changed nothing": every block by walk, the
 * statistics of the heap and of each node, the domains, and (where nothing else runs) the bytes of
 * the frame tables.
 */
#ifndef HVMEM_TEST_SNAPSHOT_H
#define HVMEM_TEST_SNAPSHOT_H

#include "world.h"

struct snapshot {
    struct hvmem_block *blocks;
    size_t count;
    struct hvmem_stats all;
    struct hvmem_stats node[HVMEM_NODE_LIMIT];
    hvmem_status node_status[HVMEM_NODE_LIMIT];
    struct hvmem_domain_stats domain[WORLD_MAX_DOMAINS];
    unsigned domain_count;
    unsigned char *tables; /* the bytes of all tables; NULL if they were not asked for */
    size_t table_bytes;
};

/* with_tables: the bytes of the frame tables too. Ends the process if memory runs out. */
struct snapshot *snapshot_take(struct world *world, bool with_tables);
void snapshot_delete(struct snapshot *snapshot);
/* What differs (a stable text), or NULL. Counts of refusals, caches and flushes are not compared. */
const char *snapshot_difference(const struct snapshot *before, const struct snapshot *after);

#endif
