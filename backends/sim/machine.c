/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine: frames, CPUs, devices, interrupts, and the back-end; see machine.h. */
#include "machine.h"

void *memset(void *to, int byte, hvmem_size bytes);

static hvmem_u64 next_random(struct hvmem_sim_machine *m)
{
    hvmem_u64 x = m->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    m->random = x;
    return x >> 8;
}

static void point(struct hvmem_sim_machine *m, const char *where)
{
    hvmem_cpu before = m->current;

    if (m->config.point)
        m->config.point(m->config.ctx, where);
    m->current = before;
}

static struct hvmem_sim_frame *frame_of(const struct hvmem_sim_machine *m, hvmem_mfn mfn)
{
    return &m->frame[mfn - m->config.base];
}

/* ---- frames ---------------------------------------------------------------------------------- */

/*
 * What a frame holds that is no table: words that a walker takes for descriptors of frames all over
 * the machine, tables among them.
 */
static void fill_with_traps(struct hvmem_sim_machine *m, struct hvmem_sim_frame *frame)
{
    hvmem_u32 i;

    for (i = 0; i < HVMEM_SIM_FANOUT; i++)
        frame->word[i] =
            (hvmem_u32)(next_random(m) % m->config.frames) << 2 | 1u | (hvmem_u32)(i & 2);
}

void hvmem_sim_use_data(struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u64 frames,
                        hvmem_u32 serial)
{
    for (; frames; frames--, mfn++) {
        struct hvmem_sim_frame *frame = frame_of(m, mfn);

        frame->use = HVMEM_SIM_DATA;
        frame->serial = serial;
        frame->turn++;
        fill_with_traps(m, frame);
    }
}

void hvmem_sim_use_table(struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u32 serial)
{
    struct hvmem_sim_frame *frame = frame_of(m, mfn);

    memset(frame->word, 0, sizeof frame->word);
    frame->turn++;
    frame->use = HVMEM_SIM_TABLE;
    frame->serial = serial;
}

void hvmem_sim_use_none(struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u64 frames)
{
    for (; frames; frames--, mfn++) {
        frame_of(m, mfn)->use = HVMEM_SIM_FREE;
        frame_of(m, mfn)->serial = 0;
        fill_with_traps(m, frame_of(m, mfn));
    }
}

/* Frames behind an entry. */
static hvmem_u64 span_of(const struct hvmem_sim_entry *entry)
{
    return !entry->table && entry->shift ? HVMEM_SIM_FANOUT : 1;
}

/* Whether an entry of a TLB leads to one of the frames. */
static int reaches(const struct hvmem_sim_entry *entry, hvmem_mfn mfn, hvmem_u64 frames)
{
    return entry->valid && entry->frame < mfn + frames && mfn < entry->frame + span_of(entry);
}

hvmem_u64 hvmem_sim_reached(const struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u64 frames)
{
    hvmem_u64 n = 0;
    hvmem_u32 row, i;

    for (row = 0; row < m->config.cpus + m->config.devices; row++) {
        const struct hvmem_sim_entry *entry = hvmem_sim_tlb_entries(&m->tlb, row);
        int cpu = row < m->config.cpus;

        if (cpu && !hvmem_sim_online(m, row))
            continue;
        for (i = 0; i < m->config.slots; i++)
            n += (hvmem_u64)(reaches(&entry[i], mfn, frames) &&
                             (!cpu || (hvmem_sim_tlb_usable(&m->tlb, row, &entry[i]) &&
                                       (entry[i].table || !hvmem_sim_lazy(m, row)))));
    }
    return n;
}

/* How often the frames behind an entry were put to use, together. */
static hvmem_u32 turns(const struct hvmem_sim_machine *m, const struct hvmem_sim_entry *entry)
{
    hvmem_u64 first = entry->frame - m->config.base, i;
    hvmem_u32 sum = 0;

    for (i = first; i < first + span_of(entry) && i < m->config.frames; i++)
        sum += m->frame[i].turn;
    return sum;
}

