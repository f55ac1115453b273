/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading the machine from its device tree. A node is judged once all its properties are seen (they
 * precede its children); what cannot be used is named on the console and left out.
 */
#include "machine.h"

#include <stddef.h>

#include "../common/boot.h"

/* The properties of one open node that any rule below looks at. data = NULL: absent. */
struct node {
    const char *name;
    struct metal_fdt_item reg, compatible, device_type, status, numa, method, matrix, bootargs,
        initrd_start, initrd_end;
    uint32_t address_cells; /* for the children */
    uint32_t size_cells;
    bool judged;
};

struct walk {
    struct arm_machine *m;
    struct node node[METAL_FDT_MAX_DEPTH];
    uint32_t depth; /* of the current node */
    bool early;     /* nothing but console and command line, and silently */
};

static bool same(const char *a, const char *b)
{
    while (*a != 0 && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

static void complain(struct walk *w, const struct node *n, const char *what)
{
    w->m->bad++;
    if (!w->early)
        metal_printf("device tree: node '%s': %s, not used\n", n->name, what);
}

/* The slot in n where a property of this name is kept, or NULL. */
static struct metal_fdt_item *slot_of(struct node *n, const char *name)
{
    if (same(name, "reg"))
        return &n->reg;
    if (same(name, "compatible"))
        return &n->compatible;
    if (same(name, "device_type"))
        return &n->device_type;
    if (same(name, "status"))
        return &n->status;
    if (same(name, "numa-node-id"))
        return &n->numa;
    if (same(name, "method"))
        return &n->method;
    if (same(name, "distance-matrix"))
        return &n->matrix;
    if (same(name, "bootargs"))
        return &n->bootargs;
    if (same(name, "linux,initrd-start"))
        return &n->initrd_start;
    if (same(name, "linux,initrd-end"))
        return &n->initrd_end;
    return NULL;
}

static void property(struct node *n, const struct metal_fdt_item *item)
{
    struct metal_fdt_item *slot = slot_of(n, item->name);

    if (slot != NULL)
        *slot = *item;
    else if (same(item->name, "#address-cells") && item->bytes == 4)
        n->address_cells = metal_fdt_cell(item->data);
    else if (same(item->name, "#size-cells") && item->bytes == 4)
        n->size_cells = metal_fdt_cell(item->data);
}

static bool usable(const struct node *n)
{
    return n->status.data == NULL || metal_fdt_has_word(&n->status, "okay") ||
           metal_fdt_has_word(&n->status, "ok");
}

/* Pair number i of a reg property in the parent's cells; false past the end or malformed. */
static bool reg_pair(const struct node *parent, const struct node *n, uint32_t i, uint64_t *base,
                     uint64_t *bytes)
{
    uint32_t a = parent->address_cells;
    uint32_t s = parent->size_cells;
    uint32_t step = (a + s) * 4;

    if (n->reg.data == NULL || a < 1 || a > 2 || s > 2 || n->reg.bytes % step != 0 ||
        i >= n->reg.bytes / step)
        return false;
    *base = metal_fdt_number(n->reg.data + i * step, a);
    *bytes = metal_fdt_number(n->reg.data + i * step + a * 4, s);
    return true;
}

static void judge_memory(struct walk *w, const struct node *parent, const struct node *n)
{
    uint64_t base;
    uint64_t bytes;
    uint32_t i = 0;

    for (; reg_pair(parent, n, i, &base, &bytes); i++) {
        metal__map_add(base, bytes, METAL_MAP_RAM);
        if (n->numa.bytes == 4)
            metal__affinity_add(metal_fdt_cell(n->numa.data), base, bytes);
    }
    if (i == 0)
        complain(w, n, "no readable reg");
    if (n->numa.data != NULL && n->numa.bytes != 4)
        complain(w, n, "numa-node-id is not one cell");
}

static void judge_cpu(struct walk *w, const struct node *parent, const struct node *n)
{
    uint64_t mpidr;
    uint64_t none;

    if (!reg_pair(parent, n, 0, &mpidr, &none)) {
        complain(w, n, "no readable reg");
        return;
    }
    metal__cpu_add(mpidr);
    if (n->numa.bytes == 4)
        metal__cpu_domain(mpidr, metal_fdt_cell(n->numa.data));
}

static void judge_distances(struct walk *w, const struct node *n)
{
    if (n->matrix.data == NULL || n->matrix.bytes % 12 != 0) {
        complain(w, n, "distance-matrix is not made of triples");
        return;
    }
    for (uint32_t at = 0; at < n->matrix.bytes; at += 12) {
        uint32_t from = metal_fdt_cell(n->matrix.data + at);
        uint32_t to = metal_fdt_cell(n->matrix.data + at + 4);
        uint32_t distance = metal_fdt_cell(n->matrix.data + at + 8);

        if (distance < 10 || distance > 255)
            complain(w, n, "a distance outside 10..255");
        else
            metal__distance(from, to, (uint8_t)distance);
    }
}

static void judge_gic(struct walk *w, const struct node *parent, const struct node *n)
{
    struct arm_machine *m = w->m;
    uint64_t base;
    uint64_t bytes;

    if (m->gicd != 0)
        return;
    if (!reg_pair(parent, n, 1, &base, &bytes)) {
        complain(w, n, "no redistributor region");
        return;
    }
    (void)reg_pair(parent, n, 0, &m->gicd, &m->gicd_bytes);
    for (uint32_t i = 1; i <= ARM_MAX_GICR_REGIONS; i++) {
        if (!reg_pair(parent, n, i, &m->gicr[i - 1][0], &m->gicr[i - 1][1]))
            break;
        m->gicr_count = i;
    }
}

/* The address of a chosen property of one or two cells; false when absent or odd. */
static bool chosen_number(const struct metal_fdt_item *p, uint64_t *value)
{
    if (p->data == NULL || (p->bytes != 4 && p->bytes != 8))
        return false;
    *value = metal_fdt_number(p->data, p->bytes / 4);
    return true;
}

static bool ends_in_nul(const struct metal_fdt_item *p)
{
    return p->bytes != 0 && p->data[p->bytes - 1] == 0;
}

static void judge_chosen(struct walk *w, const struct node *n)
{
    uint64_t start;
    uint64_t end;

    if (ends_in_nul(&n->bootargs))
        metal__cmdline((const char *)n->bootargs.data);
    else if (n->bootargs.bytes != 0)
        complain(w, n, "bootargs without its end");
    if (n->initrd_start.data == NULL && n->initrd_end.data == NULL)
        return;
    if (chosen_number(&n->initrd_start, &start) && chosen_number(&n->initrd_end, &end) &&
        start < end)
        metal__module_add(start, end - start);
    else
        complain(w, n, "initrd addresses");
}

static void judge_reserved(struct walk *w, const struct node *parent, const struct node *n)
{
    uint64_t base;
    uint64_t bytes;

    if (n->reg.data == NULL)
        return; /* a size to be placed by the system: nothing lies there yet */
    for (uint32_t i = 0; reg_pair(parent, n, i, &base, &bytes); i++)
        metal__map_add(base, bytes, METAL_MAP_CARVED);
    if (!reg_pair(parent, n, 0, &base, &bytes))
        complain(w, n, "no readable reg");
}

static void judge_psci(struct walk *w, const struct node *n)
{
    if (metal_fdt_has_word(&n->method, "smc"))
        w->m->conduit = 's';
    else if (metal_fdt_has_word(&n->method, "hvc"))
        w->m->conduit = 'h';
    else
        complain(w, n, "unknown method");
}

static void judge_uart(struct walk *w, const struct node *parent, const struct node *n)
{
    uint64_t bytes;

    if (w->m->uart == 0 && !reg_pair(parent, n, 0, &w->m->uart, &bytes))
        complain(w, n, "no readable reg");
}

/* All properties of the current node are known: act on it, once. */
static void judge(struct walk *w)
{
    struct node *n = &w->node[w->depth];
    const struct node *parent = w->depth == 0 ? n : n - 1;

    if (n->judged)
        return;
    n->judged = true;
    if (w->depth == 0)
        w->m->is_virtual = metal_fdt_has_word(&n->compatible, "linux,dummy-virt");
    if (w->depth == 0 || !usable(n))
        return;
    if (metal_fdt_has_word(&n->compatible, "arm,pl011"))
        judge_uart(w, parent, n);
    if (w->early) {
        if (w->depth == 1 && same(n->name, "chosen") && ends_in_nul(&n->bootargs))
            w->m->bootargs = (const char *)n->bootargs.data;
        return;
    }
    if (metal_fdt_has_word(&n->compatible, "arm,gic-v3"))
        judge_gic(w, parent, n);
    else if (metal_fdt_has_word(&n->compatible, "arm,psci-1.0") ||
             metal_fdt_has_word(&n->compatible, "arm,psci-0.2"))
        judge_psci(w, n);
    else if (metal_fdt_has_word(&n->compatible, "numa-distance-map-v1"))
        judge_distances(w, n);
    else if (w->depth == 1 && metal_fdt_has_word(&n->device_type, "memory"))
        judge_memory(w, parent, n);
    else if (w->depth == 1 && same(n->name, "chosen"))
        judge_chosen(w, n);
    else if (w->depth == 2 && same(parent->name, "cpus") && metal_fdt_is_node(n->name, "cpu"))
        judge_cpu(w, parent, n);
    else if (w->depth == 2 && same(parent->name, "reserved-memory"))
        judge_reserved(w, parent, n);
}

static void enter(struct walk *w, const struct metal_fdt_item *item)
{
    static const struct node fresh = {.name = "", .address_cells = 2, .size_cells = 1};

    if (item->depth > 0)
        judge(w);
    w->depth = item->depth;
    w->node[w->depth] = fresh;
    w->node[w->depth].name = item->name;
}

static void walk_tree(const struct metal_fdt *f, struct walk *w)
{
    struct metal_fdt_cursor c;
    struct metal_fdt_item item;

    w->depth = 0;
    metal_fdt_start(f, &c);
    do {
        metal_fdt_next(f, &c, &item);
        switch (item.token) {
        case METAL_FDT_BEGIN:
            enter(w, &item);
            break;
        case METAL_FDT_PROP:
            property(&w->node[item.depth], &item);
            break;
        case METAL_FDT_END:
            judge(w);
            w->depth = item.depth == 0 ? 0 : item.depth - 1;
            break;
        default:
            break;
        }
    } while (item.token != METAL_FDT_DONE && item.token != METAL_FDT_BAD);
    if (item.token == METAL_FDT_BAD) {
        w->m->bad++;
        if (!w->early)
            metal_printf("device tree: malformed at offset %u, the rest is not used\n", c.at);
    }
}

void metal__arm_machine_early(const struct metal_fdt *f, struct arm_machine *m)
{
    static const struct arm_machine nothing = {.uart = 0};
    struct walk w;

    *m = nothing;
    w.m = m;
    w.early = true;
    walk_tree(f, &w);
}

void metal__arm_machine_read(const struct metal_fdt *f, struct arm_machine *m)
{
    static const struct arm_machine nothing = {.uart = 0};
    struct walk w;

    *m = nothing;
    w.m = m;
    w.early = false;
    walk_tree(f, &w);
    for (uint32_t i = 0; i < METAL_MAX_RESERVED; i++) {
        uint64_t base;
        uint64_t bytes;

        if (!metal_fdt_reservation(f, i, &base, &bytes))
            break;
        metal__reserve(base, bytes, "firmware");
    }
}
