/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * selftest: does the metal host itself work? Boot information, CPUs, calls to other CPUs, the test
 * window with its stale translations, caught faults. Runs before anything else is believed.
 */
#include "hosts/metal/common/metal.h"
#include "test/metal/check.h"

#define ROUNDS 1000u

static void print_boot(const struct metal_boot *b)
{
    const char *emulator = metal_emulator();

    metal_printf("protocol %s, machine %s, command line \"%s\"\n", b->protocol,
                 emulator != NULL ? emulator : "bare", b->cmdline);
    for (unsigned i = 0; i < b->mem_count; i++)
        metal_printf("  ram  0x%09llx-0x%09llx node %u\n", (unsigned long long)b->mem[i].base,
                     (unsigned long long)(b->mem[i].base + b->mem[i].bytes), b->mem[i].node);
    for (unsigned i = 0; i < b->reserved_count; i++)
        metal_printf("  kept 0x%09llx-0x%09llx %s\n", (unsigned long long)b->reserved[i].base,
                     (unsigned long long)(b->reserved[i].base + b->reserved[i].bytes),
                     b->reserved[i].what);
    for (unsigned i = 0; i < b->cpu_count; i++)
        metal_printf("  cpu  %u hardware id 0x%llx node %u\n", i,
                     (unsigned long long)b->cpu[i].hw_id, b->cpu[i].node);
    for (unsigned i = 0; i < b->node_count; i++) {
        metal_printf("  node %u is domain %u, distances", i, b->node_id[i]);
        for (unsigned j = 0; j < b->node_count; j++)
            metal_printf(" %u", b->distance[i][j]);
        metal_printf("\n");
    }
    metal_printf("  %u map entries, %u not usable as given, %u CPUs refused, %llu cycles/ms\n",
                 b->map_entries, b->map_bad, b->cpu_refused,
                 (unsigned long long)metal_cycles_per_ms());
}

static int range_is_reserved(const struct metal_boot *b, uint64_t at)
{
    for (unsigned i = 0; i < b->reserved_count; i++)
        if (at >= b->reserved[i].base && at < b->reserved[i].base + b->reserved[i].bytes)
            return 1;
    return 0;
}

static void check_boot(const struct metal_boot *b)
{
    uint64_t ram = 0;

    for (unsigned i = 0; i < b->mem_count; i++) {
        const struct metal_mem *m = &b->mem[i];

        CHECK(m->bytes != 0 && ((m->base | m->bytes) & (METAL_PAGE_BYTES - 1)) == 0);
        CHECK(m->node < b->node_count);
        CHECK(i == 0 || m->base >= b->mem[i - 1].base + b->mem[i - 1].bytes);
        ram += m->bytes;
    }
    for (unsigned i = 0; i < b->node_count; i++)
        CHECK(b->distance[i][i] == 10);
    /* What the image was told must agree with what the runner asked for. */
    CHECK_EQUAL(b->cpu_count + b->cpu_refused, metal_arg_u64("cpus", 0));
    CHECK(b->cpu_count <= metal_arg_u64("maxcpus", METAL_MAX_CPUS));
    CHECK(b->cpu_refused == 0 || b->cpu_count == metal_arg_u64("maxcpus", METAL_MAX_CPUS));
    CHECK_EQUAL(b->node_count, metal_arg_u64("nodes", 0));
    /* Firmware keeps a little of what there is: 2 MiB, UEFI's runtime services 16. */
    CHECK(ram > (metal_arg_u64("mem", 0) - (b->protocol[0] == 'u' ? 16 : 2)) << 20);
    CHECK(range_is_reserved(b, metal_maddr(print_boot)));
    CHECK(range_is_reserved(b, metal_maddr(b)));
}

/* ---- calls ---- */

static uint64_t touched, job_touched;

static void touch(void *arg)
{
    __atomic_fetch_or((uint64_t *)arg, 1ull << metal_cpu_id(), __ATOMIC_SEQ_CST);
}

static void call_from_here(void *arg)
{
    uint64_t seen = 0;

    (void)arg;
    for (unsigned i = 0; i < 10; i++) {
        seen = 0;
        if (metal_call_cpus(metal_online(), touch, &seen) != METAL_OK || seen != metal_online())
            return;
    }
    __atomic_fetch_or(&job_touched, 1ull << metal_cpu_id(), __ATOMIC_SEQ_CST);
}

static int nested_result;

static void call_nested(void *arg)
{
    (void)arg;
    nested_result = metal_call_cpus(1, touch, &touched);
}

static void check_calls(void)
{
    const uint64_t all = metal_online();

    for (unsigned i = 0; i < ROUNDS; i++) {
        touched = 0;
        CHECK_EQUAL(metal_call_cpus(all, touch, &touched), METAL_OK);
        CHECK_EQUAL(touched, all);
    }
    for (unsigned cpu = 0; cpu < metal_boot_info()->cpu_count; cpu++) {
        touched = 0;
        CHECK_EQUAL(metal_call_cpus(1ull << cpu, touch, &touched), METAL_OK);
        CHECK_EQUAL(touched, 1ull << cpu);
    }
    touched = 0;
    CHECK_EQUAL(metal_call_cpus(all + 1, touch, &touched), METAL_E_INVAL);
    CHECK_EQUAL(touched, 0);
    CHECK_EQUAL(metal_call_cpus(1, call_nested, NULL), METAL_OK);
    CHECK_EQUAL(nested_result, METAL_E_INVAL);
    /* Every CPU calls every CPU at the same time. */
    CHECK_EQUAL(metal_run_cpus(all, call_from_here, NULL), METAL_OK);
    CHECK_EQUAL(job_touched, all);
}