hvmem_u64 hvmem_sim_outdated(const struct hvmem_sim_machine *m, hvmem_u32 row)
{
    const struct hvmem_sim_entry *entry = hvmem_sim_tlb_entries(&m->tlb, row);
    hvmem_u64 n = 0;
    hvmem_u32 i;

    for (i = 0; i < m->config.slots; i++)
        n += (hvmem_u64)(hvmem_sim_tlb_usable(&m->tlb, row, &entry[i]) &&
                         entry[i].turn != turns(m, &entry[i]));
    return n;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The root's index is in the low half of tag.root, the serial in the high one. */
hvmem_mfn hvmem_sim_root(const struct hvmem_sim_machine *m, const struct hvmem_sim_space *space)
{
    return m->config.base + (hvmem_u32)space->tag.root;
}

void hvmem_sim_space_create(struct hvmem_sim_machine *m, struct hvmem_sim_space *space,
                            hvmem_u32 regime, hvmem_u32 id, hvmem_mfn root)
{
    space->serial = ++m->serials;
    space->tag.regime = regime;
    space->tag.id = id;
    space->tag.root = (hvmem_u64)space->serial << 32 | (root - m->config.base);
    hvmem_sim_use_table(m, root, space->serial);
}

static hvmem_u32 descriptor(const struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u32 table)
{
    return (hvmem_u32)(mfn - m->config.base) << 2 | table << 1 | 1u;
}

static hvmem_u32 *root_word(const struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                            hvmem_u64 slot)
{
    return &frame_of(m, hvmem_sim_root(m, space))->word[slot];
}

int hvmem_sim_has_table(const struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                        hvmem_u32 slot)
{
    return (*root_word(m, space, slot) & 3u) == 3u;
}

void hvmem_sim_hook(struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                    hvmem_u32 slot, hvmem_mfn table)
{
    hvmem_sim_use_table(m, table, space->serial);
    *root_word(m, space, slot) = descriptor(m, table, 1);
}

hvmem_mfn hvmem_sim_unhook(struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                           hvmem_u32 slot)
{
    hvmem_u32 *word = root_word(m, space, slot);
    hvmem_mfn table = m->config.base + (*word >> 2);

    *word = 0;
    return table;
}

/* The descriptor that maps a page: of its table, or of the root where there is none. */
static hvmem_u32 *leaf_word(const struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                            hvmem_u64 page)
{
    hvmem_u32 *word = root_word(m, space, page / HVMEM_SIM_FANOUT);

    if ((*word & 3u) == 3u)
        return &m->frame[*word >> 2].word[page % HVMEM_SIM_FANOUT];
    return word;
}

void hvmem_sim_map(struct hvmem_sim_machine *m, const struct hvmem_sim_space *space, hvmem_u64 page,
                   hvmem_mfn mfn, hvmem_u32 order)
{
    if (order == HVMEM_SIM_BLOCK_ORDER)
        *root_word(m, space, page / HVMEM_SIM_FANOUT) = descriptor(m, mfn, 0);
    else
        *leaf_word(m, space, page) = descriptor(m, mfn, 0);
}

void hvmem_sim_unmap(struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                     hvmem_u64 page)
{
    *leaf_word(m, space, page) = 0;
}

/* The walker's view (hvmem_sim_step). */
static int step(void *ctx, const struct hvmem_tlb_space *space, hvmem_u64 table, hvmem_u32 level,
                hvmem_u64 page, struct hvmem_sim_entry *entry)
{
    struct hvmem_sim_machine *m = ctx;
    const struct hvmem_sim_frame *frame;
    hvmem_u32 word;

    if (page >> 9 >= HVMEM_SIM_FANOUT || (page & 511) >= HVMEM_SIM_FANOUT)
        return 0;
    frame = level ? frame_of(m, table) : &m->frame[(hvmem_u32)space->root];
    m->recycled += frame->use != HVMEM_SIM_TABLE || frame->serial != (hvmem_u32)(space->root >> 32);
    word = frame->word[level ? page & 511 : page >> 9];
    if (!(word & 1u))
        return 0;
    entry->table = level ? 0 : word >> 1 & 1u;
    entry->shift = level ? 0 : 9;
    entry->page = page >> entry->shift << entry->shift;
    entry->frame = m->config.base + (word >> 2);
    entry->turn = turns(m, entry);
    return 1;
}

/* ---- CPUs and devices ------------------------------------------------------------------------ */

int hvmem_sim_online(const struct hvmem_sim_machine *m, hvmem_cpu cpu)
{
    return (int)(m->online[cpu / 64] >> cpu % 64 & 1u);
}

void hvmem_sim_set_online(struct hvmem_sim_machine *m, hvmem_cpu cpu, int online)
{
    if (online)
        m->online[cpu / 64] |= (hvmem_u64)1 << cpu % 64;
    else
        m->online[cpu / 64] &= ~((hvmem_u64)1 << cpu % 64);
}

void hvmem_sim_load(struct hvmem_sim_machine *m, hvmem_u32 row, const struct hvmem_sim_space *space)
{
    hvmem_sim_tlb_set_loaded(&m->tlb, row, space ? &space->tag : 0);
    if (row < m->config.cpus)
        m->lazy[row / 64] &= ~((hvmem_u64)1 << row % 64);
}

void hvmem_sim_set_lazy(struct hvmem_sim_machine *m, hvmem_cpu cpu)
{
    m->lazy[cpu / 64] |= (hvmem_u64)1 << cpu % 64;
}

int hvmem_sim_lazy(const struct hvmem_sim_machine *m, hvmem_cpu cpu)
{
    return (int)(m->lazy[cpu / 64] >> cpu % 64 & 1);
}

void hvmem_sim_speculate_on(struct hvmem_sim_machine *m, hvmem_u32 row, hvmem_u32 count)
{
    if (row >= m->config.cpus || hvmem_sim_online(m, row))
        hvmem_sim_tlb_speculate(&m->tlb, row, count);
}

void hvmem_sim_speculate(struct hvmem_sim_machine *m, hvmem_u32 each)
{
    hvmem_u32 row;

    for (row = 0; row < m->config.cpus + m->config.devices; row++)
        hvmem_sim_speculate_on(m, row, (hvmem_u32)(next_random(m) % (each + 1)));
}

static int refuses(struct hvmem_sim_machine *m)
{
    if (!m->fail)
        return 0;
    m->fail--;
    return 1;
}

hvmem_status hvmem_sim_call_cpus(struct hvmem_sim_machine *m, const struct hvmem_cpuset *cpus,
                                 void (*fn)(void *arg), void *arg)
{
    hvmem_u32 count = m->config.cpus, first = (hvmem_u32)(next_random(m) % count), i;
    hvmem_cpu before = m->current;
    hvmem_u64 asked = 0;

    if (refuses(m))
        return HVMEM_E_HOST;
    m->calls++;
    for (i = 0; i < count; i++) {
        hvmem_cpu cpu = (first + i) % count;

        if (cpu >= cpus->cpus || !(cpus->words[cpu / 64] >> cpu % 64 & 1u))
            continue;
        point(m, "ipi"); /* it is late: its CPU, or any other, does something first */
        if (!hvmem_sim_online(m, cpu))
            continue;
        m->current = cpu;
        fn(arg);
        m->current = before;
        asked += cpu != before;
    }
    point(m, "ipi");
    m->asked += asked;
    hvmem_sim_bill_shootdown(&m->bill, asked);
    return HVMEM_OK;
}

hvmem_status hvmem_sim_device_flush(struct hvmem_sim_machine *m, hvmem_u32 device,
                                    const struct hvmem_tlb_flush *flush)
{
    point(m, "device");
    if (m->answer[device] == HVMEM_SIM_FAILS)
        return HVMEM_E_HOST;
    if (m->answer[device] == HVMEM_SIM_SILENT)
        return HVMEM_E_TIMEOUT;
    hvmem_sim_tlb_flush_device(&m->tlb, m->config.cpus + device, flush);
    return HVMEM_OK;
}

/* ---- back-end -------------------------------------------------------------------------------- */

static HVMEM_CALLBACK hvmem_status be_flush(struct hvmem_backend *be,
                                            const struct hvmem_tlb_flush *flush)
{
    struct hvmem_sim_machine *m = be->ctx;
    hvmem_status status;

    if (refuses(m))
        return HVMEM_E_HOST;
    point(m, "tlb");
    m->tlb.backend.caps.quirks = be->caps.quirks;
    status = hvmem_sim_tlb_flush(&m->tlb, m->current, flush);
    if (!status && (be->caps.features & HVMEM_CAP_BROADCAST))
        hvmem_sim_bill_flush(&m->bill, &be->caps, flush);
    point(m, "tlb");
    return status;
}

static HVMEM_CALLBACK hvmem_status be_dcache(struct hvmem_backend *be, hvmem_u32 op,
                                             hvmem_uptr addr, hvmem_size bytes)
{
    struct hvmem_sim_machine *m = be->ctx;

    point(m, "dcache");
    return m->config.lines ? hvmem_sim_dcache(&m->data, m->current, op, addr, bytes) : HVMEM_OK;
}

static HVMEM_CALLBACK hvmem_status be_dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
    struct hvmem_sim_machine *m = be->ctx;

    point(m, "dcache");
    return m->config.lines ? hvmem_sim_dcache_done(&m->data, m->current, op) : HVMEM_OK;
}

