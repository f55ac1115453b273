/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine of gather_rig.h: page tables, unmaps in steps, random programs. */
#include "gather_rig.h"

#include <string.h>

/* An entry: frame << 12 | HVMEM_PTE_*. Levels 1 (root), 2, 3; 512 entries each. */
static uint64_t entry_of(uint64_t frame, unsigned kind)
{
    return frame << 12 | kind;
}

static uint64_t *slot(struct gather_rig *rig, hvmem_mfn table, unsigned level, uint64_t page)
{
    return &rig->mem[table - GATHER_BASE][page >> (9 * (3 - level)) & 511];
}

static unsigned short *used(struct gather_rig *rig, hvmem_mfn table)
{
    return &rig->used[table - GATHER_BASE];
}

/* The table of `level` for a page, or 0. */
static hvmem_mfn table_of(struct gather_rig *rig, int space, uint64_t page, unsigned level)
{
    hvmem_mfn table = rig->root[space];
    unsigned at;

    for (at = 1; at < level; at++) {
        uint64_t word = *slot(rig, table, at, page);

        if ((word & 3) != HVMEM_PTE_TABLE)
            return 0;
        table = word >> 12;
    }
    return table;
}

hvmem_mfn gather_rig_mapped(struct gather_rig *rig, int space, uint64_t page)
{
    hvmem_mfn table = table_of(rig, space, page, 2);
    uint64_t word = table ? *slot(rig, table, 2, page) : 0;

    if ((word & 3) == HVMEM_PTE_LEAF)
        return (word >> 12) + (page & 511);
    return (word & 3) == HVMEM_PTE_TABLE ? *slot(rig, word >> 12, 3, page) >> 12 : 0;
}

/* A block for the space. Handed over: nothing may reach it any more. */
static hvmem_mfn take(struct gather_rig *rig, int space, hvmem_u32 order)
{
    hvmem_mfn mfn = 0, i;

    if (hvmem_alloc_order(rig->heap, order, &mfn) != HVMEM_OK)
        return 0;
    for (i = mfn; i < mfn + (1ull << order); i++)
        rig->reused += rig->owner[i - GATHER_BASE] != 0;
    gather_rig_check(rig);
    for (i = mfn; i < mfn + (1ull << order); i++)
        rig->owner[i - GATHER_BASE] = (unsigned char)(space + 1);
    return mfn;
}

/* The table of the next level, made if there is none. 0: a block is there, or no memory. */
static hvmem_mfn descend(struct gather_rig *rig, int space, hvmem_mfn table, unsigned level,
                         uint64_t page)
{
    uint64_t *word = slot(rig, table, level, page);
    hvmem_mfn made;

    if ((*word & 3) == HVMEM_PTE_TABLE)
        return *word >> 12;
    if (*word)
        return 0;
    made = take(rig, space, 0);
    if (!made)
        return 0;
    memset(rig->mem[made - GATHER_BASE], 0, sizeof *rig->mem);
    *used(rig, made) = 0;
    *word = entry_of(made, HVMEM_PTE_TABLE);
    ++*used(rig, table);
    return made;
}

int gather_rig_map(struct gather_rig *rig, int space, uint64_t page, unsigned shift)
{
    unsigned level = shift ? 2 : 3;
    hvmem_mfn table = descend(rig, space, rig->root[space], 1, page), mfn;

    if (table && level == 3)
        table = descend(rig, space, table, 2, page);
    if (!table || *slot(rig, table, level, page))
        return 0;
    mfn = take(rig, space, shift);
    if (!mfn)
        return 0;
    /* What a walker would take for entries, were it to walk this as a table. */
    memset(rig->mem[mfn - GATHER_BASE], 0x11, sizeof *rig->mem);
    *slot(rig, table, level, page) = entry_of(mfn, HVMEM_PTE_LEAF);
    ++*used(rig, table);
    return 1;
}

/* ---- unmapping ---------------------------------------------------------------------------------- */

