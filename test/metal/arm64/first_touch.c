/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * first_touch: frames that hold A's secret are populated into the guest B for its first touch, unscrubbed;
 * B's vCPUs read all of each. With scrubbing claimed and not executed they find the secret (negative
 * control), with it not a byte of it, on any CPU, and each page is paid for once. A's translations
 * were flushed before B's first touch, as of any populate. Needs EL2.
 */
#include <hvmem/populate.h>

#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/stage2_rig.h"

#define SECRET 0x5EC4E75EC4E75EC4ull
#define ROUNDS 20u
#define B_CPU  (moves.cpus - 1) /* runs B's vCPU while the others hold A's translations */

static struct vm guest; /* B */
static struct hvmem_domain *domain;
static void *domain_memory;
static unsigned faults, secrets; /* atomic: first touches that faulted, pages that were not zero */
static unsigned zeroed;          /* atomic: calls of the back-end's zero */
static hvmem_u32 flags;          /* of B's stage 2 */

static hvmem_status (*machine_zero)(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes);

static hvmem_status spy_zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    __atomic_fetch_add(&zeroed, 1, __ATOMIC_RELAXED);
    return moves.executes ? machine_zero(be, addr, bytes) : HVMEM_OK;
}

/* ---- B, anew in each round ---- */

static int guest_make(void)
{
    struct vm_options options = rig_options();
    const struct hvmem_domain_config config = {.size = sizeof config, .id = 5, .limit = ~0ull};
    struct hvmem_domain_ops ops;

    if (!CHECK_EQUAL(hvmem_domain_create(moves.heap, domain_memory, hvmem_domain_size(moves.heap),
                                         &config, &domain),
                     HVMEM_OK))
        return 0;
    options.domain = domain;
    options.flags = flags;
    hvmem_stage2_ops(&ops);
    return CHECK(vm_make(&guest, &options) && vm_map_image(&guest)) &&
           CHECK_EQUAL(hvmem_stage2_unmap(guest.s2, rig.first, MOVE_FRAMES, NULL, NULL),
                       HVMEM_OK) &&
           CHECK_EQUAL(hvmem_domain_attach(domain, &ops, guest.s2, guest.space), HVMEM_OK);
}

static void leave(void *arg)
{
    vm_unload(arg, 0);
}

static void guest_end(uint64_t cpus)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status;

    CHECK_EQUAL(metal_call_cpus(cpus, leave, &guest), METAL_OK);
    do
        status = hvmem_domain_teardown(domain, 0, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQUAL(status, HVMEM_OK);
    CHECK_EQUAL(hvmem_domain_destroy(domain), HVMEM_OK);
}

/* The frames of the round, unpaid; moves.frame says which lies where. */
static int populate(void)
{
    struct hvmem_extent extents[MOVE_FRAMES];
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    struct hvmem_populate request = {
        .size = sizeof request, .extents = extents, .count = MOVE_FRAMES, .node = HVMEM_NODE_ANY};
    hvmem_status status;

    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        extents[i] = (struct hvmem_extent){.gfn = rig.first + i, .flags = HVMEM_EXTENT_FIRST_TOUCH};
    rig_hold_others();
    do
        status = hvmem_domain_populate(domain, &request, &cursor);
    while (status == HVMEM_AGAIN);
    rig_release_others();
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        moves.frame[i] = extents[i].mfn;
    return CHECK_EQUAL(status, HVMEM_OK);
}

/* ---- A, and what it leaves ---- */

static void fill(void)
{
    for (unsigned i = 0; i < MOVE_FRAMES; i++) {
        volatile uint64_t *words = metal_frame(moves.frame[i] << METAL_PAGE_SHIFT);

        for (unsigned w = 0; w < METAL_PAGE_BYTES / 8; w++)
            words[w] = SECRET;
    }
}

static int give(void)
{
    int good = 1;

    fill();
    CHECK_EQUAL(hvmem_stage2_unmap(rig.vm.s2, rig.first, MOVE_FRAMES, NULL, NULL), HVMEM_OK);
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &=
            hvmem_free_owned(moves.heap, moves.frame[i], 0, moves.a, HVMEM_OWES_SCRUB) == HVMEM_OK;
    return good;
}

/* ---- B's vCPUs ---- */

/* Faults on a page while another CPU, which an emulator may hold up, pays for it. */
#define TURNS 100000u

