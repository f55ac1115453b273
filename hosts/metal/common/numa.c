/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory map, CPUs and nodes of the machine from what firmware says: entries are checked one by one,
 * RAM gets its node by the overlap of the map with the affinity ranges, domains become dense indices.
 * What cannot be used is reported by entry and the rest is used.
 */
#include "boot.h"

#define RAW_MAX       128u
#define DISTANCES_MAX (METAL_MAX_NODES * METAL_MAX_NODES)
#define ADDRESS_LIMIT (1ull << 52) /* no entry of either architecture's tables points higher */
#define PAGE_MASK     ((uint64_t)METAL_PAGE_BYTES - 1)
#define REMOTE        20u /* distance where firmware gives none */

#define NO_ENTRY 0xffffffffu

struct span {
    uint64_t base, end;
    uint32_t domain; /* of holes: number of the map entry, NO_ENTRY when it may lie in RAM */
};

struct spans {
    uint32_t count;
    struct span at[RAW_MAX];
};

/* Until metal__map_finish: RAM as given, what is cut out of it, affinity, domains, distances. */
static struct spans ram, holes, affinity;
static uint32_t domains[METAL_MAX_NODES];
static uint32_t domain_count;
static struct {
    uint32_t from, to;
    uint8_t value;
} distances[DISTANCES_MAX];
static uint32_t distance_count;

static int spans_add(struct spans *set, uint64_t base, uint64_t end, uint32_t domain)
{
    if (set->count == RAW_MAX)
        return METAL_E_FULL;
    set->at[set->count++] = (struct span){base, end, domain};
    return METAL_OK;
}

/* Removes [base, end) from the set; a span that it splits needs one more place. */
static void spans_cut(struct spans *set, uint64_t base, uint64_t end)
{
    const uint32_t count = set->count;

    for (uint32_t i = 0; i < count; i++) {
        struct span *s = &set->at[i];
        const uint64_t old_end = s->end;

        if (s->base >= end || s->end <= base)
            continue;
        s->end = s->base < base ? base : s->base;
        if (old_end <= end)
            continue;
        if (s->end == s->base)
            *s = (struct span){end, old_end, s->domain};
        else if (spans_add(set, end, old_end, s->domain) != METAL_OK)
            metal_printf("metal: RAM above 0x%llx is lost: too many pieces\n",
                         (unsigned long long)end);
    }
}

static int spans_overlap(const struct spans *set, uint64_t base, uint64_t end)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (set->at[i].base < end && base < set->at[i].end)
            return 1;
    return 0;
}

/* By base, empty ones last; short lists, so insertion. */
static void spans_sort(struct spans *set)
{
    for (uint32_t i = 1; i < set->count; i++) {
        const struct span s = set->at[i];
        uint32_t j = i;

        for (; j > 0 && set->at[j - 1].base > s.base; j--)
            set->at[j] = set->at[j - 1];
        set->at[j] = s;
    }
}

static void map_bad(uint32_t index, uint64_t base, uint64_t bytes, const char *why)
{
    metal__boot.map_bad++;
    metal_printf("metal: map entry %u (base 0x%llx, 0x%llx bytes): %s\n", index,
                 (unsigned long long)base, (unsigned long long)bytes, why);
}

void metal__map_add(uint64_t base, uint64_t bytes, uint32_t type)
{
    const uint32_t index = metal__boot.map_entries++;
    uint64_t end = base + bytes;

    if (bytes == 0) {
        map_bad(index, base, bytes, "empty, ignored");
        return;
    }
    if (type != METAL_MAP_RAM) {
        /* Firmware lists address space above any RAM as reserved; all of it that RAM could meet
         * counts. */
        if (end < base || end > ADDRESS_LIMIT)
            end = ADDRESS_LIMIT;
        if (base < end &&
            spans_add(&holes, base, end, type == METAL_MAP_CARVED ? NO_ENTRY : index) != METAL_OK)
            map_bad(index, base, bytes, "table full, ignored");
        return;
    }
    if (end < base || end > ADDRESS_LIMIT) {
        map_bad(index, base, bytes, "RAM beyond the address space, ignored");
        return;
    }
    if (spans_overlap(&ram, base, end)) {
        map_bad(index, base, bytes, "overlaps RAM listed before, the overlap is used once");
        spans_cut(&ram, base, end);
    }
    if (spans_add(&ram, base, end, 0) != METAL_OK)
        map_bad(index, base, bytes, "table full, ignored");
}

int metal__domain_exists(uint32_t domain)
{
    for (uint32_t i = 0; i < domain_count; i++)
        if (domains[i] == domain)
            return 1;
    return 0;
}