struct gather_op *gather_rig_open(struct gather_rig *rig, int space, uint64_t page, uint64_t pages,
                                  hvmem_u32 flags)
{
    struct gather_op *op = rig->op[space];

    while (op < &rig->op[space][GATHER_OPS] && op->open)
        op++;
    REQUIRE(op < &rig->op[space][GATHER_OPS]);
    memset(op, 0, sizeof *op);
    op->open = 1;
    op->space = space;
    op->page = op->next = page;
    op->pages = pages;
    CHECK_EQ(hvmem_gather_begin(&op->gather, &rig->mapping[space], flags, page << 12, pages << 12),
             HVMEM_OK);
    return op;
}

static void gather_frames(struct gather_rig *rig, struct gather_op *op, hvmem_mfn mfn,
                          unsigned order)
{
    hvmem_mfn i;

    CHECK_EQ(hvmem_gather_free(&op->gather, mfn, order, NULL, 0), HVMEM_OK);
    for (i = mfn; i < mfn + (1ull << order); i++)
        rig->by[i - GATHER_BASE] = op;
}

static void gather_table(struct gather_rig *rig, struct gather_op *op, hvmem_mfn table,
                         uint64_t page, unsigned level, hvmem_u32 flags)
{
    hvmem_mfn parent = table_of(rig, op->space, page, level - 1);

    *slot(rig, parent, level - 1, page) = 0;
    CHECK_EQ(hvmem_gather_table(&op->gather, table, page << 12, level, flags), HVMEM_OK);
    rig->by[table - GATHER_BASE] = op;
    if (!--*used(rig, parent) && parent != rig->root[op->space])
        gather_table(rig, op, parent, page, level - 1, HVMEM_TABLE_TOLD);
}

/* The whole table at once: its entries are not told. */
static void drop_table(struct gather_rig *rig, struct gather_op *op, hvmem_mfn table, uint64_t page)
{
    int i;

    gather_table(rig, op, table, page, 3, 0);
    for (i = 0; i < 512; i++)
        if (rig->mem[table - GATHER_BASE][i])
            gather_frames(rig, op, rig->mem[table - GATHER_BASE][i] >> 12, 0);
}

/* Look at one entry; returns the page after it. */
static uint64_t look(struct gather_rig *rig, struct gather_op *op, uint64_t page)
{
    uint64_t end = op->page + op->pages, after = (page | 511) + 1;
    hvmem_mfn table = table_of(rig, op->space, page, 2);
    uint64_t *word = table ? slot(rig, table, 2, page) : NULL, old;

    if (!word || !*word)
        return after;
    old = *word;
    if ((old & 3) == HVMEM_PTE_LEAF) {
        if ((page & 511) || after > end)
            return after;
        *word = 0;
        CHECK_EQ(hvmem_gather_entry(&op->gather, page << 12, 21, 2, 0), HVMEM_OK);
        gather_frames(rig, op, old >> 12, 9);
        if (!--*used(rig, table))
            gather_table(rig, op, table, page, 2, HVMEM_TABLE_TOLD);
        return after;
    }
    table = old >> 12;
    if (!(page & 511) && after <= end && !test_below(&rig->rng, 3)) {
        drop_table(rig, op, table, page);
        return after;
    }
    word = slot(rig, table, 3, page);
    old = *word;
    if (!old)
        return page + 1;
    *word = 0;
    CHECK_EQ(hvmem_gather_entry(&op->gather, page << 12, 12, 3, 0), HVMEM_OK);
    gather_frames(rig, op, old >> 12, 0);
    if (!--*used(rig, table))
        gather_table(rig, op, table, page, 3, HVMEM_TABLE_TOLD);
    return page + 1;
}

void gather_rig_step(struct gather_rig *rig, struct gather_op *op, uint64_t steps)
{
    for (; steps && op->next < op->page + op->pages; steps--)
        op->next = look(rig, op, op->next);
}

void gather_rig_disown(struct gather_rig *rig, const struct gather_op *op)
{
    int i;

    for (i = 0; i < GATHER_FRAMES; i++) {
        if (rig->by[i] == op) {
            rig->owner[i] = 0;
            rig->by[i] = NULL;
        }
    }
}

