/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guest: the core of the EL2 monitor. Every kind of exit with what it reports, registers kept across
 * exits, interrupts of the host served while a guest runs, recording with stage 2 on, and the
 * refusal of all of it by an image at EL1.
 */
#include "hosts/metal/arm64/cpu.h"
#include "hosts/metal/arm64/monitor.h"
#include "hosts/metal/arm64/stage2.h"
#include "test/metal/check.h"

#define VMID 9u

static struct metal_s2 s2;
static struct metal_vcpu vcpu;
static struct metal_guest_exit e;
static uint64_t *page; /* one frame, its code returns 77 */

static void make(metal_call_fn fn, void *arg, uint64_t hcr)
{
    CHECK_EQUAL(metal_guest_init(&vcpu, fn, arg, metal_guest_stack()), METAL_OK);
    vcpu.hcr = hcr;
    vcpu.vtcr = s2.vtcr;
    vcpu.vttbr = metal_s2_vttbr(&s2, VMID);
}

static void enter(void)
{
    CHECK_EQUAL(metal_guest_run(&vcpu, &e), METAL_OK);
}

/* ---- guests ---- */

static void do_nothing(void *arg)
{
    (void)arg;
}

static void do_wfi(void *arg)
{
    (void)arg;
    __asm__ volatile("wfi" ::: "memory");
}

static void do_smc(void *arg)
{
    (void)arg;
    __asm__ volatile("smc #0x123" ::: "memory");
}

static void do_call(void *arg)
{
    *(uint64_t *)arg = ((uint64_t(*)(void))(uintptr_t)metal_window())();
}

static void do_tlbi(void *arg)
{
    __asm__ volatile("tlbi vae1is, %0\n\ttlbi vmalle1" ::"r"(arg) : "memory");
}

static void do_fault(void *arg)
{
    struct metal_fault fault = {0, 0, 0, 0};
    uint64_t value;

    /* Its own level catches it: no exit. */
    *(int *)arg = metal_probe_read(0, &value, &fault) == 1 && fault.addr == 0;
}

/* Fills every general register with its number times 3, exits, and reports the sum of what is left. */
static void do_registers(void *arg)
{
    uint64_t sum;

    __asm__ volatile(".irp r,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,20,21,22,23,24,25,26,27,28\n\t"
                     "mov x\\r, #(3 * \\r)\n\t.endr\n\t"
                     "mov x0, #0\n\thvc #1\n\tmov x0, #0\n\t"
                     ".irp r,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,20,21,22,23,24,25,26,27,28\n\t"
                     "add x0, x0, x\\r\n\t.endr\n\t"
                     "mov %0, x0"
                     : "=r"(sum)
                     :
                     : "x0", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12",
                       "x13", "x14", "x15", "x16", "x17", "x20", "x21", "x22", "x23", "x24", "x25",
                       "x26", "x27", "x28", "memory");
    *(uint64_t *)arg = sum;
}

/* ---- checks ---- */

static void check_exits(void)
{
    make(do_nothing, NULL, 0);
    enter();
    CHECK_EQUAL(e.kind, METAL_EXIT_HVC);
    CHECK_EQUAL(e.imm, METAL_HVC_RETURN);

    make(do_wfi, NULL, METAL_HCR_TWI);
    enter();
    CHECK_EQUAL(e.kind, METAL_EXIT_WFI);
    vcpu.pc += 4;
    enter();
    CHECK_EQUAL(e.imm, METAL_HVC_RETURN);

    make(do_smc, NULL, METAL_HCR_TSC);
    enter();
    CHECK_EQUAL(e.kind, METAL_EXIT_SMC);
    CHECK_EQUAL(e.imm, 0x123);

    make(do_tlbi, (void *)0x1234, METAL_HCR_TTLB);
    enter();
    CHECK_EQUAL(e.kind, METAL_EXIT_SYSREG);
    CHECK(e.op.op0 == 1 && e.op.op1 == 0 && e.op.crn == 8 && e.op.crm == 3 && e.op.op2 == 1);
    CHECK(!e.is_read && e.rt != 31 && vcpu.x[e.rt] == 0x1234);
}