static void touch(unsigned i)
{
    uint64_t all = 0;
    hvmem_u32 outcome = HVMEM_FAULT_AGAIN;
    unsigned turns;

    for (turns = 0; turns < TURNS && !rig_runs(&guest, guest.vttbr, rig_read_frame, i, &all);
         turns++) {
        __atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
        CHECK_EQUAL(
            hvmem_stage2_fault(guest.s2, (rig.first + i) << METAL_PAGE_SHIFT, HVMEM_S2_R, &outcome),
            HVMEM_OK);
        CHECK(outcome <= HVMEM_FAULT_AGAIN);
    }
    CHECK(turns < TURNS);
    __atomic_fetch_add(&secrets, all != 0, __ATOMIC_RELAXED);
    CHECK(all == 0 || all == SECRET);
}

/* Each CPU begins at another page. */
static void touch_all(void *arg)
{
    const unsigned from = metal_cpu_id() * 3;

    (void)arg;
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        touch((from + i) % MOVE_FRAMES);
}

static void begin_touching(void)
{
    faults = secrets = zeroed = 0;
}

/* On one CPU, so that the others still hold what A had: a CPU under an emulator forgets it with the VMID. */
static int take(void)
{
    int good = guest_make() && populate();

    begin_touching();
    CHECK_EQUAL(metal_call_cpus(1ull << B_CPU, vm_load, &guest), METAL_OK);
    CHECK_EQUAL(metal_call_cpus(1ull << B_CPU, touch_all, NULL), METAL_OK);
    CHECK_EQUAL(faults, MOVE_FRAMES);
    CHECK_EQUAL(zeroed, MOVE_FRAMES);
    CHECK_EQUAL(secrets, moves.executes ? 0 : MOVE_FRAMES);
    return good;
}

/* All of B's frames go back with it, and to A again. */
static void end(void)
{
    guest_end(1ull << B_CPU);
    CHECK_EQUAL(metal_call_cpus(1ull << B_CPU, vm_load, &rig.vm), METAL_OK);
}

/* All CPUs at once: who comes second enters without paying, and sees zeros too. */
static void touch_at_once(void)
{
    struct hvmem_stage2_stats stats = {.size = sizeof stats};

    for (unsigned round = 0; round < ROUNDS; round++) {
        /* With the flag the image, which is of no heap, waits for its first touch as well. */
        flags = round & 1 ? HVMEM_S2_FIRST_TOUCH : 0;
        moves.executes = 1;
        CHECK(move_take(moves.a, 0));
        rig_map();
        CHECK(give() && guest_make() && populate());
        CHECK_EQUAL(metal_call_cpus(move_all_cpus(), leave, &rig.vm), METAL_OK);
        CHECK_EQUAL(metal_call_cpus(move_all_cpus(), vm_load, &guest), METAL_OK);
        begin_touching();
        CHECK_EQUAL(metal_call_cpus(move_all_cpus(), touch_all, NULL), METAL_OK);
        CHECK_EQUAL(secrets, 0);
        CHECK_EQUAL(zeroed, MOVE_FRAMES);
        CHECK_EQUAL(hvmem_stage2_stats(guest.s2, &stats), HVMEM_OK);
        CHECK(flags != 0 ? stats.repairs > MOVE_FRAMES : stats.repairs == MOVE_FRAMES);
        guest_end(move_all_cpus());
        CHECK_EQUAL(metal_call_cpus(move_all_cpus(), vm_load, &rig.vm), METAL_OK);
    }
    metal_printf("%u rounds of %u CPUs at once: each page scrubbed once, no secret seen\n", ROUNDS,
                 moves.cpus);
}

static int first_touch(void)
{
    /* A's unmap is one batch, populate's flush of the owing frames another. */
    struct path path = {"first touch", give, take, {0, 1}, {0, 0}, {0, 2}, 0};

    if (!is_plain_el2())
        return rig_refused();
    if (!rig_make())
        return check_result();
    machine_zero = moves.backend_ops.zero;
    moves.backend_ops.zero = spy_zero;
    domain_memory = metal_pages(hvmem_domain_size(moves.heap), METAL_PAGE_BYTES);
    path.clean = 1ull << B_CPU;
    moves.end = end;
    move_run(&path);
    touch_at_once();
    rig_end();
    return check_result();
}

METAL_PROGRAM(first_touch, first_touch);