/* Remembers that the domain exists. Returns 0 when there are too many. */
static int domain_known(uint32_t domain)
{
    if (metal__domain_exists(domain))
        return 1;
    if (domain_count == METAL_MAX_NODES) {
        metal_printf("metal: domain %u: more than %u nodes, its memory and CPUs go to the first\n",
                     domain, METAL_MAX_NODES);
        return 0;
    }
    domains[domain_count++] = domain;
    return 1;
}

void metal__affinity_add(uint32_t domain, uint64_t base, uint64_t bytes)
{
    if (bytes == 0 || base + bytes < base) {
        metal_printf("metal: affinity of domain %u at 0x%llx is empty or wraps, ignored\n", domain,
                     (unsigned long long)base);
        return;
    }
    if (domain_known(domain) && spans_add(&affinity, base, base + bytes, domain) != METAL_OK)
        metal_printf("metal: affinity table full, 0x%llx ignored\n", (unsigned long long)base);
}

void metal__cpu_add(uint64_t hw_id)
{
    struct metal_boot *boot = &metal__boot;

    for (uint32_t i = 0; i < boot->cpu_count; i++)
        if (boot->cpu[i].hw_id == hw_id)
            return;
    if (boot->cpu_count >= METAL_MAX_CPUS) {
        boot->cpu_refused++;
        metal_printf("metal: CPU 0x%llx refused: built for %u CPUs\n", (unsigned long long)hw_id,
                     METAL_MAX_CPUS);
        return;
    }
    boot->cpu[boot->cpu_count++] = (struct metal_cpu){hw_id, ~0u, 0};
}

void metal__cpu_domain(uint64_t hw_id, uint32_t domain)
{
    if (!domain_known(domain))
        return;
    for (uint32_t i = 0; i < metal__boot.cpu_count; i++)
        if (metal__boot.cpu[i].hw_id == hw_id)
            metal__boot.cpu[i].node = domain;
}

void metal__distance(uint32_t from_domain, uint32_t to_domain, uint8_t distance)
{
    if (distance < 10) {
        metal_printf("metal: distance %u from domain %u to %u is below 10, ignored\n", distance,
                     from_domain, to_domain);
        return;
    }
    if (distance_count < DISTANCES_MAX) {
        distances[distance_count].from = from_domain;
        distances[distance_count].to = to_domain;
        distances[distance_count++].value = distance;
    }
}

void metal__reserve(uint64_t base, uint64_t bytes, const char *what)
{
    struct metal_boot *boot = &metal__boot;
    const uint64_t from = base & ~PAGE_MASK;
    const uint64_t to = (base + bytes + PAGE_MASK) & ~PAGE_MASK;

    if (bytes == 0 || base + bytes < base)
        return;
    for (uint32_t i = 0; i < boot->reserved_count; i++)
        if (boot->reserved[i].base <= from &&
            to <= boot->reserved[i].base + boot->reserved[i].bytes)
            return;
    if (boot->reserved_count == METAL_MAX_RESERVED) {
        /* No place to remember it: take it out of RAM for good. */
        spans_cut(&ram, from, to);
        return;
    }
    boot->reserved[boot->reserved_count++] = (struct metal_reserved){from, to - from, what};
}

void metal__module_add(uint64_t base, uint64_t bytes)
{
    struct metal_boot *boot = &metal__boot;

    metal__reserve(base, bytes, "module");
    if (boot->module_count < METAL_MAX_MODULES)
        boot->module[boot->module_count++] = (struct metal_module){base, bytes};
    else
        metal_printf("metal: module at 0x%llx not offered: more than %u\n",
                     (unsigned long long)base, METAL_MAX_MODULES);
}

/* Index of a domain; unknown ones (no affinity given) belong to the first node. */
static uint32_t node_of(uint32_t domain)
{
    for (uint32_t i = 0; i < domain_count; i++)
        if (domains[i] == domain)
            return i;
    return 0;
}

static void mem_add(uint64_t base, uint64_t end, uint32_t node)
{
    struct metal_boot *boot = &metal__boot;
    struct metal_mem *last = boot->mem_count > 0 ? &boot->mem[boot->mem_count - 1] : NULL;

    base = (base + PAGE_MASK) & ~PAGE_MASK;
    end &= ~PAGE_MASK;
    if (base >= end)
        return;
    if (last != NULL && last->base + last->bytes == base && last->node == node) {
        last->bytes += end - base;
        return;
    }
    if (boot->mem_count == METAL_MAX_MEM) {
        metal_printf("metal: RAM 0x%llx-0x%llx not used: more than %u pieces\n",
                     (unsigned long long)base, (unsigned long long)end, METAL_MAX_MEM);
        return;
    }
    boot->mem[boot->mem_count++] = (struct metal_mem){base, end - base, node, 0};
}

