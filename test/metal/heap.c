/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap: the library owns the machine. A heap of all RAM is made from the boot information; every CPU
 * allocates, writes, checks and frees frames of all orders at once, with every flush a real one; at the
 * end the audit finds nothing and the initial set of free blocks is there again.
 */
#include "hosts/metal/common/host.h"
#include "test/metal/check.h"
#include "test/metal/subject.h"

#define HELD      64u /* blocks each CPU holds at most */
#define TURNS     2000u
#define MAX_ORDER 6u

static struct metal_heap heap;
static struct hvmem_stats before, after;

struct held {
    hvmem_mfn mfn;
    hvmem_order order;
};

/* xorshift64*: programs have no other source of numbers. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

/* First and last word of each frame carry its number: a frame handed out twice shows. */
static void mark(const struct held *b, uint64_t value)
{
    for (uint64_t i = 0; i < 1ull << b->order; i++) {
        volatile uint64_t *words = metal_frame((b->mfn + i) << METAL_PAGE_SHIFT);

        words[0] = value + i;
        words[METAL_PAGE_BYTES / 8 - 1] = ~(value + i);
    }
}

static int is_marked(const struct held *b, uint64_t value)
{
    for (uint64_t i = 0; i < 1ull << b->order; i++) {
        volatile uint64_t *words = metal_frame((b->mfn + i) << METAL_PAGE_SHIFT);

        if (words[0] != value + i || words[METAL_PAGE_BYTES / 8 - 1] != ~(value + i))
            return 0;
    }
    return 1;
}

static void churn(void *arg)
{
    struct held held[HELD];
    uint64_t state = 0x9e3779b97f4a7c15ull * (metal_cpu_id() + 1);
    const uint64_t tag = (uint64_t)(metal_cpu_id() + 1) << 56;
    unsigned count = 0, wrong = 0, refused = 0;

    (void)arg;
    for (unsigned turn = 0; turn < TURNS + HELD; turn++) {
        const uint64_t r = next_random(&state);

        if (turn < TURNS && count < HELD && (count == 0 || (r & 1) != 0)) {
            struct held *b = &held[count];

            b->order = (hvmem_order)(r >> 8) % (MAX_ORDER + 1);
            if (hvmem_alloc_order(heap.heap, b->order, &b->mfn) != HVMEM_OK) {
                refused++;
                continue;
            }
            mark(b, tag | b->mfn);
            count++;
        } else if (count > 0) {
            const unsigned i = (unsigned)(r >> 8) % count;

            wrong += !is_marked(&held[i], tag | held[i].mfn);
            refused += hvmem_free(heap.heap, held[i].mfn, held[i].order) != HVMEM_OK;
            held[i] = held[--count];
        }
    }
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(wrong, 0);
    CHECK_EQUAL(refused, 0);
}

/* No frame of the heap is one that firmware, the image or the tables keep. */
static void check_kept(void)
{
    const struct metal_boot *b = metal_boot_info();
    struct hvmem_block block;
    uint64_t asked = 0;

    heap.host.report_lines = 0; /* each refusal is reported: counted, not printed */
    for (unsigned i = 0; i < b->reserved_count; i++)
        for (uint64_t at = 0; at < b->reserved[i].bytes; at += METAL_PAGE_BYTES, asked++)
            CHECK_EQUAL(
                hvmem_lookup(heap.heap, (b->reserved[i].base + at) >> METAL_PAGE_SHIFT, &block),
                HVMEM_E_FOREIGN);
    CHECK_EQUAL(heap.host.reports, asked);
    heap.host = (struct metal_host){.report_lines = 8};
}

static void check_nodes(void)
{
    const struct metal_boot *b = metal_boot_info();

    for (unsigned node = 0; node < b->node_count; node++) {
        struct hvmem_request request = {
            .size = sizeof request, .flags = HVMEM_REQ_EXACT_NODE, .node = node};
        hvmem_node found = ~0u;
        hvmem_mfn mfn = 0;

        CHECK_EQUAL(hvmem_alloc(heap.heap, &request, &mfn), HVMEM_OK);
        CHECK_EQUAL(hvmem_node_of(heap.heap, mfn, &found), HVMEM_OK);
        CHECK_EQUAL(found, node);
        CHECK_EQUAL(hvmem_free(heap.heap, mfn, 0), HVMEM_OK);
    }
}

static void check_audit(void)
{
    hvmem_mfn mfn = 0;
    const char *where = NULL;
    const hvmem_status status = hvmem_audit(heap.heap, &mfn, &where);

    if (!CHECK_EQUAL(status, HVMEM_OK))
        metal_printf("audit: frame 0x%llx: %s\n", (unsigned long long)mfn, where);
}

/* A caller's mistake is refused, reported, and changes nothing: the audit behind it still holds. */
static void check_mistakes(void)
{
    hvmem_mfn mfn = 0;

    CHECK_EQUAL(hvmem_alloc_order(heap.heap, 0, &mfn), HVMEM_OK);
    CHECK_EQUAL(hvmem_free(heap.heap, mfn, 0), HVMEM_OK);
    CHECK_EQUAL(hvmem_free(heap.heap, mfn, 0), HVMEM_E_FREE);
    CHECK_EQUAL(heap.host.reports, 1);
    CHECK_EQUAL(heap.host.last_mfn, mfn);
    CHECK_EQUAL(hvmem_free(heap.heap, 1ull << 40, 0), HVMEM_E_FOREIGN);
    CHECK_EQUAL(heap.host.reports, 2);
}

static int run_heap(void)
{
    const struct metal_heap_options options = {
        .backend = subject_backend(), .max_domains = 8, .lock_regime = HVMEM_LOCK_PLAIN};

    (void)metal_start_cpus(NULL);
    if (!CHECK_EQUAL(metal_heap_boot(&heap, &options), HVMEM_OK))
        return check_result();
    CHECK_EQUAL(hvmem_stats(heap.heap, HVMEM_NODE_ANY, sizeof before, &before), HVMEM_OK);
    metal_printf("%u banks, %llu frames, %llu for tables (%llu bytes per 1000 frames)\n",
                 heap.banks, (unsigned long long)before.frames,
                 (unsigned long long)heap.table_frames,
                 (unsigned long long)(heap.table_frames * METAL_PAGE_BYTES * 1000 / before.frames));
    CHECK_EQUAL(before.frames, heap.frames);
    CHECK_EQUAL(before.free, heap.frames);
    check_kept();
    CHECK_EQUAL(metal_heap_smp(&heap), HVMEM_OK);
    check_nodes();
    CHECK_EQUAL(metal_run_cpus(metal_online(), churn, NULL), METAL_OK);
    CHECK_EQUAL(heap.host.reports, 0);
    check_mistakes();
    CHECK_EQUAL(hvmem_drain(heap.heap), HVMEM_OK);
    check_audit();
    CHECK_EQUAL(hvmem_stats(heap.heap, HVMEM_NODE_ANY, sizeof after, &after), HVMEM_OK);
    CHECK_EQUAL(after.free, before.free);
    for (unsigned order = 0; order <= HVMEM_ORDER_LIMIT; order++)
        CHECK_EQUAL(after.free_blocks[order], before.free_blocks[order]);
    return check_result();
}

METAL_PROGRAM(heap, run_heap);
