/* SPDX-License-Identifier: BSD-2-Clause */
/* The guest of stage2_rig.h. */
#include "test/metal/arm64/stage2_rig.h"

#include "hosts/metal/arm64/cpu.h"

#define POOL 64u /* frames of the heap: tables and what moves */

struct stage2_rig rig;
static hvmem_mfn held[POOL];
static unsigned held_count;
static struct metal_vcpu vcpu[METAL_MAX_CPUS];

void rig_read_word(void *at)
{
    (void)metal_guest_hvc(METAL_HVC_CALL, *(volatile uint64_t *)at);
}

void rig_read_frame(void *at)
{
    const volatile uint64_t *words = at;
    uint64_t all = 0;

    for (unsigned i = 0; i < METAL_PAGE_BYTES / 8; i++)
        all |= words[i];
    (void)metal_guest_hvc(METAL_HVC_CALL, all);
}

int rig_runs(struct vm *vm, uint64_t vttbr, metal_call_fn fn, unsigned i, uint64_t *value)
{
    struct metal_vcpu *v = &vcpu[metal_cpu_id()];
    const uint64_t ipa = (rig.first + i) << METAL_PAGE_SHIFT;
    struct metal_guest_exit e;

    CHECK(vm_vcpu(vm, v, fn, (void *)(uintptr_t)ipa));
    v->vttbr = vttbr;
    v->abort = NULL; /* a fault is to be seen, not to be repaired */
    for (;;) {
        CHECK_EQUAL(metal_guest_run(v, &e), METAL_OK);
        /* The image's own pages may be untouched too: those are repaired. */
        if ((e.kind != METAL_EXIT_DATA && e.kind != METAL_EXIT_FETCH) || e.ipa - ipa < 4096 ||
            vm_abort(vm, e.ipa,
                     e.kind == METAL_EXIT_FETCH ? METAL_ACCESS_FETCH : METAL_ACCESS_READ) != 0)
            break;
    }
    if (e.kind == METAL_EXIT_HVC && e.imm == METAL_HVC_CALL) {
        *value = v->x[0];
        return 1;
    }
    CHECK_EQUAL(e.kind, METAL_EXIT_DATA);
    CHECK_EQUAL(e.ipa, ipa);
    return 0;
}

int rig_reads(unsigned i, uint64_t *value)
{
    return rig_runs(&rig.vm, rig.vm.vttbr, rig_read_word, i, value);
}

void rig_map_in(struct vm *vm)
{
    for (unsigned i = 0; i < MOVE_FRAMES; i++) {
        const struct hvmem_stage2_map request = {.size = sizeof request,
                                                 .gfn = rig.first + i,
                                                 .frames = 1,
                                                 .mfn = moves.frame[i],
                                                 .rights = HVMEM_S2_RWX};

        CHECK_EQUAL(hvmem_stage2_map(vm->s2, &request, NULL), HVMEM_OK);
    }
}

void rig_map(void)
{
    rig_map_in(&rig.vm);
}

struct vm_options rig_options(void)
{
    const struct vm_options options = {.heap = moves.heap,
                                       .ops = &moves.ops,
                                       .host = &moves.host,
                                       .backend = &moves.backend,
                                       .largest = 9,
                                       .ident = rig.vm.ident};

    return options;
}

void rig_hold_others(void)
{
    const hvmem_mfn base = moves.frame[0] & ~(hvmem_mfn)(POOL - 1);
    struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY};

    for (request.lo = base; request.lo < base + POOL; request.lo++) {
        unsigned i = 0;

        while (i < MOVE_FRAMES && moves.frame[i] != request.lo)
            i++;
        request.hi = request.lo + 1;
        if (i == MOVE_FRAMES && hvmem_alloc(moves.heap, &request, &held[held_count]) == HVMEM_OK)
            held_count++;
    }
}

void rig_release_others(void)
{
    while (held_count > 0)
        CHECK_EQUAL(hvmem_free(moves.heap, held[--held_count], 0), HVMEM_OK);
}

int rig_make(void)
{
    struct vm_options options;
    void *names;

    moves.pool = POOL;
    moves.map = rig_map;
    moves.reads = rig_reads;
    if (!move_start())
        return 0;
    options = rig_options();
    names = metal_pages(MOVE_FRAMES * METAL_PAGE_BYTES, MOVE_FRAMES * METAL_PAGE_BYTES);
    if (!CHECK(vm_make(&rig.vm, &options)) || !CHECK(vm_map_image(&rig.vm)) ||
        !CHECK(names != NULL))
        return 0;
    /* Guest frames that the image's own tables map: of memory that nobody uses. */
    rig.first = metal_maddr(names) >> METAL_PAGE_SHIFT;
    CHECK_EQUAL(hvmem_stage2_unmap(rig.vm.s2, rig.first, MOVE_FRAMES, NULL, NULL), HVMEM_OK);
    return CHECK_EQUAL(metal_call_cpus(move_all_cpus(), vm_load, &rig.vm), METAL_OK);
}

static void unload(void *arg)
{
    vm_unload(arg, 1);
}

void rig_end(void)
{
    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), unload, &rig.vm), METAL_OK);
    CHECK_EQUAL(moves.host.reports, 0);
}

int rig_refused(void)
{
    CHECK_EQUAL(metal_guest_init(&vcpu[0], rig_read_word, NULL, metal_guest_stack()), METAL_E_LACK);
    return check_result();
}