/* What was requested and is not mapped now: nobody who may use it has it. */
static void check_gone(struct gather_rig *rig, const struct gather_op *op)
{
    hvmem_u32 row, i;

    for (row = 0; row < GATHER_CPUS + GATHER_SPACES; row++) {
        const struct hvmem_sim_entry *entry = hvmem_sim_tlb_entries(rig->tlb, row);
        const struct hvmem_sim_loaded *loaded = &rig->tlb->loaded[row];

        if (!loaded->on || loaded->space.root != rig->root[op->space] ||
            (row < GATHER_CPUS && rig->lazy[row]))
            continue;
        for (i = 0; i < rig->tlb->config.slots; i++) {
            if (entry[i].valid && !entry[i].table && entry[i].id == loaded->space.id &&
                entry[i].page >= op->page && entry[i].page < op->next &&
                entry[i].page < op->page + op->pages &&
                !gather_rig_mapped(rig, op->space, entry[i].page)) {
                if (!rig->stale++)
                    test_note("row %u: page %#llx of space %d was to be gone", row,
                              (unsigned long long)entry[i].page, op->space);
            }
        }
    }
}

/* A failed end: make peace with the device, flush all, and take what went to quarantine back. */
static void recover(struct gather_rig *rig, struct gather_op *op)
{
    struct hvmem_block block;
    int i;

    rig->device_status = 0;
    CHECK_EQ(hvmem_shootdown(&rig->mapping[op->space], NULL, 0, HVMEM_SHOOT_TABLES), HVMEM_OK);
    for (i = 0; i < GATHER_FRAMES; i++) {
        if (rig->by[i] != op)
            continue;
        REQUIRE_EQ(hvmem_lookup(rig->heap, GATHER_BASE + (hvmem_mfn)i, &block), HVMEM_OK);
        if (block.state == HVMEM_BLOCK_QUARANTINE)
            CHECK_EQ(hvmem_quarantine_release(rig->heap, block.mfn), HVMEM_OK);
    }
    gather_rig_disown(rig, op);
}

hvmem_status gather_rig_close(struct gather_rig *rig, struct gather_op *op, int cancel)
{
    hvmem_status status;
    unsigned int calls;

    rig->finishing = op;
    for (calls = 0; calls < GATHER_FRAMES; calls++) {
        status = cancel ? hvmem_gather_cancel(&op->gather) : hvmem_gather_finish(&op->gather);
        if (status != HVMEM_AGAIN)
            break;
        gather_rig_check(rig);
    }
    if (status == HVMEM_OK) {
        gather_rig_disown(rig, op);
        check_gone(rig, op);
    }
    rig->finishing = NULL;
    if (status != HVMEM_OK)
        recover(rig, op);
    gather_rig_check(rig);
    op->open = 0;
    return status;
}

hvmem_status gather_rig_unmap(struct gather_rig *rig, int space, uint64_t page, uint64_t pages)
{
    struct gather_op *op = gather_rig_open(rig, space, page, pages, 0);

    gather_rig_step(rig, op, pages);
    return gather_rig_close(rig, op, 0);
}

/* ---- for tests of single steps ------------------------------------------------------------------ */

void gather_rig_standard(struct gather_rig *rig, enum gather_kind kind, unsigned flags)
{
    gather_rig_begin(rig, kind, GATHER_RIG_QUIET | flags, 77);
    gather_rig_switch(rig, 0, 0);
    gather_rig_switch(rig, 1, 0);
    gather_rig_switch(rig, 2, 1);
    gather_rig_switch(rig, 3, 0);
    gather_rig_lazy(rig, 3);
    rig->logged = 0;
}

struct hvmem_mapping_stats gather_rig_stats(const struct gather_rig *rig, int space)
{
    struct hvmem_mapping_stats stats;

    REQUIRE_EQ(hvmem_mapping_get_stats(&rig->mapping[space], sizeof stats, &stats), HVMEM_OK);
    return stats;
}

struct hvmem_block gather_rig_block(struct gather_rig *rig, hvmem_mfn mfn)
{
    struct hvmem_block block;

    REQUIRE_EQ(hvmem_lookup(rig->heap, mfn, &block), HVMEM_OK);
    return block;
}

/* ---- random programs ---------------------------------------------------------------------------- */

