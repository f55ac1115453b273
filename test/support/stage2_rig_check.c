/* SPDX-License-Identifier: BSD-2-Clause */
/* What the checks of stage2_rig.h look at: model TLBs, raw tables, counts. */
#include "stage2_rig.h"

#include <string.h>

uint64_t rig_holds(struct stage2_rig *rig, uint64_t gfn, uint64_t frames)
{
    uint64_t n = 0, last = frames == ~0ull ? ~0ull : gfn + frames - 1;
    hvmem_cpu cpu;
    int i;

    for (cpu = 0; cpu < rig->cpus; cpu++)
        for (i = 0; i < (int)rig->slots; i++) {
            const struct hvmem_sim_entry *e = &hvmem_sim_tlb_entries(rig->tlb, cpu)[i];

            n += e->valid && !e->table && e->page <= last &&
                 e->page + ((uint64_t)1 << e->shift) > gfn;
        }
    return n;
}

static int disagree(const struct hvmem_sim_entry *a, const struct hvmem_sim_entry *b)
{
    uint64_t span = (uint64_t)1 << b->shift;

    if (a->shift < b->shift || !a->valid || !b->valid || a->table || b->table)
        return 0;
    if (b->page < a->page || b->page + span > a->page + ((uint64_t)1 << a->shift))
        return 0;
    return a->shift != b->shift || (a->frame >> 8) != (b->frame >> 8);
}

uint64_t rig_conflicts(struct stage2_rig *rig)
{
    uint64_t n = 0;
    hvmem_cpu cpu;
    int i, j;

    for (cpu = 0; cpu < rig->cpus; cpu++) {
        const struct hvmem_sim_entry *e = hvmem_sim_tlb_entries(rig->tlb, cpu);

        for (i = 0; i < (int)rig->slots; i++)
            for (j = 0; j < (int)rig->slots; j++)
                n += i != j && disagree(&e[i], &e[j]);
    }
    return n;
}

struct hvmem_stage2_stats rig_stats(struct stage2_rig *rig)
{
    struct hvmem_stage2_stats stats;

    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    CHECK_EQ(hvmem_stage2_stats(rig->s2, &stats), HVMEM_OK);
    return stats;
}

/* Counts a table and what is below it, by raw descriptors. */
static void count_below(struct stage2_rig *rig, uint64_t table, int level, uint64_t entries,
                        struct hvmem_stage2_stats *stats)
{
    uint64_t i, found = 0;

    stats->tables += entries > 512 ? entries / 512 : 1;
    for (i = 0; i < entries; i++) {
        uint64_t d = rig->tables.at(rig, table + i / 512 * 4096)[i % 512];
        int leaf = rig->tables.format == WALK_ARM64 ? !(d & 2) : (int)(d >> 7 & 1);
        uint64_t mask = rig->tables.format == WALK_ARM64 ? 0xfffffffff000 : 0xffffffffff000;

        if (d == 0)
            continue;
        found++;
        if (level == 3 || leaf)
            stats->leaves[3 - level]++;
        else
            count_below(rig, d & mask, level + 1, 512, stats);
    }
    if (level > rig->tables.start_level)
        CHECK(found > 0);
}

void rig_check_counts(struct stage2_rig *rig)
{
    struct hvmem_stage2_stats is = rig_stats(rig), should;
    int start = rig->tables.start_level;
    static const unsigned shifts[4] = {39, 30, 21, 12};
    uint64_t entries = rig->tables.input_bits > shifts[start]
                           ? 1ull << (rig->tables.input_bits - shifts[start])
                           : 1;

    memset(&should, 0, sizeof should);
    count_below(rig, rig->tables.root, start, entries, &should);
    CHECK_EQ(is.tables, should.tables);
    CHECK_EQ(is.leaves[0], should.leaves[0]);
    CHECK_EQ(is.leaves[1], should.leaves[1]);
    CHECK_EQ(is.leaves[2], should.leaves[2]);
}
