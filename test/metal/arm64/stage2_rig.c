/* SPDX-License-Identifier: BSD-2-Clause */
/* The guest of stage2_rig.h. */
#include "test/metal/arm64/stage2_rig.h"

#include "hosts/metal/arm64/cpu.h"

#define POOL 64u /* frames of the heap: tables and what moves */

struct stage2_rig rig;
static struct metal_vcpu vcpu[METAL_MAX_CPUS];

static void read_once(void *arg)
{
    (void)metal_guest_hvc(METAL_HVC_CALL, *(volatile uint64_t *)arg);
}

int rig_reads(unsigned i, uint64_t *value)
{
    struct metal_vcpu *v = &vcpu[metal_cpu_id()];
    const uint64_t ipa = (rig.first + i) << METAL_PAGE_SHIFT;
    struct metal_guest_exit e;

    CHECK(vm_vcpu(&rig.vm, v, read_once, (void *)(uintptr_t)ipa));
    v->abort = NULL; /* a fault is to be seen, not to be repaired */
    for (;;) {
        CHECK_EQUAL(metal_guest_run(v, &e), METAL_OK);
        /* The image's own pages may be untouched too: those are repaired. */
        if ((e.kind != METAL_EXIT_DATA && e.kind != METAL_EXIT_FETCH) || e.ipa == ipa ||
            vm_abort(&rig.vm, e.ipa,
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

void rig_map(void)
{
    for (unsigned i = 0; i < MOVE_FRAMES; i++) {
        const struct hvmem_stage2_map request = {.size = sizeof request,
                                                 .gfn = rig.first + i,
                                                 .frames = 1,
                                                 .mfn = moves.frame[i],
                                                 .rights = HVMEM_S2_RWX};

        CHECK_EQUAL(hvmem_stage2_map(rig.vm.s2, &request, NULL), HVMEM_OK);
    }
}

int rig_make(void)
{
    struct vm_options options = {.largest = 9};
    void *names;

    moves.pool = POOL;
    moves.map = rig_map;
    moves.reads = rig_reads;
    if (!move_start())
        return 0;
    options.heap = moves.heap;
    options.backend = &moves.backend;
    options.ops = &moves.ops;
    options.host = &moves.host;
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
    const uint64_t irq = metal_irq_save();

    (void)arg;
    CHECK_EQUAL(hvmem_space_deactivate(rig.vm.ident, metal_cpu_id()), HVMEM_OK);
    write_sysreg(vttbr_el2, 0);
    isb();
    CHECK_EQUAL(hvmem_space_entered(rig.vm.ident, metal_cpu_id()), HVMEM_OK);
    metal_irq_restore(irq);
}

void rig_end(void)
{
    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), unload, NULL), METAL_OK);
    CHECK_EQUAL(moves.host.reports, 0);
}

int rig_refused(void)
{
    CHECK_EQUAL(metal_guest_init(&vcpu[0], read_once, NULL, metal_guest_stack()), METAL_E_LACK);
    return check_result();
}