/* A fetch from an address without stage-2 entry; then the entry is made and the code runs. */
static void check_fetch(void)
{
    static uint64_t result;
    const uint64_t ipa = metal_maddr(page);

    metal_code_return(page, 77);
    metal_code_visible(page, 8);
    metal_map(metal_window(), ipa, METAL_4K, METAL_P | METAL_X);
    metal_s2_map(&s2, ipa, 0, METAL_4K, 0);
    metal_flush_own();
    make(do_call, &result, METAL_HCR_VM);
    enter();
    CHECK_EQUAL(e.kind, METAL_EXIT_FETCH);
    CHECK_EQUAL(e.ipa, ipa);
    CHECK_EQUAL(e.status, 0x07);
    CHECK_EQUAL(e.far, metal_window());
    metal_s2_map(&s2, ipa, ipa, METAL_4K, METAL_S2_RWX);
    CHECK_EQUAL(metal_guest_call(&vcpu, NULL, NULL), METAL_OK);
    CHECK_EQUAL(result, 77);
    metal_window_clear();
}

/* The guest's own stage-1 table is not mapped by stage 2: the abort names the table, not the page. */
static void check_walk_fault(void)
{
    static uint64_t result;
    const uint64_t ipa = metal_maddr(page);

    metal_map(metal_window(), ipa, METAL_4K, METAL_P | METAL_X);
    make(do_call, &result, METAL_HCR_VM);
    vcpu.ttbr0_el1 = 1ull << (METAL_S2_IPA_BITS - 1); /* an IPA that nothing maps */
    metal_flush_own();
    enter();
    CHECK(e.kind == METAL_EXIT_FETCH || e.kind == METAL_EXIT_DATA);
    CHECK_EQUAL(e.on_walk, 1);
    CHECK_EQUAL(e.is_write, 0);
    CHECK_EQUAL(e.ipa >> 12, 1ull << (METAL_S2_IPA_BITS - 1 - 12));
    metal_window_clear();
}

static void check_registers(void)
{
    static uint64_t sum;
    uint64_t expected = 0;

    for (unsigned r = 2; r <= 28; r++)
        expected += r == 18 || r == 19 ? 0 : 3 * r;
    make(do_registers, &sum, 0);
    enter();
    CHECK_EQUAL(e.kind, METAL_EXIT_HVC);
    CHECK_EQUAL(e.imm, METAL_HVC_CALL);
    CHECK_EQUAL(vcpu.x[28], 84);
    CHECK_EQUAL(metal_guest_call(&vcpu, NULL, NULL), METAL_OK);
    CHECK_EQUAL(sum, expected);
}

/* Aborts go to the vCPU's handler without an exit; one that it does not resolve is an exit. */
struct handled {
    unsigned calls;
    uint64_t ipa;
    unsigned access;
};

static int repair(void *context, uint64_t ipa, unsigned access)
{
    struct handled *h = context;

    h->calls++;
    h->ipa = ipa;
    h->access = access;
    return access != METAL_ACCESS_WRITE ||
           metal_s2_map(&s2, ipa & ~4095ull, ipa & ~4095ull, METAL_4K, METAL_S2_RWX) != METAL_OK;
}

static void do_write(void *arg)
{
    ((volatile uint64_t *)arg)[3] = 99;
}

static void do_read(void *arg)
{
    (void)((volatile uint64_t *)arg)[3];
}

static void check_abort(void)
{
    const uint64_t ipa = metal_maddr(page);
    struct handled h = {0, 0, 0};

    metal_s2_map(&s2, ipa, ipa, METAL_4K, METAL_S2_R | METAL_S2_AF);
    metal_flush_own();
    make(do_write, page, METAL_HCR_VM);
    vcpu.abort = repair;
    vcpu.abort_context = &h;
    CHECK_EQUAL(metal_guest_call(&vcpu, NULL, NULL), METAL_OK);
    CHECK_EQUAL(h.calls, 1);
    CHECK_EQUAL(h.ipa, ipa + 24);
    CHECK_EQUAL(h.access, METAL_ACCESS_WRITE);
    CHECK_EQUAL(page[3], 99);
    metal_s2_map(&s2, ipa, ipa, METAL_4K, 0);
    metal_flush_own();
    make(do_read, page, METAL_HCR_VM);
    vcpu.abort = repair;
    vcpu.abort_context = &h;
    enter();
    CHECK_EQUAL(h.access, METAL_ACCESS_READ);
    CHECK_EQUAL(e.kind, METAL_EXIT_DATA);
    CHECK_EQUAL(e.ipa, ipa + 24);
    metal_s2_map(&s2, ipa, ipa, METAL_4K, METAL_S2_RWX);
}

static int stop_at_hvc(void *context, struct metal_vcpu *v, const struct metal_guest_exit *exit)
{
    (void)v;
    ++*(unsigned *)context;
    return exit->kind == METAL_EXIT_HVC ? 42 : METAL_GUEST_UNHANDLED;
}