static HVMEM_CALLBACK hvmem_status be_icache(struct hvmem_backend *be, hvmem_uptr addr,
                                             hvmem_size bytes)
{
    struct hvmem_sim_machine *m = be->ctx;

    point(m, "icache");
    return m->config.lines ? hvmem_sim_icache(&m->data, m->current, addr, bytes) : HVMEM_OK;
}

static HVMEM_CALLBACK hvmem_status be_icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    struct hvmem_sim_machine *m = be->ctx;

    point(m, "icache");
    hvmem_sim_bill_add(&m->bill, HVMEM_SIM_IC_ALL, 1);
    return m->config.lines ? hvmem_sim_icache_all(&m->data, m->current, scope) : HVMEM_OK;
}

static HVMEM_CALLBACK hvmem_status be_dcache_all(struct hvmem_backend *be, hvmem_u32 op)
{
    struct hvmem_sim_machine *m = be->ctx;

    point(m, "dcache");
    return m->config.lines ? hvmem_sim_dcache_all(&m->data, m->current, op) : HVMEM_OK;
}

static HVMEM_CALLBACK hvmem_status be_zero(struct hvmem_backend *be, hvmem_uptr addr,
                                           hvmem_size bytes)
{
    struct hvmem_sim_machine *m = be->ctx;

    point(m, "zero");
    hvmem_sim_bill_add(&m->bill, HVMEM_SIM_ZERO_LINE, bytes / 64);
    return m->config.lines ? hvmem_sim_zero(&m->data, m->current, addr, bytes) : HVMEM_OK;
}