static int in_an_op(struct gather_rig *rig, int space, uint64_t page, uint64_t pages)
{
    int i;

    for (i = 0; i < GATHER_OPS; i++) {
        const struct gather_op *op = &rig->op[space][i];

        if (op->open && page < op->page + op->pages && op->page < page + pages)
            return 1;
    }
    return 0;
}

static void random_map(struct gather_rig *rig, int space)
{
    uint64_t page = test_below(&rig->rng, GATHER_PAGES), n = 1 + test_below(&rig->rng, 40);

    if (!test_below(&rig->rng, 6)) {
        page &= ~511ull;
        if (!in_an_op(rig, space, page, 512))
            (void)gather_rig_map(rig, space, page, 9);
        return;
    }
    for (; n && page < GATHER_PAGES; n--, page++)
        if (!in_an_op(rig, space, page, 1))
            (void)gather_rig_map(rig, space, page, 0);
}

/* Whole blocks, any run, or everything. */
static void random_open(struct gather_rig *rig, int space)
{
    uint64_t page = test_below(&rig->rng, GATHER_PAGES);
    uint64_t pages = 1 + test_below(&rig->rng, GATHER_PAGES - page);
    hvmem_u32 flags = test_below(&rig->rng, 3) ? 0 : HVMEM_GATHER_PREEMPTIBLE;

    switch (test_below(&rig->rng, 4)) {
    case 0:
        pages = 1 + pages % 20;
        break;
    case 1:
        page &= ~511ull;
        pages = (1 + pages % 3) * 512;
        break;
    case 2:
        page = 0;
        pages = GATHER_PAGES;
        break;
    default:
        break;
    }
    (void)gather_rig_open(rig, space, page, pages, flags);
}

static void random_op(struct gather_rig *rig, int space)
{
    struct gather_op *op = &rig->op[space][test_below(&rig->rng, GATHER_OPS)];
    int i, free_slots = 0;

    for (i = 0; i < GATHER_OPS; i++)
        free_slots += !rig->op[space][i].open;
    if (!op->open) {
        if (free_slots)
            random_open(rig, space);
        return;
    }
    if (op->next < op->page + op->pages && test_below(&rig->rng, 4)) {
        gather_rig_step(rig, op, 1 + test_below(&rig->rng, 300));
        return;
    }
    if (!test_below(&rig->rng, 40))
        rig->device_status = test_below(&rig->rng, 2) ? HVMEM_E_TIMEOUT : 1000;
    (void)gather_rig_close(rig, op, !test_below(&rig->rng, 4));
    rig->device_status = (int)test_below(&rig->rng, 3);
}

static void random_cpu(struct gather_rig *rig)
{
    hvmem_cpu cpu = (hvmem_cpu)test_below(&rig->rng, GATHER_CPUS);

    if (!(rig->online >> cpu & 1)) {
        gather_rig_online(rig, cpu);
        return;
    }
    switch (test_below(&rig->rng, 8)) {
    case 0:
        if (cpu && cpu != rig->current)
            gather_rig_offline(rig, cpu);
        break;
    case 1:
        gather_rig_idle(rig, cpu);
        break;
    case 2:
    case 3:
        gather_rig_lazy(rig, cpu);
        break;
    default:
        gather_rig_switch(rig, cpu, (int)test_below(&rig->rng, GATHER_SPACES));
        break;
    }
    gather_rig_check(rig);
}

void gather_rig_run(struct gather_rig *rig, uint64_t steps)
{
    while (steps-- && !rig->stale && !rig->reused) {
        int space = (int)test_below(&rig->rng, GATHER_SPACES);
        hvmem_cpu cpu = (hvmem_cpu)test_below(&rig->rng, GATHER_CPUS);

        if (rig->online >> cpu & 1)
            gather_rig_act(rig, cpu);
        switch (test_below(&rig->rng, 8)) {
        case 0:
        case 1:
            random_map(rig, space);
            break;
        case 2:
            random_cpu(rig);
            break;
        case 3:
            gather_rig_speculate(rig, 12);
            break;
        default:
            random_op(rig, space);
            break;
        }
    }
    for (int space = 0; space < GATHER_SPACES; space++)
        for (int i = 0; i < GATHER_OPS; i++)
            if (rig->op[space][i].open)
                (void)gather_rig_close(rig, &rig->op[space][i], 1);
}
