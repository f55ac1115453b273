/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * svm: does the recorder see every maintenance instruction with its operand, in order, and does the
 * recorded function do its work? Also what it must refuse.
 */
#include "hosts/metal/x86/regs.h"
#include "hosts/metal/x86/svm.h"
#include "test/metal/check.h"

#define LOG_MAX 64u

static struct metal_svm_op log[LOG_MAX];
static uint64_t guest_result;

static void expect(unsigned at, uint32_t what, uint64_t operand)
{
    CHECK_EQUAL(log[at].what, what);
    CHECK_EQUAL(log[at].operand, operand);
}

static void forms_of_invlpg(void *arg)
{
    const uint64_t a = (uintptr_t)arg;

    __asm__ volatile("invlpg (%0)" : : "r"(a) : "memory");
    __asm__ volatile("movq %0, %%r12; invlpg (%%r12)" : : "r"(a) : "r12", "memory");
    __asm__ volatile("movq %0, %%r13; invlpg 0x10(%%r13)" : : "r"(a) : "r13", "memory");
    __asm__ volatile("invlpg 0x12345(%0)" : : "r"(a) : "memory");
    __asm__ volatile("invlpg -8(%0, %1, 4)" : : "r"(a), "r"(0x1000ull) : "memory");
    __asm__ volatile("movq %0, %%r9; invlpg 0x4000(, %%r9, 2)" : : "r"(0x1000ull) : "r9", "memory");
    __asm__ volatile("invlpg metal_svm_record(%%rip)" : : : "memory");
    __asm__ volatile("invlpg (%%rsp)" : : : "memory");
}

static void check_invlpg(void)
{
    const uint64_t a = 0x200000123000;
    unsigned count = 0;

    CHECK_EQUAL(metal_svm_record(forms_of_invlpg, (void *)(uintptr_t)a, log, LOG_MAX, &count),
                METAL_OK);
    CHECK_EQUAL(count, 8);
    expect(0, METAL_SVM_INVLPG, a);
    expect(1, METAL_SVM_INVLPG, a);
    expect(2, METAL_SVM_INVLPG, a + 0x10);
    expect(3, METAL_SVM_INVLPG, a + 0x12345);
    expect(4, METAL_SVM_INVLPG, a + 0x4000 - 8);
    expect(5, METAL_SVM_INVLPG, 0x6000);
    expect(6, METAL_SVM_INVLPG, (uintptr_t)metal_svm_record);
    CHECK_EQUAL(log[7].what, METAL_SVM_INVLPG);
    CHECK(log[7].operand != 0 && (log[7].operand & 7) == 0);
}

static void others(void *arg)
{
    const uint64_t cr4 = read_cr4();

    (void)arg;
    write_cr3(read_cr3());
    write_cr4(cr4 & ~CR4_PGE);
    guest_result = read_cr4();
    write_cr4(cr4);
    __asm__ volatile("wbinvd" : : : "memory");
    __asm__ volatile("invlpga %0, %1" : : "a"(0x7000ull), "c"(5) : "memory");
}

static void check_others(void)
{
    const uint64_t cr4 = read_cr4();
    unsigned count = 0;

    CHECK_EQUAL(metal_svm_record(others, NULL, log, LOG_MAX, &count), METAL_OK);
    CHECK_EQUAL(count, 5);
    expect(0, METAL_SVM_CR3, read_cr3());
    expect(1, METAL_SVM_CR4, cr4 & ~CR4_PGE);
    expect(2, METAL_SVM_CR4, cr4);
    expect(3, METAL_SVM_WBINVD, 0);
    expect(4, METAL_SVM_INVLPGA, 0x7000);
    CHECK_EQUAL(log[4].extra, 5);
    CHECK_EQUAL(guest_result, cr4 & ~CR4_PGE);
    CHECK_EQUAL(read_cr4(), cr4);
}

static void many(void *arg)
{
    for (uint64_t i = 0; i < *(uint64_t *)arg; i++)
        __asm__ volatile("invlpg (%0)" : : "r"(i << 12) : "memory");
    guest_result = metal_cpu_id() + 100;
}

static void check_many(void)
{
    uint64_t rounds = 1000;
    unsigned count = 0;

    CHECK_EQUAL(metal_svm_record(many, &rounds, log, LOG_MAX, &count), METAL_OK);
    CHECK_EQUAL(count, rounds);
    for (unsigned i = 0; i < LOG_MAX; i++)
        expect(i, METAL_SVM_INVLPG, (uint64_t)i << 12);
    CHECK_EQUAL(guest_result, metal_cpu_id() + 100);
}

/* Another CPU's interrupts reach this one while it runs the guest, and the log has no gap. */
static uint32_t recording_done, calls_made;

static void count_call(void *arg)
{
    (void)arg;
    calls_made++;
}

static void disturb(void *arg)
{
    if (metal_cpu_id() == 0) {
        check_many();
        __atomic_store_n(&recording_done, 1, __ATOMIC_RELEASE);
        return;
    }
    while (__atomic_load_n(&recording_done, __ATOMIC_ACQUIRE) == 0)
        CHECK_EQUAL(metal_call_cpus(1, count_call, arg), METAL_OK);
}

static void check_disturbed(void)
{
    CHECK(metal_start_cpus(NULL) > 1);
    CHECK_EQUAL(metal_run_cpus(3, disturb, NULL), METAL_OK);
    metal_printf("%u calls from CPU 1 meanwhile\n", calls_made);
    CHECK(calls_made > 0);
}

static void fault(void *arg)
{
    *(volatile uint64_t *)arg = 1;
}

static int nested_result;

static void nest(void *arg)
{
    unsigned count;

    (void)arg;
    nested_result = metal_svm_record(fault, NULL, log, LOG_MAX, &count);
}

static void check_refusals(void)
{
    struct metal_svm_op op;
    const uint64_t regs[16] = {0};
    const uint8_t mov_cr0[] = {0x0f, 0x22, 0xc0}, sgdt[] = {0x0f, 0x01, 0x00};
    unsigned count = 7;

    CHECK_EQUAL(metal_svm_record(fault, (void *)metal_window(), log, LOG_MAX, &count),
                METAL_E_INVAL);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(metal_svm_record(nest, NULL, log, LOG_MAX, &count), METAL_OK);
    CHECK_EQUAL(nested_result, METAL_E_INVAL);
    CHECK_EQUAL(metal_svm_decode(mov_cr0, regs, 0, &op), 0);
    CHECK_EQUAL(metal_svm_decode(sgdt, regs, 0, &op), 0);
}

static int svm(void)
{
    unsigned count;
    uint64_t rounds = 0;

    if (metal_svm_record(many, &rounds, log, LOG_MAX, &count) == METAL_E_LACK) {
        metal_printf("no SVM with nested paging here\n");
        return 1;
    }
    check_invlpg();
    check_others();
    check_many();
    check_refusals();
    check_disturbed();
    return check_result();
}

METAL_PROGRAM(svm, svm);
