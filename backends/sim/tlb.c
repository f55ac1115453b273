/* SPDX-License-Identifier: BSD-2-Clause */
/* Model of per-CPU TLBs; see tlb.h. */
#include "tlb.h"

void *memset(void *to, int byte, hvmem_size bytes);

static hvmem_u64 next_random(struct hvmem_sim_tlb *tlb)
{
    hvmem_u64 x = tlb->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    tlb->random = x;
    return x;
}

static struct hvmem_sim_entry *entries_of(const struct hvmem_sim_tlb *tlb, hvmem_cpu cpu)
{
    return tlb->entries + (hvmem_size)cpu * tlb->config.slots;
}

const struct hvmem_sim_entry *hvmem_sim_tlb_entries(const struct hvmem_sim_tlb *tlb, hvmem_cpu cpu)
{
    return entries_of(tlb, cpu);
}

/* ---- tags ------------------------------------------------------------------------------------ */

static int by_root(const struct hvmem_sim_tlb *tlb, hvmem_u32 regime)
{
    return tlb->config.roots && regime == HVMEM_REGIME_STAGE2;
}

/* Whether an entry is used for accesses in this space. */
static int tagged_for(const struct hvmem_sim_tlb *tlb, const struct hvmem_sim_entry *entry,
                      const struct hvmem_tlb_space *space)
{
    if (entry->regime != space->regime)
        return 0;
    if (by_root(tlb, entry->regime))
        return entry->root == space->root;
    return entry->global || entry->id == space->id;
}

int hvmem_sim_tlb_usable(const struct hvmem_sim_tlb *tlb, hvmem_u32 row,
                         const struct hvmem_sim_entry *entry)
{
    return entry->valid && tlb->loaded[row].on && tagged_for(tlb, entry, &tlb->loaded[row].space);
}

static int covers(const struct hvmem_sim_entry *entry, hvmem_u64 page)
{
    if (entry->fragment)
        return page == entry->page + (entry->fragment - 1);
    return page >> entry->shift == entry->page >> entry->shift;
}

/* ---- filling --------------------------------------------------------------------------------- */

static struct hvmem_sim_entry *find(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                                    const struct hvmem_tlb_space *space, hvmem_u64 page)
{
    struct hvmem_sim_entry *entry = entries_of(tlb, cpu);
    hvmem_u32 i;

    for (i = 0; i < tlb->config.slots; i++, entry++) {
        if (entry->valid && !entry->table && covers(entry, page) && tagged_for(tlb, entry, space))
            return entry;
    }
    return 0;
}

/* A free slot, or some victim's. */
static struct hvmem_sim_entry *slot_for(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu)
{
    struct hvmem_sim_entry *entry = entries_of(tlb, cpu);
    hvmem_u32 i;

    for (i = 0; i < tlb->config.slots; i++) {
        if (!entry[i].valid)
            return &entry[i];
    }
    return &entry[next_random(tlb) % tlb->config.slots];
}

/* Cache what a walk for the page gave, under the tag of the space. */
static struct hvmem_sim_entry *fill(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                                    const struct hvmem_tlb_space *space, hvmem_u64 page,
                                    const struct hvmem_sim_entry *made)
{
    struct hvmem_sim_entry *slot = slot_for(tlb, cpu);

    *slot = *made;
    if (tlb->config.fragments && !made->table && made->shift && (next_random(tlb) & 3))
        slot->fragment = (hvmem_u32)(page - made->page) + 1;
    slot->regime = space->regime;
    slot->id = space->id;
    slot->root = space->root;
    slot->valid = 1;
    return slot;
}

/* The pointer to the deepest table for the page that the CPU has cached. */
static const struct hvmem_sim_entry *deepest(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                                             const struct hvmem_tlb_space *space, hvmem_u64 page)
{
    const struct hvmem_sim_entry *entry = entries_of(tlb, cpu), *best = 0;
    hvmem_u32 i;

    for (i = 0; i < tlb->config.slots; i++, entry++) {
        if (entry->valid && entry->table && covers(entry, page) && tagged_for(tlb, entry, space) &&
            (!best || entry->level > best->level))
            best = entry;
    }
    return best;
}

