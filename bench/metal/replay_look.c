/* SPDX-License-Identifier: BSD-2-Clause */
/* The replayed heap looked at: its blocks at the start, at the peak and at the end. */
#include "replay.h"

#define LARGE_ORDER  9u /* 2 MiB */
#define REGION_WORDS 1024u
#define REGIONS      (REGION_WORDS * 64u) /* 128 GiB of RAM */

int replay_remember(struct replay_run *run)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;

    run->initial_count = 0;
    while (hvmem_walk(run->heap.heap, &cursor, &block) == HVMEM_AGAIN) {
        if (run->initial_count == REPLAY_METAL_BLOCKS) {
            metal_printf("replay: the empty heap has more than %u blocks\n", REPLAY_METAL_BLOCKS);
            return 1;
        }
        run->initial[run->initial_count++] = block;
    }
    return 0;
}

int replay_audit(struct replay_run *run)
{
    const char *where = "";
    hvmem_mfn mfn = 0;
    const hvmem_status status = hvmem_audit(run->heap.heap, &mfn, &where);

    if (status == HVMEM_OK)
        return 0;
    metal_printf("replay: audit: %s at frame 0x%llx: %s\n", hvmem_status_words(status),
                 (unsigned long long)mfn, where);
    return 1;
}

int replay_restored(struct replay_run *run)
{
    struct hvmem_block now;
    hvmem_u64 cursor = 0;
    uint32_t count = 0, different = 0;

    if (hvmem_drain(run->heap.heap) != HVMEM_OK || replay_audit(run) != 0)
        return 1;
    while (hvmem_walk(run->heap.heap, &cursor, &now) == HVMEM_AGAIN) {
        if (count < run->initial_count) {
            const struct hvmem_block *then = &run->initial[count];

            different += now.mfn != then->mfn || now.order != then->order ||
                         now.state != then->state || now.node != then->node;
        }
        count++;
    }
    if (count == run->initial_count && different == 0)
        return 0;
    metal_printf("replay: %u blocks at the start, %u now, %u of them others\n", run->initial_count,
                 count, different);
    return 1;
}

static void dump_blocks(const struct replay_run *run)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;
    uint32_t count = 0;

    metal_printf("dump Heap of the machine at the peak of ");
    for (size_t i = 0; i < run->trace_length; i++)
        metal_putc(run->trace[i]);
    metal_printf(": %llu pages live\n", (unsigned long long)run->peak.pages);
    while (hvmem_walk(run->heap.heap, &cursor, &block) == HVMEM_AGAIN) {
        metal_printf("block %llx %u %u %u %u %u\n", (unsigned long long)block.mfn, block.order,
                     block.state, block.owner, block.owed, block.node);
        count++;
    }
    metal_printf("dump-end %u\n", count);
}

/* Live pages and the 2 MiB regions that hold them. */
static int count_live(struct replay_run *run)
{
    static uint64_t seen[REGION_WORDS];
    hvmem_u64 mfn;
    hvmem_u32 cursor = 0, order;

    for (uint32_t i = 0; i < REGION_WORDS; i++)
        seen[i] = 0;
    run->peak = (struct replay_peak){0};
    while (replay_live(&run->replay, &cursor, &mfn, &order)) {
        const uint64_t last = (mfn + (1ull << order) - 1) >> LARGE_ORDER;

        if (last >= REGIONS) {
            metal_printf("replay: frame 0x%llx is beyond what is counted\n",
                         (unsigned long long)mfn);
            return 1;
        }
        run->peak.pages += 1ull << order;
        for (uint64_t r = mfn >> LARGE_ORDER; r <= last; r++) {
            run->peak.regions += (seen[r / 64] >> (r % 64) & 1) == 0;
            seen[r / 64] |= 1ull << (r % 64);
        }
    }
    run->peak.regions_least = (run->peak.pages + (1u << LARGE_ORDER) - 1) >> LARGE_ORDER;
    return 0;
}

int replay_look(struct replay_run *run)
{
    struct hvmem_stats stats;

    if (count_live(run) != 0 || replay_audit(run) != 0)
        return 1;
    if (run->peak.pages != run->replay.header->peak_pages) {
        metal_printf("replay: %llu pages live at the peak, %u recorded\n",
                     (unsigned long long)run->peak.pages, run->replay.header->peak_pages);
        return 1;
    }
    if (run->dump)
        dump_blocks(run);
    if (hvmem_drain(run->heap.heap) != HVMEM_OK ||
        hvmem_stats(run->heap.heap, HVMEM_NODE_ANY, sizeof stats, &stats) != HVMEM_OK)
        return 1;
    for (unsigned order = LARGE_ORDER; order <= HVMEM_ORDER_LIMIT; order++)
        run->peak.free_large += stats.free_blocks[order] << (order - LARGE_ORDER);
    run->peak.possible_large = stats.free >> LARGE_ORDER;
    return 0;
}
