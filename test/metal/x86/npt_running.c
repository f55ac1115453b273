/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * npt_running: a guest (AMD SVM) writes to a page on CPU 1 without end, on nested tables of the library,
 * while CPU 0 takes the right to write from it, or the page. With the interrupt that asks CPU 1 claimed and
 * not sent the guest goes on writing (negative control); with it, no write gets through once the call has
 * returned, the guest faults, and goes on when it is given back what was taken.
 */
#include "hosts/metal/x86/svm_vmcb.h"
#include "test/metal/check.h"
#include "test/metal/x86/nested.h"

#define ROUNDS    100u
#define MANY      200u /* writes before the guest is believed to go on */
#define PATIENT   20000000u
#define EXIT_NPF  0x400u
#define NPF_WRITE (1u << 1)

static struct hvmem_host_ops ops; /* the host's, but for call_cpus */
static int sends;
static unsigned asked; /* calls of it */
static HVMEM_CALLBACK hvmem_status (*machine_call)(void *host, const struct hvmem_cpuset *cpus,
                                                   HVMEM_CALLBACK void (*fn)(void *arg), void *arg);

static HVMEM_CALLBACK hvmem_status spy_call(void *host, const struct hvmem_cpuset *cpus,
                                            HVMEM_CALLBACK void (*fn)(void *arg), void *arg)
{
    asked++;
    CHECK_EQUAL(cpus->words[0], 2); /* the CPU that runs the space, and no other */
    return sends ? machine_call(host, cpus, fn, arg) : HVMEM_OK;
}

/* ---- the guest, on CPU 1 ---- */

static struct {
    volatile uint64_t *page;
    uint64_t written; /* by the guest */
    uint32_t stop;
    /* Of CPU 1's host. */
    uint32_t denied;  /* faults that the library cannot repair */
    uint32_t goes_on; /* 1: enter again after one */
    hvmem_u32 outcome;
} shared;

static void write_on(void *arg)
{
    (void)arg;
    while (__atomic_load_n(&shared.stop, __ATOMIC_RELAXED) == 0) {
        *shared.page = shared.written + 1;
        __atomic_store_n(&shared.written, shared.written + 1, __ATOMIC_RELEASE);
    }
}

/* As the library says: an entry flushes if it is owed. Returns the exit code. */
static uint64_t enter(void)
{
    const uint64_t irq = metal_irq_save();
    struct hvmem_entry entry = {.id = 0};
    uint8_t *vmcb = nested.guest.vmcb;

    CHECK_EQUAL(hvmem_space_activate(nested.space, 1, &entry), HVMEM_OK);
    metal__vmcb_copy_cpu(vmcb);
    *vmcb32(vmcb, VMCB_ASID) = entry.id;
    vmcb[VMCB_TLB_CONTROL] = (uint8_t)entry.value;
    metal__svm_enter((uintptr_t)vmcb, nested.guest.regs);
    CHECK_EQUAL(hvmem_space_entered(nested.ident, 1), HVMEM_OK);
    metal_irq_restore(irq);
    return *vmcb64(vmcb, VMCB_EXIT_CODE);
}

static void take_fault(void)
{
    const uint64_t info = *vmcb64(nested.guest.vmcb, VMCB_EXIT_INFO1);
    const uint64_t gpa = *vmcb64(nested.guest.vmcb, VMCB_EXIT_INFO2);

    CHECK_EQUAL(hvmem_stage2_fault(nested.s2, gpa, info & NPF_WRITE ? HVMEM_S2_W : HVMEM_S2_R,
                                   &shared.outcome),
                HVMEM_OK);
    if (shared.outcome <= HVMEM_FAULT_AGAIN)
        return;
    CHECK_EQUAL(gpa >> METAL_PAGE_SHIFT, nested.first);
    __atomic_store_n(&shared.goes_on, 0, __ATOMIC_RELAXED);
    __atomic_fetch_add(&shared.denied, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&shared.goes_on, __ATOMIC_ACQUIRE) == 0)
        metal_relax();
}

static void run_guest(void)
{
    uint64_t exit;

    while ((exit = enter()) != EXIT_VMMCALL) {
        if (exit == EXIT_NPF)
            take_fault();
        else if (!CHECK(exit == EXIT_INTR || exit == EXIT_NMI))
            return;
    }
}

/* ---- CPU 0 ---- */