/* Descriptor by descriptor, at most `steps` of them; pointers to tables are cached on the way. */
static struct hvmem_sim_entry *walk_steps(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                                          const struct hvmem_tlb_space *space, hvmem_u64 page,
                                          hvmem_u32 steps)
{
    const struct hvmem_sim_entry *table = deepest(tlb, cpu, space, page);
    hvmem_u32 first = tlb->config.level;
    hvmem_u32 level = table ? table->level + 1u : first;
    hvmem_u64 frame = table ? table->frame : 0;

    for (; level < first + tlb->config.levels && steps; level++, steps--) {
        struct hvmem_sim_entry made;

        memset(&made, 0, sizeof made);
        if (!tlb->config.step(tlb->config.ctx, space, frame, level - first, page, &made))
            return 0;
        made.level = (hvmem_u8)level;
        frame = made.frame;
        if (!made.table)
            return fill(tlb, cpu, space, page, &made);
        (void)fill(tlb, cpu, space, page, &made);
    }
    return 0;
}

static struct hvmem_sim_entry *walk(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                                    const struct hvmem_tlb_space *space, hvmem_u64 page)
{
    struct hvmem_sim_entry made;

    if (tlb->config.step)
        return walk_steps(tlb, cpu, space, page, HVMEM_SIM_LEVELS);
    memset(&made, 0, sizeof made);
    if (!tlb->config.walk(tlb->config.ctx, space, page, &made))
        return 0;
    return fill(tlb, cpu, space, page, &made);
}

int hvmem_sim_tlb_access(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu, hvmem_u64 page,
                         struct hvmem_sim_entry *entry)
{
    const struct hvmem_sim_loaded *loaded = &tlb->loaded[cpu];
    struct hvmem_sim_entry *hit;

    if (!loaded->on)
        return 0;
    hit = find(tlb, cpu, &loaded->space, page);
    if (!hit)
        hit = walk(tlb, cpu, &loaded->space, page);
    if (!hit)
        return 0;
    *entry = *hit;
    return 1;
}

void hvmem_sim_tlb_speculate(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu, hvmem_u32 count)
{
    const struct hvmem_sim_loaded *loaded = &tlb->loaded[cpu];

    for (; loaded->on && count > 0; count--) {
        hvmem_u64 page = next_random(tlb);

        if (tlb->config.pick)
            page = tlb->config.pick(page);
        else
            page &= ((hvmem_u64)1 << tlb->config.page_bits) - 1;

        if (find(tlb, cpu, &loaded->space, page))
            continue;
        if (tlb->config.step && !(next_random(tlb) & 3))
            (void)walk_steps(tlb, cpu, &loaded->space, page, 1); /* given up half-way */
        else
            (void)walk(tlb, cpu, &loaded->space, page);
    }
}

void hvmem_sim_tlb_set_loaded(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                              const struct hvmem_tlb_space *space)
{
    tlb->loaded[cpu].on = space != 0;
    if (space)
        tlb->loaded[cpu].space = *space;
}

/* ---- invalidating ---------------------------------------------------------------------------- */

/*
 * Whether the operations of a range cover the entry: one operation at each stride from its start,
 * each dropping what comes from the table entry that translates that very address, in pieces or whole.
 */
static int range_covers(const struct hvmem_tlb_range *range, const struct hvmem_sim_entry *entry)
{
    hvmem_u32 stride = range->stride_shift > 12 ? range->stride_shift - 12u : 0;
    hvmem_u64 start = range->start >> 12;
    hvmem_u64 ops = (range->pages + ((hvmem_u64)1 << stride) - 1) >> stride;
    hvmem_u64 first = entry->page;
    hvmem_u64 last = entry->page + (((hvmem_u64)1 << entry->shift) - 1);
    hvmem_u64 k;

    if (entry->global && !(range->flags & HVMEM_RANGE_GLOBAL))
        return 0;
    if (entry->table && (range->flags & HVMEM_RANGE_LEAF))
        return 0;
    if (!entry->table && range->level != HVMEM_LEVEL_UNKNOWN && range->level != entry->level)
        return 0;
    if (last < start || !ops)
        return 0;
    /* The first operation at or after the entry's first page, if it is inside the entry. */
    k = first <= start ? 0 : (first - start + ((hvmem_u64)1 << stride) - 1) >> stride;
    return k < ops && start + (k << stride) <= last;
}