/* ---- the window ---- */

static void fill(uint64_t *page, uint64_t value)
{
    for (unsigned i = 0; i < METAL_PAGE_BYTES / 8; i++)
        page[i] = value;
}

/* Reads va, moves it to the other page, reads again: was the old page still seen? */
static int stale_round(uintptr_t va, uint64_t old_page, uint64_t new_page, int flush)
{
    metal_map(va, old_page, METAL_4K, METAL_P | METAL_W);
    metal_flush_own();
    if (*(volatile uint64_t *)va != 1)
        return -1;
    metal_map(va, new_page, METAL_4K, METAL_P | METAL_W);
    if (flush)
        metal_flush_own();
    return *(volatile uint64_t *)va == 1;
}

static void check_stale(void)
{
    uint64_t *one = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    uint64_t *two = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    const uintptr_t va = metal_window() + METAL_WINDOW_APART;
    unsigned stale = 0, stale_flushed = 0;

    fill(one, 1);
    fill(two, 2);
    for (unsigned i = 0; i < ROUNDS; i++) {
        stale += stale_round(va, metal_maddr(one), metal_maddr(two), 0) == 1;
        stale_flushed += stale_round(va, metal_maddr(one), metal_maddr(two), 1) != 0;
    }
    metal_printf("no flush: stale %u of %u; flushed: stale %u\n", stale, ROUNDS, stale_flushed);
    if (!metal_arg_is("stale", "unchecked"))
        CHECK(stale >= ROUNDS - ROUNDS / 1000);
    CHECK_EQUAL(stale_flushed, 0);
    metal_window_clear();
    CHECK_EQUAL(metal_pte(va, METAL_4K), 0);
}

/* A large page in the window shows the same bytes as the direct map. */
static void check_size(unsigned shift)
{
    const struct metal_boot *b = metal_boot_info();
    const uint64_t bytes = 1ull << shift;
    const uintptr_t va = metal_window() + (1ull << METAL_1G);
    const uint64_t here = metal_maddr(b);
    const uint64_t base = here & ~(bytes - 1);
    const int result = metal_map(va, base, shift, METAL_P);

    if (result == METAL_E_LACK) {
        metal_printf("no pages of 2^%u bytes on this machine\n", shift);
        return;
    }
    CHECK_EQUAL(result, METAL_OK);
    CHECK_EQUAL(
        *(volatile uint32_t *)(va + (here & (bytes - 1)) + offsetof(struct metal_boot, mem_count)),
        b->mem_count);
    CHECK(metal_probe_write(va + (here & (bytes - 1)), 0, NULL) == 1);
    CHECK(metal_pte(va, shift) != 0);
    if (shift > METAL_4K) {
        CHECK_EQUAL(metal_map(va, base, shift - 9, METAL_P), METAL_E_INVAL);
        CHECK_EQUAL(metal_map(va + METAL_PAGE_BYTES, base, shift, METAL_P), METAL_E_INVAL);
        CHECK_EQUAL(metal_map(va, base + METAL_PAGE_BYTES, shift, METAL_P), METAL_E_INVAL);
    }
    metal_window_clear();
}

static void check_window_limits(void)
{
    const uintptr_t w = metal_window();

    CHECK_EQUAL(metal_map(w - METAL_PAGE_BYTES, 0, METAL_4K, METAL_P), METAL_E_INVAL);
    CHECK_EQUAL(metal_map(w + METAL_WINDOW_BYTES, 0, METAL_4K, METAL_P), METAL_E_INVAL);
    CHECK_EQUAL(metal_map(w, 0, 13, METAL_P), METAL_E_INVAL);
    CHECK_EQUAL(metal_map(w, 1, METAL_4K, METAL_P), METAL_E_INVAL);
}

/* ---- faults ---- */

static void check_faults(void)
{
    uint8_t *code = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    const uintptr_t va = metal_window() + 0x200000;
    struct metal_fault fault = {0, 0, 0, 0};
    uint64_t value = 0;

    CHECK_EQUAL(metal_probe_read(va, &value, &fault), 1);
    CHECK_EQUAL(fault.addr, va);
    metal_code_return(code, 1234);
    metal_code_visible(code, 16);
    CHECK_EQUAL(metal_map(va, metal_maddr(code), METAL_4K, METAL_P), METAL_OK);
    CHECK_EQUAL(metal_probe_read(va, &value, &fault), 0);
    CHECK_EQUAL(metal_probe_write(va, 0, &fault), 1);
    CHECK_EQUAL(metal_probe_exec(va, &value, &fault), 1);
    CHECK_EQUAL(metal_map(va, metal_maddr(code), METAL_4K, METAL_P | METAL_X), METAL_OK);
    metal_flush_own();
    CHECK_EQUAL(metal_probe_exec(va, &value, &fault), 0);
    CHECK_EQUAL(value, 1234);
    for (unsigned i = 0; i < ROUNDS; i++)
        CHECK_EQUAL(metal_probe_write(va + 8, i, &fault), 1);
    CHECK_EQUAL(fault.addr, va + 8);
    metal_window_clear();
}

static int selftest(void)
{
    const struct metal_boot *b = metal_boot_info();
    unsigned count;

    print_boot(b);
    check_boot(b);
    check_window_limits();
    check_stale();
    check_faults();
    count = metal_start_cpus(NULL);
    metal_printf("%u CPUs online\n", count);
    CHECK_EQUAL(count, b->cpu_count);
    check_calls();
    check_size(METAL_4K);
    check_size(METAL_2M);
    check_size(METAL_1G);
    return check_result();
}

METAL_PROGRAM(selftest, selftest);
