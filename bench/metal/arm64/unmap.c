/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * unmap: time to take a guest's memory out of its stage 2, at EL2 with the other CPUs in WFI, by the
 * size of the entries. Before: each entry is found from the root, cleared and invalidated by address
 * with its barriers, as the report's hypervisor did. After: hvmem_stage2_unmap() of the whole range.
 * Both in turns; the tables of both map the same addresses, of which only the tables exist. What is executed
 * is counted apart, by the recording twin on the same requests, and must be exactly one batch and the least
 * operations by IPA that the range allows. rounds=N (5 at most) measures less.
 */
#include "hosts/metal/arm64/cpu.h"
#include "hosts/metal/common/host.h"
#include "hosts/metal/arm64/stage2.h"
#include "test/metal/arm64/vm.h"
#include "test/metal/subject.h"

#define ROUNDS 5u
#define TIMES  5u /* in a round, of what is over in no time */
#define VMID   7u

struct kind {
    const char *name;
    unsigned shift;
    uint32_t largest;
    uint64_t entries;
    uint64_t at;     /* where the guest's memory begins, in both tables */
    unsigned by_ipa; /* operations: one for a range, or for each block of 1 GiB */
};

static const struct kind kinds[] = {
    {"4k", METAL_4K, 0, 16384, 64ull << 30, 1},   /* 64 MiB */
    {"2m", METAL_2M, 9, 4096, 320ull << 30, 1},   /* 8 GiB */
    {"1g", METAL_1G, 18, 192, 576ull << 30, 192}, /* 192 GiB: the report's guest */
};

static struct metal_heap heap;
static struct metal_s2 old;
static unsigned rounds;

/* ---- counting ---- */

static struct hvmem_backend backend; /* the machine's, which can be told to count */
static struct hvmem_backend_ops backend_ops;
static int counts;
static unsigned batches, by_ipa, others; /* TLBI */

static hvmem_status spy_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    if (counts) {
        struct hvmem_record *record;
        struct hvmem_backend *twin = subject_twin(&record);

        hvmem_record_clear(record);
        (void)twin->ops->tlb_flush(twin, flush);
        batches++;
        others += record->lost;
        for (uint32_t i = 0; i < record->count; i++) {
            const char *name = subject_insn_name(record->events[i].code);

            if (name == NULL)
                continue;
            /* (R)IPAS2(L)E1IS: CRn 8, CRm 0, op1 4. */
            if ((record->events[i].code & 0xFFFFFF00) == 0xD50C8000)
                by_ipa++;
            else
                others++;
        }
    }
    return subject_backend()->ops->tlb_flush(be, flush);
}

/* ---- before ---- */

static int before_map(const struct kind *k)
{
    for (uint64_t i = 0; i < k->entries; i++)
        if (metal_s2_map(&old, k->at + (i << k->shift), k->at + (i << k->shift), k->shift,
                         METAL_S2_RWX) != METAL_OK)
            return 0;
    return 1;
}

/* Arm ARM D8.14: the second stage by address, then what combines both stages, each waited for. */
static void before_unmap(const struct kind *k)
{
    for (uint64_t i = 0; i < k->entries; i++) {
        const uint64_t ipa = k->at + (i << k->shift);

        *(volatile uint64_t *)metal_s2_entry(&old, ipa, k->shift) = 0;
        dsb(ishst);
        __asm__ volatile("tlbi ipas2e1is, %0" ::"r"(ipa >> 12) : "memory");
        dsb(ish);
        __asm__ volatile("tlbi vmalle1is" ::: "memory");
        dsb(ish);
        isb();
    }
}

/* ---- after ---- */

static int after_map(struct vm *vm, const struct kind *k)
{
    return vm_map_identity(vm, k->at, k->entries << k->shift);
}

static int after_unmap(struct vm *vm, const struct kind *k)
{
    const uint64_t frames = k->entries << (k->shift - METAL_PAGE_SHIFT);
    hvmem_u64 done = 0;

    return hvmem_stage2_unmap(vm->s2, k->at >> METAL_PAGE_SHIFT, frames, NULL, &done) == HVMEM_OK &&
           done == frames;
}

/* What one unmap executes. */
static int count(struct vm *vm, const struct kind *k)
{
    int good = after_map(vm, k);

    batches = by_ipa = others = 0;
    counts = 1;
    good = good && after_unmap(vm, k);
    counts = 0;
    metal_printf("counts %s: batches %u by_ipa %u (exactly %u) other_tlbi %u\n", k->name, batches,
                 by_ipa, k->by_ipa, others);
    return good && batches == 1 && by_ipa == k->by_ipa;
}

/* ---- rounds ---- */

static uint64_t median(uint64_t *t, unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        for (unsigned j = i; j > 0 && t[j] < t[j - 1]; j--) {
            const uint64_t swap = t[j];

            t[j] = t[j - 1];
            t[j - 1] = swap;
        }
    return t[count / 2];
}

static uint64_t ns(uint64_t ticks)
{
    return ticks * 1000 / (metal_cycles_per_ms() / 1000);
}

static int measure(const struct kind *k)
{
    static struct vm vms[sizeof kinds / sizeof kinds[0]];
    struct vm *vm = &vms[k - kinds];
    const struct vm_options options = {.heap = heap.heap,
                                       .backend = &backend,
                                       .ops = &heap.ops,
                                       .host = &heap.host,
                                       .largest = k->largest};
    uint64_t before[ROUNDS], after[ROUNDS * TIMES], begin;

    if (!vm_make(vm, &options))
        return 0;
    for (unsigned i = 0; i < rounds; i++) {
        if (!before_map(k))
            return 0;
        write_sysreg(vttbr_el2, metal_s2_vttbr(&old, VMID));
        isb();
        begin = metal_cycles();
        before_unmap(k);
        before[i] = metal_cycles() - begin;
        vm_load(vm);
        for (unsigned j = 0; j < TIMES; j++) {
            if (!after_map(vm, k))
                return 0;
            begin = metal_cycles();
            if (!after_unmap(vm, k))
                return 0;
            after[i * TIMES + j] = metal_cycles() - begin;
        }
    }
    metal_printf("unmap %s: entries %llu before_ns %llu after_ns %llu\n", k->name,
                 (unsigned long long)k->entries, (unsigned long long)ns(median(before, rounds)),
                 (unsigned long long)ns(median(after, rounds * TIMES)));
    return count(vm, k);
}

static int unmap(void)
{
    const struct metal_heap_options options = {
        .backend = &backend, .max_domains = 1, .lock_regime = HVMEM_LOCK_PLAIN};

    if (!is_plain_el2() || metal_s2_init(&old) != METAL_OK) {
        metal_printf("unmap: needs EL2\n");
        return 1;
    }
    rounds = (unsigned)metal_arg_u64("rounds", ROUNDS);
    if (rounds == 0 || rounds > ROUNDS)
        return 1;
    backend = *subject_backend();
    backend_ops = *backend.ops;
    backend_ops.tlb_flush = spy_flush;
    backend.ops = &backend_ops;
    (void)metal_start_cpus(NULL);
    if (metal_heap_boot(&heap, &options) != HVMEM_OK || metal_heap_smp(&heap) != HVMEM_OK)
        return 1;
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!measure(&kinds[i]))
            return 1;
    return 0;
}

METAL_PROGRAM(unmap, unmap);