/* Regimes that "all ids of the regime" drops besides itself: stage 2 takes combined entries along. */
static int regime_covers(hvmem_u32 flushed, hvmem_u32 regime)
{
    return flushed == regime || (flushed == HVMEM_REGIME_STAGE2 && regime == HVMEM_REGIME_GUEST);
}

static int flush_covers(const struct hvmem_sim_tlb *tlb, const struct hvmem_tlb_flush *flush,
                        const struct hvmem_sim_entry *entry)
{
    hvmem_u32 i;

    if (flush->what == HVMEM_FLUSH_ALL)
        return 1;
    if (!regime_covers(flush->space.regime, entry->regime))
        return 0;
    if (flush->what == HVMEM_FLUSH_REGIME)
        return !(entry->global && entry->regime == HVMEM_REGIME_USER);
    if (by_root(tlb, flush->space.regime)) {
        if (entry->root != flush->space.root)
            return 0;
    } else if (entry->id != flush->space.id && flush->space.regime != HVMEM_REGIME_HOST) {
        return 0;
    }
    if (flush->what == HVMEM_FLUSH_SPACE)
        return flush->space.regime == HVMEM_REGIME_HOST || !entry->global;
    for (i = 0; i < flush->count; i++) {
        if (range_covers(&flush->ranges[i], entry))
            return 1;
    }
    return 0;
}

/* `slack`: an entry in two stays a while (flawed hardware). */
static void flush_one(struct hvmem_sim_tlb *tlb, hvmem_u32 row, const struct hvmem_tlb_flush *flush,
                      int slack)
{
    struct hvmem_sim_entry *entry = entries_of(tlb, row);
    hvmem_u32 i;

    for (i = 0; i < tlb->config.slots; i++, entry++) {
        if (entry->valid != 1 || !flush_covers(tlb, flush, entry))
            continue;
        entry->valid = slack && (next_random(tlb) & 1) ? HVMEM_SIM_LINGERS : 0;
        tlb->dropped += !entry->valid;
    }
}

void hvmem_sim_tlb_flush_device(struct hvmem_sim_tlb *tlb, hvmem_u32 row,
                                const struct hvmem_tlb_flush *flush)
{
    flush_one(tlb, row, flush, 0);
}

void hvmem_sim_tlb_wait(struct hvmem_sim_tlb *tlb)
{
    struct hvmem_sim_entry *entry = tlb->entries;
    hvmem_size i, count = (hvmem_size)tlb->config.cpus * tlb->config.slots;

    for (i = 0; tlb->config.flawed && i < count; i++, entry++) {
        if (entry->valid == HVMEM_SIM_LINGERS) {
            entry->valid = HVMEM_SIM_ANNOUNCED;
        } else if (entry->valid == HVMEM_SIM_ANNOUNCED) {
            entry->valid = 0;
            tlb->dropped++;
        }
    }
}

void hvmem_sim_tlb_issue(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                         const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 i;

    if (flush->scope == HVMEM_SCOPE_LOCAL) {
        flush_one(tlb, cpu, flush, 0);
        return;
    }
    for (i = 0; i < tlb->config.cpus; i++)
        flush_one(tlb, i, flush, tlb->config.flawed && i != cpu);
}

static hvmem_status check_flush(struct hvmem_sim_tlb *tlb, const struct hvmem_tlb_flush *flush)
{
    if (!flush || flush->size != sizeof *flush || flush->what > HVMEM_FLUSH_REGIME ||
        flush->scope > HVMEM_SCOPE_OUTER || flush->space.regime > HVMEM_REGIME_GUEST)
        return HVMEM_E_ARG;
    if (flush->scope != HVMEM_SCOPE_LOCAL && !(tlb->config.features & HVMEM_CAP_BROADCAST))
        return HVMEM_E_UNSUPPORTED;
    if (tlb->fail) {
        tlb->fail--;
        return HVMEM_E_HOST;
    }
    return HVMEM_OK;
}