static void check_call(void)
{
    unsigned calls = 0;
    int caught = 0;

    make(do_wfi, NULL, METAL_HCR_TWI);
    CHECK_EQUAL(metal_guest_call(&vcpu, stop_at_hvc, &calls), METAL_E_INVAL);
    CHECK_EQUAL(calls, 1);
    make(do_registers, &calls, 0);
    CHECK_EQUAL(metal_guest_call(&vcpu, stop_at_hvc, &calls), 42);
    make(do_fault, &caught, METAL_HCR_VM);
    CHECK_EQUAL(metal_guest_call(&vcpu, NULL, NULL), METAL_OK);
    CHECK_EQUAL(caught, 1);
}

static void check_recording_under_stage2(void)
{
    struct metal_monitor_op log[2];

    make(do_tlbi, (void *)0x5678, METAL_HCR_VM);
    CHECK_EQUAL(metal_monitor_record_vcpu(&vcpu, log, 1), 2); /* the log is shorter */
    CHECK_EQUAL(log[0].operand, 0x5678);
    CHECK_EQUAL(log[0].has_operand, 1);
    make(do_tlbi, (void *)0x5678, METAL_HCR_VM);
    CHECK_EQUAL(metal_monitor_record_vcpu(&vcpu, log, 2), 2);
    CHECK_EQUAL(log[1].has_operand, 0);
    CHECK_EQUAL(log[1].op.crm, 7);
    CHECK_EQUAL(log[1].pc, log[0].pc + 4);
}

/* ---- interrupts ---- */

static volatile uint64_t arrived;
static volatile int spinning;
static int spin_result;

static void spin(void *arg)
{
    (void)arg;
    spinning = 1;
    while (arrived == 0)
        metal_relax();
}

/* On CPU 1: a guest that spins until an interrupt of the host was served on that CPU. */
static void run_spinner(void *arg)
{
    struct metal_vcpu v;

    (void)arg;
    spin_result = metal_guest_init(&v, spin, NULL, metal_guest_stack());
    if (spin_result == METAL_OK)
        spin_result = metal_guest_call(&v, NULL, NULL);
}

static void arrive(void *arg)
{
    (void)arg;
    arrived = 1 + metal_cpu_id();
}

/* On CPU 2: waits for the guest on CPU 1, then calls that CPU. */
static void interrupt_it(void *arg)
{
    (void)arg;
    while (!spinning)
        metal_relax();
    (void)metal_call_cpus(1u << 1, arrive, NULL);
}

static void both(void *arg)
{
    if (metal_cpu_id() == 1)
        run_spinner(arg);
    else
        interrupt_it(arg);
}

static void check_interrupts(void)
{
    if (metal_start_cpus(NULL) < 3)
        return;
    CHECK_EQUAL(metal_run_cpus(6, both, NULL), METAL_OK);
    CHECK_EQUAL(spin_result, METAL_OK);
    CHECK_EQUAL(arrived, 2);
}

static int refused_at_el1(void)
{
    struct metal_monitor_op op;
    const struct metal_sysop vmalle1 = {1, 0, 8, 7, 0};

    CHECK_EQUAL(metal_s2_init(&s2), METAL_E_LACK);
    CHECK_EQUAL(metal_guest_init(&vcpu, do_nothing, NULL, metal_guest_stack()), METAL_E_LACK);
    CHECK_EQUAL(metal_guest_run(&vcpu, &e), METAL_E_LACK);
    CHECK_EQUAL(metal_guest_call(&vcpu, NULL, NULL), METAL_E_LACK);
    CHECK_EQUAL(metal_monitor_record(do_nothing, NULL, &op, 1), METAL_E_LACK);
    CHECK_EQUAL(metal_monitor_execute(&vmalle1, 0, 0), METAL_E_LACK);
    return check_result();
}

static int guest(void)
{
    if (current_el() != 2)
        return refused_at_el1();
    page = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    CHECK_EQUAL(metal_s2_init(&s2), METAL_OK);
    CHECK_EQUAL(metal_s2_map(&s2, metal_maddr(page), metal_maddr(page), METAL_4K, METAL_S2_RWX),
                METAL_OK);
    CHECK_EQUAL(metal_s2_map_all(&s2), METAL_OK);
    check_exits();
    check_fetch();
    check_walk_fault();
    check_registers();
    check_abort();
    check_call();
    check_recording_under_stage2();
    check_interrupts();
    return check_result();
}

METAL_PROGRAM(guest, guest);