/* Cuts [base, end) where its node changes. Affinity is sorted; what it does not cover goes with the
 * range before it, or with the first node. A page that two nodes share goes to the lower one. */
static void split_by_node(uint64_t base, uint64_t end)
{
    uint32_t node = 0;

    for (uint32_t i = 0; i < affinity.count && base < end; i++) {
        const struct span *a = &affinity.at[i];
        const uint64_t cut = (a->base + PAGE_MASK) & ~PAGE_MASK;

        if (cut > base) {
            mem_add(base, cut < end ? cut : end, node);
            base = cut;
        }
        if (a->end > base)
            node = node_of(a->domain);
    }
    if (base < end)
        mem_add(base, end, node);
}

static void sort_domains(void)
{
    for (uint32_t i = 1; i < domain_count; i++)
        for (uint32_t j = i; j > 0 && domains[j - 1] > domains[j]; j--) {
            const uint32_t t = domains[j];

            domains[j] = domains[j - 1];
            domains[j - 1] = t;
        }
    if (domain_count == 0)
        domains[domain_count++] = 0;
}

static void finish_nodes(void)
{
    struct metal_boot *boot = &metal__boot;

    boot->node_count = domain_count;
    for (uint32_t i = 0; i < domain_count; i++) {
        boot->node_id[i] = domains[i];
        for (uint32_t j = 0; j < domain_count; j++)
            boot->distance[i][j] = i == j ? 10 : 0;
    }
    for (uint32_t i = 0; i < distance_count; i++) {
        const uint32_t from = node_of(distances[i].from);
        const uint32_t to = node_of(distances[i].to);

        if (domains[from] == distances[i].from && domains[to] == distances[i].to && from != to)
            boot->distance[from][to] = distances[i].value;
    }
    /* One direction may have been left out. */
    for (uint32_t i = 0; i < domain_count; i++)
        for (uint32_t j = 0; j < domain_count; j++)
            if (boot->distance[i][j] == 0)
                boot->distance[i][j] = boot->distance[j][i] != 0 ? boot->distance[j][i] : REMOTE;
}

/* The argument "maxcpus" configures fewer CPUs than the image was built for. The booting one is first. */
static void limit_cpus(void)
{
    struct metal_boot *boot = &metal__boot;
    const uint64_t limit = metal_arg_u64("maxcpus", METAL_MAX_CPUS);

    while (limit > 0 && boot->cpu_count > limit) {
        boot->cpu_count--;
        boot->cpu_refused++;
        metal_printf("metal: CPU 0x%llx refused: configured for %u CPUs\n",
                     (unsigned long long)boot->cpu[boot->cpu_count].hw_id, (unsigned)limit);
    }
}

static void finish_cpus(uint64_t boot_hw_id)
{
    struct metal_boot *boot = &metal__boot;
    uint32_t i = 0;

    while (i < boot->cpu_count && boot->cpu[i].hw_id != boot_hw_id)
        i++;
    if (i == boot->cpu_count) {
        /* Firmware does not list the CPU that runs: it exists nevertheless. */
        if (i == METAL_MAX_CPUS)
            i--;
        else
            boot->cpu_count++;
        boot->cpu[i] = (struct metal_cpu){boot_hw_id, ~0u, 0};
    }
    for (; i > 0; i--) {
        const struct metal_cpu t = boot->cpu[i];

        boot->cpu[i] = boot->cpu[i - 1];
        boot->cpu[i - 1] = t;
    }
    limit_cpus();
    for (i = 0; i < boot->cpu_count; i++)
        boot->cpu[i].node = node_of(boot->cpu[i].node);
}

void metal__map_finish(uint64_t boot_hw_id)
{
    sort_domains();
    finish_nodes();
    for (uint32_t i = 0; i < holes.count; i++) {
        const struct span *h = &holes.at[i];

        if (h->domain != NO_ENTRY && spans_overlap(&ram, h->base, h->end))
            map_bad(h->domain, h->base, h->end - h->base, "reserved inside RAM, cut out");
        spans_cut(&ram, h->base, h->end);
    }
    spans_sort(&ram);
    spans_sort(&affinity);
    for (uint32_t i = 0; i < ram.count; i++)
        split_by_node(ram.at[i].base, ram.at[i].end);
    finish_cpus(boot_hw_id);
}