hvmem_status hvmem_sim_tlb_flush(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                                 const struct hvmem_tlb_flush *flush)
{
    hvmem_status status = check_flush(tlb, flush);

    if (status != HVMEM_OK)
        return status;
    if (tlb->config.observe)
        tlb->config.observe(tlb->config.ctx, cpu, flush);
    tlb->batches++;
    tlb->whole[flush->what]++;
    hvmem_sim_tlb_issue(tlb, cpu, flush);
    if (flush->scope == HVMEM_SCOPE_LOCAL)
        return HVMEM_OK;
    hvmem_sim_tlb_wait(tlb);
    if (tlb->backend.caps.quirks & HVMEM_QUIRK_REPEAT_TLBI)
        hvmem_sim_tlb_wait(tlb);
    return HVMEM_OK;
}

/* ---- guests entered by an entry structure ------------------------------------------------------ */

#define TLB_CONTROL_NOTHING 0u
#define TLB_CONTROL_ALL     1u
#define TLB_CONTROL_GUEST   3u

void hvmem_sim_tlb_vmrun(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                         const struct hvmem_tlb_space *space, hvmem_u32 tlb_control)
{
    struct hvmem_sim_entry *entry = entries_of(tlb, cpu);
    hvmem_u32 i;

    for (i = 0; tlb_control != TLB_CONTROL_NOTHING && i < tlb->config.slots; i++) {
        if (entry[i].valid && (tlb_control == TLB_CONTROL_ALL || entry[i].id == space->id)) {
            entry[i].valid = 0;
            tlb->dropped++;
        }
    }
    hvmem_sim_tlb_set_loaded(tlb, cpu, space);
}

static HVMEM_CALLBACK hvmem_status sim_guest_entry(struct hvmem_backend *be, hvmem_u32 owed,
                                                   hvmem_u32 *value)
{
    const struct hvmem_sim_tlb *tlb = be->ctx;

    if (!(tlb->config.features & HVMEM_CAP_GUEST))
        return HVMEM_E_UNSUPPORTED;
    if (owed > HVMEM_ENTRY_FLUSH_ALL)
        return HVMEM_E_ARG;
    *value = owed == HVMEM_ENTRY_NOTHING ? TLB_CONTROL_NOTHING : TLB_CONTROL_ALL;
    if (owed == HVMEM_ENTRY_FLUSH_GUEST && (tlb->config.features & HVMEM_CAP_FLUSH_BY_ASID))
        *value = TLB_CONTROL_GUEST;
    return HVMEM_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static HVMEM_CALLBACK hvmem_status sim_flush(struct hvmem_backend *be,
                                             const struct hvmem_tlb_flush *flush)
{
    struct hvmem_sim_tlb *tlb = be->ctx;

    return hvmem_sim_tlb_flush(tlb, tlb->current, flush);
}

static const struct hvmem_backend_ops sim_ops = {
    .size = sizeof(struct hvmem_backend_ops),
    .tlb_flush = sim_flush,
    .guest_entry = sim_guest_entry,
};

hvmem_size hvmem_sim_tlb_bytes(const struct hvmem_sim_tlb_config *config)
{
    return (hvmem_size)(config->cpus + config->devices) *
           (sizeof(struct hvmem_sim_loaded) + config->slots * sizeof(struct hvmem_sim_entry));
}

void hvmem_sim_tlb_init(struct hvmem_sim_tlb *tlb, void *memory,
                        const struct hvmem_sim_tlb_config *config)
{
    memset(tlb, 0, sizeof *tlb);
    memset(memory, 0, hvmem_sim_tlb_bytes(config));
    tlb->config = *config;
    tlb->random = config->seed | 1;
    tlb->loaded = memory;
    tlb->entries = (struct hvmem_sim_entry *)(void *)(tlb->loaded + config->cpus + config->devices);
    tlb->backend.ops = &sim_ops;
    tlb->backend.ctx = tlb;
    tlb->backend.caps.size = sizeof tlb->backend.caps;
    tlb->backend.caps.page_shift = 12;
    tlb->backend.caps.features = config->features;
    tlb->backend.caps.quirks = config->flawed ? HVMEM_QUIRK_REPEAT_TLBI : 0;
}
