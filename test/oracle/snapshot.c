/* SPDX-License-Identifier: BSD-2-Clause */
/* Snapshots of a heap and their comparison. */
#include "snapshot.h"

#include <stdlib.h>
#include <string.h>

static void take_blocks(struct world *world, struct snapshot *snapshot)
{
    size_t room = 64;
    hvmem_u64 cursor = 0;
    hvmem_status status;

    snapshot->blocks = malloc(room * sizeof *snapshot->blocks);
    for (;;) {
        if (snapshot->count == room) {
            room *= 2;
            snapshot->blocks = realloc(snapshot->blocks, room * sizeof *snapshot->blocks);
        }
        if (snapshot->blocks == NULL)
            abort();
        memset(&snapshot->blocks[snapshot->count], 0, sizeof *snapshot->blocks);
        status = hvmem_walk(world->heap, &cursor, &snapshot->blocks[snapshot->count]);
        if (status == HVMEM_OK)
            return;
        if (status != HVMEM_AGAIN) {
            world_fail(world, "walk returned %d", status);
            return;
        }
        snapshot->count++;
    }
}

static void take_tables(struct world *world, struct snapshot *snapshot)
{
    unsigned char *to;
    unsigned i;

    for (i = 0; i < world->table_count; i++)
        snapshot->table_bytes += world->tables[i].bytes;
    to = snapshot->tables = malloc(snapshot->table_bytes + 1);
    if (to == NULL)
        abort();
    for (i = 0; i < world->table_count; i++) {
        if (world->tables[i].bytes == 0)
            continue;
        memcpy(to, world->tables[i].memory, world->tables[i].bytes);
        to += world->tables[i].bytes;
    }
}

struct snapshot *snapshot_take(struct world *world, bool with_tables)
{
    struct snapshot *snapshot = calloc(1, sizeof *snapshot);
    hvmem_node node;
    unsigned i;

    if (snapshot == NULL)
        abort();
    /* Nodes without memory refuse and count that: the counter is read before. */
    if (hvmem_stats(world->heap, HVMEM_NODE_ANY, sizeof snapshot->all, &snapshot->all) != HVMEM_OK)
        world_fail(world, "stats of all nodes refused");
    for (i = 0; i < world->table_count; i++) {
        node = world->tables[i].node;
        snapshot->node_status[node] =
            hvmem_stats(world->heap, node, sizeof snapshot->all, &snapshot->node[node]);
    }
    take_blocks(world, snapshot);
    for (i = 0; i < world->domain_count; i++)
        if (hvmem_domain_stats(world->domains[i].handle, &snapshot->domain[i]) != HVMEM_OK)
            world_fail(world, "stats of domain %u refused", world->domains[i].id);
    snapshot->domain_count = world->domain_count;
    if (with_tables)
        take_tables(world, snapshot);
    return snapshot;
}

void snapshot_delete(struct snapshot *snapshot)
{
    free(snapshot->blocks);
    free(snapshot->tables);
    free(snapshot);
}

static bool counts_differ(const struct hvmem_stats *a, const struct hvmem_stats *b)
{
    return a->frames != b->frames || a->free != b->free || a->allocated != b->allocated ||
           a->reserved != b->reserved || a->offline != b->offline || a->claimed != b->claimed ||
           memcmp(a->free_blocks, b->free_blocks, sizeof a->free_blocks) != 0;
}

const char *snapshot_difference(const struct snapshot *before, const struct snapshot *after)
{
    hvmem_node node;

    if (counts_differ(&before->all, &after->all))
        return "statistics of the heap";
    for (node = 0; node < HVMEM_NODE_LIMIT; node++)
        if (before->node_status[node] != after->node_status[node] ||
            counts_differ(&before->node[node], &after->node[node]))
            return "statistics of a node";
    if (before->domain_count != after->domain_count ||
        memcmp(before->domain, after->domain, sizeof before->domain) != 0)
        return "a domain";
    if (before->count != after->count ||
        memcmp(before->blocks, after->blocks, before->count * sizeof *before->blocks) != 0)
        return "the blocks";
    if (before->tables != NULL && after->tables != NULL &&
        (before->table_bytes != after->table_bytes ||
         memcmp(before->tables, after->tables, before->table_bytes) != 0))
        return "the bytes of a table";
    return NULL;
}
