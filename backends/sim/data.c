/* SPDX-License-Identifier: BSD-2-Clause */
/* Model of data caches, instruction caches and RAM; see data.h. */
#include "data.h"

void *memset(void *to, int byte, hvmem_size bytes);

/* Frames are mapped at this address plus their machine address; nobody reads there. */
#define WINDOW     ((hvmem_uptr)1 << 60)
#define PAGE_SHIFT 12

static hvmem_u64 next_random(struct hvmem_sim_data *data)
{
    hvmem_u64 x = data->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    data->random = x;
    return x >> 8;
}

static hvmem_u64 lines_of(const struct hvmem_sim_data *data)
{
    return data->config.frames * data->config.lines;
}

static hvmem_u64 index_of(const struct hvmem_sim_data *data, hvmem_mfn mfn, hvmem_u32 line)
{
    return (mfn - data->config.base) * data->config.lines + line;
}

static int has(const struct hvmem_sim_data *data, hvmem_u64 feature)
{
    return (data->config.features & feature) != 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void write_back(struct hvmem_sim_line *line)
{
    if (line->state != HVMEM_SIM_DIRTY)
        return;
    line->ram = line->cached;
    line->pou = line->cached;
    line->state = HVMEM_SIM_CLEAN;
}

static void maintain(struct hvmem_sim_line *line, hvmem_u32 op, int whole)
{
    switch (op) {
    case HVMEM_DC_CLEAN:
        write_back(line);
        break;
    case HVMEM_DC_CLEAN_POU:
        if (line->state != HVMEM_SIM_ABSENT)
            line->pou = line->cached;
        break;
    case HVMEM_DC_INVALIDATE:
        if (!whole)
            write_back(line);
        line->state = HVMEM_SIM_ABSENT;
        line->pou = line->ram;
        break;
    default:
        write_back(line);
        line->state = HVMEM_SIM_ABSENT;
        line->pou = line->ram;
        break;
    }
}

/* What was left open happens. */
static void close_line(struct hvmem_sim_line *line)
{
    hvmem_u32 open = line->open;

    line->open = 0;
    if (open)
        maintain(line, open & ~(HVMEM_SIM_OPEN | HVMEM_SIM_WHOLE), (open & HVMEM_SIM_WHOLE) != 0);
}

static void load(struct hvmem_sim_line *line)
{
    if (line->state != HVMEM_SIM_ABSENT)
        return;
    line->cached = line->ram;
    line->state = HVMEM_SIM_CLEAN;
}

/* What a fetch that misses sees. */
static hvmem_u32 fetchable(const struct hvmem_sim_data *data, const struct hvmem_sim_line *line)
{
    int coherent = has(data, HVMEM_CAP_IDC | HVMEM_CAP_ICOHERENT);

    return coherent && line->state != HVMEM_SIM_ABSENT ? line->cached : line->pou;
}

/* Instruction caches of CPUs [first, end) forget one line. */
static void forget(struct hvmem_sim_data *data, hvmem_u64 index, hvmem_cpu first, hvmem_cpu end)
{
    for (; first < end; first++)
        data->fetched[first * lines_of(data) + index].valid = 0;
}

void hvmem_sim_write(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_mfn mfn, hvmem_u32 line,
                     hvmem_u32 word)
{
    hvmem_u64 index = index_of(data, mfn, line);
    struct hvmem_sim_line *l = &data->line[index];

    close_line(l);
    l->cached = word;
    l->state = HVMEM_SIM_DIRTY;
    l->holder = (hvmem_u16)cpu;
    if (has(data, HVMEM_CAP_ICOHERENT))
        forget(data, index, 0, data->config.cpus);
}

hvmem_u32 hvmem_sim_read(struct hvmem_sim_data *data, hvmem_mfn mfn, hvmem_u32 line)
{
    struct hvmem_sim_line *l = &data->line[index_of(data, mfn, line)];

    load(l);
    return l->cached;
}

hvmem_u32 hvmem_sim_fetch(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_mfn mfn, hvmem_u32 line)
{
    hvmem_u64 index = index_of(data, mfn, line);
    struct hvmem_sim_fetched *fetched = &data->fetched[cpu * lines_of(data) + index];

    if (!fetched->valid || has(data, HVMEM_CAP_DIC)) {
        fetched->word = fetchable(data, &data->line[index]);
        fetched->valid = 1;
    }
    return fetched->word;
}

void hvmem_sim_write_ram(struct hvmem_sim_data *data, hvmem_mfn mfn, hvmem_u32 line, hvmem_u32 word)
{
    hvmem_u64 index = index_of(data, mfn, line);
    struct hvmem_sim_line *l = &data->line[index];

    l->ram = word;
    if (has(data, HVMEM_CAP_ICOHERENT)) { /* x86: the caches are snooped */
        l->state = HVMEM_SIM_ABSENT;
        forget(data, index, 0, data->config.cpus);
    }
    if (l->state == HVMEM_SIM_ABSENT)
        l->pou = word;
}

hvmem_u32 hvmem_sim_read_ram(const struct hvmem_sim_data *data, hvmem_mfn mfn, hvmem_u32 line)
{
    const struct hvmem_sim_line *l = &data->line[index_of(data, mfn, line)];

    if (has(data, HVMEM_CAP_ICOHERENT) && l->state == HVMEM_SIM_DIRTY)
        return l->cached;
    return l->ram;
}

void hvmem_sim_data_stir(struct hvmem_sim_data *data, hvmem_u32 count)
{
    for (; count; count--) {
        hvmem_u64 index = next_random(data) % lines_of(data);
        struct hvmem_sim_line *line = &data->line[index];
        hvmem_cpu cpu = (hvmem_cpu)(next_random(data) % data->config.cpus);

        if (line->open && next_random(data) & 1)
            close_line(line);
        switch (next_random(data) & 3) {
        case 0:
            write_back(line);
            break;
        case 1:
            write_back(line);
            line->state = HVMEM_SIM_ABSENT;
            break;
        case 2:
            load(line);
            break;
        default:
            (void)hvmem_sim_fetch(data, cpu, data->config.base + index / data->config.lines,
                                  (hvmem_u32)(index % data->config.lines));
            break;
        }
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

hvmem_uptr hvmem_sim_address(const struct hvmem_sim_data *data, hvmem_mfn mfn)
{
    (void)data;
    return WINDOW + ((hvmem_uptr)mfn << PAGE_SHIFT);
}

/* The lines [*first, *end) that a range of bytes touches; *inside of them lie wholly in it. */
struct stretch {
    hvmem_u64 first, end;
    int whole_first, whole_last;
};

static hvmem_status stretch_of(const struct hvmem_sim_data *data, hvmem_uptr addr, hvmem_size bytes,
                               struct stretch *stretch)
{
    hvmem_uptr base = WINDOW + ((hvmem_uptr)data->config.base << PAGE_SHIFT);
    hvmem_u64 size = ((hvmem_u64)1 << PAGE_SHIFT) / data->config.lines;

    if (addr < base || bytes > (data->config.frames << PAGE_SHIFT) ||
        addr - base > (data->config.frames << PAGE_SHIFT) - bytes)
        return HVMEM_E_RANGE;
    stretch->first = (addr - base) / size;
    stretch->end = (addr - base + bytes + size - 1) / size;
    stretch->whole_first = (addr - base) % size == 0;
    stretch->whole_last = (addr - base + bytes) % size == 0;
    return HVMEM_OK;
}

/* The line, closed, is open to the operation from now on, or it has happened. */
static void leave_open(struct hvmem_sim_data *data, hvmem_u64 index, hvmem_cpu cpu, hvmem_u32 op)
{
    struct hvmem_sim_line *line = &data->line[index];

    line->open = (hvmem_u16)(HVMEM_SIM_OPEN | op);
    line->opener = (hvmem_u16)cpu;
    if (next_random(data) & 1)
        close_line(line);
    if (data->open_lo == data->open_hi) {
        data->open_lo = index;
        data->open_hi = index + 1;
    }
    data->open_lo = index < data->open_lo ? index : data->open_lo;
    data->open_hi = index + 1 > data->open_hi ? index + 1 : data->open_hi;
}

hvmem_status hvmem_sim_dcache_done(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_u32 op)
{
    hvmem_u64 i, others = 0;

    if (op > HVMEM_DC_CLEAN_POU)
        return HVMEM_E_ARG;
    for (i = data->open_lo; i < data->open_hi; i++) {
        if (data->line[i].opener == cpu)
            close_line(&data->line[i]);
        others |= data->line[i].open;
    }
    if (!others)
        data->open_lo = data->open_hi = 0;
    return HVMEM_OK;
}

hvmem_status hvmem_sim_dcache(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_u32 op,
                              hvmem_uptr addr, hvmem_size bytes)
{
    struct stretch s;
    hvmem_status status = stretch_of(data, addr, bytes, &s);
    hvmem_u32 more = op & HVMEM_DC_MORE;
    hvmem_u64 i;

    op &= ~HVMEM_DC_MORE;
    if (op > HVMEM_DC_CLEAN_POU)
        return HVMEM_E_ARG;
    for (i = s.first; !status && i < s.end; i++) {
        int whole = (i > s.first || s.whole_first) && (i + 1 < s.end || s.whole_last);

        close_line(&data->line[i]);
        if (more)
            leave_open(data, i, cpu, op | (whole ? HVMEM_SIM_WHOLE : 0));
        else
            maintain(&data->line[i], op, whole);
        data->cleaned++;
    }
    return status || more ? status : hvmem_sim_dcache_done(data, cpu, op);
}

hvmem_status hvmem_sim_dcache_all(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_u32 op)
{
    hvmem_u64 i;

    if (op > HVMEM_DC_CLEAN_INVALIDATE)
        return HVMEM_E_ARG;
    for (i = 0; i < lines_of(data); i++) {
        if (data->line[i].state == HVMEM_SIM_DIRTY && data->line[i].holder == cpu)
            maintain(&data->line[i], op, 1);
    }
    return HVMEM_OK;
}

hvmem_status hvmem_sim_icache(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_uptr addr,
                              hvmem_size bytes)
{
    hvmem_status status = hvmem_sim_dcache(data, cpu, HVMEM_DC_CLEAN_POU, addr, bytes);
    struct stretch s;
    hvmem_u64 i;

    if (status || stretch_of(data, addr, bytes, &s))
        return HVMEM_E_RANGE;
    for (i = s.first; i < s.end; i++) {
        forget(data, i, 0, data->config.cpus);
        data->icache_lines++;
    }
    return HVMEM_OK;
}

hvmem_status hvmem_sim_icache_all(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_u32 scope)
{
    hvmem_cpu first = scope == HVMEM_SCOPE_LOCAL ? cpu : 0;
    hvmem_cpu end = scope == HVMEM_SCOPE_LOCAL ? cpu + 1 : data->config.cpus;
    hvmem_u64 i;

    if (scope > HVMEM_SCOPE_INNER)
        return HVMEM_E_ARG;
    for (i = 0; i < lines_of(data); i++)
        forget(data, i, first, end);
    data->icache_whole++;
    return HVMEM_OK;
}

/* By stores that stay in the cache, or past it, as it comes. */
hvmem_status hvmem_sim_zero(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_uptr addr,
                            hvmem_size bytes)
{
    struct stretch s;
    hvmem_status status = stretch_of(data, addr, bytes, &s);
    hvmem_u64 i;

    if (!status && (!s.whole_first || !s.whole_last))
        status = HVMEM_E_ALIGN;
    for (i = s.first; !status && i < s.end; i++) {
        hvmem_mfn mfn = data->config.base + i / data->config.lines;

        hvmem_sim_write(data, cpu, mfn, (hvmem_u32)(i % data->config.lines), 0);
        if (has(data, HVMEM_CAP_FAST_ZERO) && (next_random(data) & 1))
            maintain(&data->line[i], HVMEM_DC_CLEAN_INVALIDATE, 1);
        data->zeroed++;
    }
    return status;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

hvmem_size hvmem_sim_data_bytes(const struct hvmem_sim_data_config *config)
{
    hvmem_u64 lines = config->frames * config->lines;

    return (hvmem_size)(lines * (sizeof(struct hvmem_sim_line) +
                                 config->cpus * sizeof(struct hvmem_sim_fetched)));
}

void hvmem_sim_data_init(struct hvmem_sim_data *data, void *memory,
                         const struct hvmem_sim_data_config *config)
{
    memset(data, 0, sizeof *data);
    memset(memory, 0, hvmem_sim_data_bytes(config));
    data->config = *config;
    data->random = config->seed | 1;
    data->line = memory;
    data->fetched = (struct hvmem_sim_fetched *)(void *)(data->line + lines_of(data));
}