static HVMEM_CALLBACK hvmem_status be_guest_entry(struct hvmem_backend *be, hvmem_u32 owed,
                                                  hvmem_u32 *value)
{
    struct hvmem_sim_machine *m = be->ctx;

    return m->tlb.backend.ops->guest_entry(&m->tlb.backend, owed, value);
}

static const struct hvmem_backend_ops machine_ops = {
    .size = sizeof(struct hvmem_backend_ops),
    .tlb_flush = be_flush,
    .dcache = be_dcache,
    .icache = be_icache,
    .icache_all = be_icache_all,
    .dcache_all = be_dcache_all,
    .zero = be_zero,
    .guest_entry = be_guest_entry,
    .dcache_done = be_dcache_done,
};

/* ---- set-up ---------------------------------------------------------------------------------- */

static hvmem_u64 pick(hvmem_u64 random)
{
    return hvmem_sim_input(random % HVMEM_SIM_PAGES);
}

static struct hvmem_sim_tlb_config tlb_config(struct hvmem_sim_machine *m,
                                              const struct hvmem_sim_machine_config *config)
{
    struct hvmem_sim_tlb_config tlb;

    memset(&tlb, 0, sizeof tlb);
    tlb.cpus = config->cpus;
    tlb.devices = config->devices;
    tlb.slots = config->slots;
    tlb.pick = pick;
    tlb.features = config->features;
    tlb.flawed = config->flawed;
    tlb.seed = config->seed + 1;
    tlb.step = step;
    tlb.levels = 2;
    tlb.level = 2;
    tlb.ctx = m;
    return tlb;
}

static struct hvmem_sim_data_config data_config(const struct hvmem_sim_machine_config *config)
{
    struct hvmem_sim_data_config data;

    memset(&data, 0, sizeof data);
    data.base = config->base;
    data.frames = config->frames;
    data.lines = config->lines;
    data.cpus = config->cpus;
    data.features = config->features;
    data.seed = config->seed + 2;
    return data;
}

static hvmem_size frames_bytes(const struct hvmem_sim_machine_config *config)
{
    return (hvmem_size)config->frames * sizeof(struct hvmem_sim_frame);
}

hvmem_size hvmem_sim_machine_bytes(const struct hvmem_sim_machine_config *config)
{
    struct hvmem_sim_tlb_config tlb = tlb_config(0, config);
    struct hvmem_sim_data_config data = data_config(config);

    return frames_bytes(config) + hvmem_sim_tlb_bytes(&tlb) + hvmem_sim_data_bytes(&data);
}

void hvmem_sim_machine_init(struct hvmem_sim_machine *m, void *memory,
                            const struct hvmem_sim_machine_config *config)
{
    struct hvmem_sim_tlb_config tlb = tlb_config(m, config);
    struct hvmem_sim_data_config data = data_config(config);
    unsigned char *at = memory;

    memset(m, 0, sizeof *m);
    memset(memory, 0, hvmem_sim_machine_bytes(config));
    m->config = *config;
    m->random = (config->seed + 3) | 1;
    m->online[0] = 1;
    m->frame = memory;
    at += frames_bytes(config);
    hvmem_sim_tlb_init(&m->tlb, at, &tlb);
    at += hvmem_sim_tlb_bytes(&tlb);
    hvmem_sim_data_init(&m->data, at, &data);
    m->backend.ops = &machine_ops;
    m->backend.ctx = m;
    m->backend.caps = m->tlb.backend.caps;
    /* So small that the few frames of a program are many stretches: of two operations, one line of the model. */
    m->backend.caps.dline = config->lines ? (config->lines < 8 ? 8 / config->lines : 1) : 0;
    m->backend.caps.iline = m->backend.caps.dline;
}
