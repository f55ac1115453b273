/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * track: what access tracking costs the report's guest, which zeroes a GiB with 8-byte stores, three
 * instructions a store, and times itself by the counter; its memory is mapped through the library's
 * stage 2 by entries of one size (entries=1g, 2m, 4k), without tracking and with it. Under -icount the
 * counter counts instructions. mib=N zeroes less. stride=N reads a word every N bytes instead, which touches
 * the same entries sooner; then traps=N, mean=N and worst=N (instructions, under -icount) are what the
 * traps must be, exactly and at most, or the program fails.
 */
#include "hosts/metal/arm64/cpu.h"
#include "hosts/metal/common/host.h"
#include "test/metal/arm64/vm.h"
#include "test/metal/subject.h"

#include <hvmem/track.h>

#define GIB 1073741824ull

static struct metal_heap heap;
static struct vm vm;
static uint64_t area; /* IPA and machine address alike */
static uint64_t bytes;
static uint64_t guest_ticks;
static uint64_t stride; /* 0: the report's loop */
static unsigned traps, traps_elsewhere;
static uint64_t longest, total; /* ticks in the handler: of a trap, of all */

/* The report's loop. Three instructions a store: STR with post-increment, SUBS, B.NE. */
static void zero(void *arg)
{
    uint64_t begin, end, at = (uint64_t)(uintptr_t)arg, left = bytes / 8;

    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(begin)::"memory");
    if (stride != 0)
        for (uint64_t i = 0; i < bytes; i += stride)
            (void)*(volatile uint64_t *)(uintptr_t)(at + i);
    else
        __asm__ volatile("1: str xzr, [%0], #8\n\tsubs %1, %1, #1\n\tb.ne 1b"
                         : "+r"(at), "+r"(left)::"cc", "memory");
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(end)::"memory");
    guest_ticks = end - begin;
}

/* Where traps come from, and how long each takes; no part of the runs that are compared. */
static int looked_at(void *context, uint64_t ipa, unsigned access)
{
    const uint64_t begin = metal_cycles();
    const int rc = vm_abort(context, ipa, access);
    const uint64_t passed = metal_cycles() - begin;

    if (ipa - area < bytes)
        traps++;
    else
        traps_elsewhere++;
    total += passed;
    if (passed > longest)
        longest = passed;
    return rc;
}

/* Ticks of the guest's loop, 0: it did not come to its end. */
static uint64_t run_guest(int (*abort)(void *, uint64_t, unsigned))
{
    static struct metal_vcpu v;

    traps = traps_elsewhere = 0;
    guest_ticks = 0;
    if (!vm_vcpu(&vm, &v, zero, (void *)(uintptr_t)area))
        return 0;
    v.abort = abort;
    if (metal_guest_call(&v, NULL, NULL) != METAL_OK)
        return 0;
    return guest_ticks;
}

static uint64_t faults_taken(void)
{
    struct hvmem_stage2_stats stats = {.size = sizeof stats};

    return hvmem_stage2_stats(vm.s2, &stats) == HVMEM_OK ? stats.faults : ~0ull;
}

static int arm(void)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status;

    while ((status = hvmem_track_arm(vm.s2, &cursor)) == HVMEM_AGAIN)
        ;
    return status == HVMEM_OK;
}

/* A GiB of its own entry, outside the image's. */
static int area_make(uint32_t largest)
{
    const struct hvmem_request request = {
        .size = sizeof request, .order = 18, .node = HVMEM_NODE_ANY};
    const struct vm_options options = {.heap = heap.heap,
                                       .backend = subject_backend(),
                                       .ops = &heap.ops,
                                       .host = &heap.host,
                                       .flags = HVMEM_S2_TRACK,
                                       .largest = largest};
    hvmem_mfn mfn = 0;

    if (hvmem_alloc(heap.heap, &request, &mfn) != HVMEM_OK) {
        metal_printf("track: no free GiB: needs mem=3072 on one node\n");
        return 0;
    }
    area = mfn << METAL_PAGE_SHIFT;
    return vm_make(&vm, &options) && vm_map_image(&vm) && vm_map_identity(&vm, area, GIB);
}

/* One tick of the counter is 16 instructions under -icount: 62.5 MHz. `more`: ticks that tracking added. */
static int within(uint64_t faults, uint64_t more)
{
    const uint64_t mean = more * 16 / traps, worst = longest * 16;

    metal_printf("traps: %u (exactly %llu), instructions %llu in the mean all told (at most %llu), "
                 "%llu in the longest handler (at most %llu)\n",
                 traps, (unsigned long long)metal_arg_u64("traps", traps), (unsigned long long)mean,
                 (unsigned long long)metal_arg_u64("mean", ~0ull), (unsigned long long)worst,
                 (unsigned long long)metal_arg_u64("worst", ~0ull));
    return faults == traps + traps_elsewhere && traps == metal_arg_u64("traps", traps) &&
           mean <= metal_arg_u64("mean", ~0ull) && worst <= metal_arg_u64("worst", ~0ull);
}

static int track(void)
{
    const uint32_t largest = metal_arg_is("entries", "4k")   ? 0
                             : metal_arg_is("entries", "2m") ? 9
                                                             : 18;
    const struct metal_heap_options options = {
        .backend = subject_backend(), .max_domains = 1, .lock_regime = HVMEM_LOCK_PLAIN};
    uint64_t off, on, faults;

    bytes = metal_arg_u64("mib", 1024) << 20;
    stride = metal_arg_u64("stride", 0);
    if (!is_plain_el2() || bytes == 0 || bytes > GIB) {
        metal_printf("track: needs EL2, and at most 1024 MiB\n");
        return 1;
    }
    if (metal_heap_boot(&heap, &options) != HVMEM_OK || !area_make(largest))
        return 1;
    vm_load(&vm);
    off = run_guest(vm_abort);
    faults = faults_taken();
    if (off == 0 || faults != 0 || !arm())
        return 1;
    on = run_guest(vm_abort);
    faults = faults_taken();
    /* What was touched is touched again: the same traps. */
    if (on == 0 || !arm() || run_guest(looked_at) == 0 || traps == 0)
        return 1;
    metal_printf("track %u: bytes %llu off_ticks %llu on_ticks %llu traps %u elsewhere %u "
                 "longest_ticks %llu handler_ticks %llu\n",
                 largest, (unsigned long long)bytes, (unsigned long long)off,
                 (unsigned long long)on, traps, traps_elsewhere, (unsigned long long)longest,
                 (unsigned long long)total);
    return within(faults, on - off) ? 0 : 1;
}

METAL_PROGRAM(track, track);