/* 1: the guest wrote on; 0: it waits, or does nothing. */
static int goes_on(void)
{
    const uint64_t from = __atomic_load_n(&shared.written, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < PATIENT; i++) {
        if (__atomic_load_n(&shared.written, __ATOMIC_ACQUIRE) - from > MANY)
            return 1;
        if (__atomic_load_n(&shared.goes_on, __ATOMIC_ACQUIRE) == 0)
            return 0;
        metal_relax();
    }
    return 0;
}

static hvmem_status take_right(void)
{
    return hvmem_stage2_protect(nested.s2, nested.first, 1, HVMEM_S2_R, NULL, NULL);
}

static hvmem_status give_right(void)
{
    return hvmem_stage2_protect(nested.s2, nested.first, 1, HVMEM_S2_RWX, NULL, NULL);
}

static hvmem_status take_page(void)
{
    return hvmem_stage2_unmap(nested.s2, nested.first, 1, NULL, NULL);
}

static hvmem_status give_page(void)
{
    return nested_map(nested.first, 1) ? HVMEM_OK : HVMEM_E_BUSY;
}

struct way {
    const char *name;
    hvmem_status (*take)(void), (*give)(void);
    hvmem_u32 outcome;
};

static void round_of(const struct way *w, unsigned *stale)
{
    uint64_t value;
    uint32_t denied;

    sends = 0;
    asked = 0;
    CHECK(goes_on());
    CHECK_EQUAL(w->take(), HVMEM_OK);
    CHECK_EQUAL(asked, 1);
    *stale += (unsigned)goes_on();
    CHECK_EQUAL(w->give(), HVMEM_OK);
    __atomic_store_n(&shared.goes_on, 1,
                     __ATOMIC_RELEASE); /* an entry dropped out: it was denied */

    sends = 1;
    CHECK(goes_on());
    denied = __atomic_load_n(&shared.denied, __ATOMIC_ACQUIRE);
    CHECK_EQUAL(w->take(), HVMEM_OK);
    value = *shared.page;
    CHECK_EQUAL(asked, 2);
    for (unsigned i = 0; i < PATIENT && __atomic_load_n(&shared.denied, __ATOMIC_ACQUIRE) == denied;
         i++)
        metal_relax();
    CHECK_EQUAL(shared.denied, denied + 1);
    CHECK_EQUAL(shared.outcome, w->outcome);
    CHECK_EQUAL(*shared.page, value); /* nothing got through since */
    CHECK_EQUAL(w->give(), HVMEM_OK);
    __atomic_store_n(&shared.goes_on, 1, __ATOMIC_RELEASE);
}

static void change_under_it(void)
{
    static const struct way ways[] = {
        {"the right to write taken", take_right, give_right, HVMEM_FAULT_RIGHTS},
        {"the page taken", take_page, give_page, HVMEM_FAULT_UNMAPPED},
    };

    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        unsigned stale = 0;

        for (unsigned round = 0; round < ROUNDS; round++)
            round_of(&ways[i], &stale);
        metal_printf(
            "npt, %s: without the interrupt the guest wrote on in %u of %u rounds, with it "
            "in 0\n",
            ways[i].name, stale, ROUNDS);
        CHECK(stale >= ROUNDS / 2);
    }
    __atomic_store_n(&shared.stop, 1, __ATOMIC_RELAXED);
}

static void both(void *arg)
{
    (void)arg;
    if (metal_cpu_id() == 0)
        change_under_it();
    else
        run_guest();
}

static void svm_on(void *arg)
{
    (void)arg;
    metal_svm_guests_begin();
}

static int npt_running(void)
{
    if (metal_start_cpus(NULL) < 2) {
        metal_printf("npt_running: needs two CPUs\n");
        return 1;
    }
    if (!CHECK(nested_make(write_on)) || !CHECK_EQUAL(metal_heap_smp(&nested.heap), HVMEM_OK) ||
        !CHECK_EQUAL(metal_call_cpus(3, svm_on, NULL), METAL_OK))
        return check_result();
    ops = nested.heap.ops;
    machine_call = ops.call_cpus;
    ops.call_cpus = spy_call;
    sends = 1;
    shared.goes_on = 1;
    if (!CHECK(nested_tables(&ops, NULL)) || !CHECK(nested_map(nested.first, 1)))
        return check_result();
    shared.page = metal_frame(nested.first << METAL_PAGE_SHIFT);
    CHECK_EQUAL(metal_run_cpus(3, both, NULL), METAL_OK);
    CHECK_EQUAL(nested.heap.host.reports, 0);
    metal_svm_guests_end();
    return check_result();
}

METAL_PROGRAM(npt_running, npt_running);
