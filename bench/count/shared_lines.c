/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts the cache lines that one CPU's entry writes and another CPU's entry touches. lib/ is compiled
 * with the thread sanitizer's instrumentation and linked with the callbacks below instead of its run
 * time: each memory access of the compiled code calls one of them. Prints `entry N` and `rwlock N`: the
 * lines written in common by entries of the library, and by entries behind one lock of the guest, which
 * must not be 0 or the count would prove nothing.
 */
#include "bench/measure/guest.h"

#include "bench/common/figure.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES 4096

static struct side {
    uintptr_t line[LINES];
    unsigned char written[LINES];
    unsigned count;
} sides[2];

static struct side *recording; /* NULL: not now */
static uintptr_t
    stack_at; /* in main's frame: what is near is on the stack, of no CPU but its own */
static uint64_t calls;

static void touch(const volatile void *address, int write)
{
    uintptr_t line = (uintptr_t)address / 64;
    unsigned i;

    calls++;
    if (recording == NULL || (uintptr_t)address - stack_at + 65536 < 131072)
        return;
    for (i = 0; i < recording->count && recording->line[i] != line; i++)
        ;
    if (i == LINES)
        figure_fail("more than %d lines", LINES);
    if (i == recording->count) {
        recording->line[i] = line;
        recording->written[i] = 0;
        recording->count++;
    }
    recording->written[i] |= (unsigned char)write;
}

/* ---- what the compiler calls ------------------------------------------------------------------ */

void __tsan_init(void);
void __tsan_init(void)
{
}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
    (void)pc;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

#define PLAIN(n)                                                                                   \
    void __tsan_read##n(void *a);                                                                  \
    void __tsan_read##n(void *a)                                                                   \
    {                                                                                              \
        touch(a, 0);                                                                               \
    }                                                                                              \
    void __tsan_write##n(void *a);                                                                 \
    void __tsan_write##n(void *a)                                                                  \
    {                                                                                              \
        touch(a, 1);                                                                               \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *a, unsigned long bytes);
void __tsan_read_range(void *a, unsigned long bytes)
{
    unsigned long i;

    for (i = 0; i < bytes; i++)
        touch((char *)a + i, 0);
}
void __tsan_write_range(void *a, unsigned long bytes);
void __tsan_write_range(void *a, unsigned long bytes)
{
    unsigned long i;

    for (i = 0; i < bytes; i++)
        touch((char *)a + i, 1);
}

/* Locked instructions count as writes, a failed compare-exchange too: it takes the line as well. */
#define ATOMIC(n, type)                                                                            \
    type __tsan_atomic##n##_load(const volatile type *a, int o);                                   \
    type __tsan_atomic##n##_load(const volatile type *a, int o)                                    \
    {                                                                                              \
        (void)o;                                                                                   \
        touch(a, 0);                                                                               \
        return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##n##_store(volatile type *a, type v, int o);                                \
    void __tsan_atomic##n##_store(volatile type *a, type v, int o)                                 \
    {                                                                                              \
        (void)o;                                                                                   \
        touch(a, 1);                                                                               \
        __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    type __tsan_atomic##n##_exchange(volatile type *a, type v, int o);                             \
    type __tsan_atomic##n##_exchange(volatile type *a, type v, int o)                              \
    {                                                                                              \
        (void)o;                                                                                   \
        touch(a, 1);                                                                               \
        return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                              \
    type __tsan_atomic##n##_fetch_add(volatile type *a, type v, int o);                            \
    type __tsan_atomic##n##_fetch_add(volatile type *a, type v, int o)                             \
    {                                                                                              \
        (void)o;                                                                                   \
        touch(a, 1);                                                                               \
        return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    type __tsan_atomic##n##_fetch_sub(volatile type *a, type v, int o);                            \
    type __tsan_atomic##n##_fetch_sub(volatile type *a, type v, int o)                             \
    {                                                                                              \
        (void)o;                                                                                   \
        touch(a, 1);                                                                               \
        return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    type __tsan_atomic##n##_fetch_or(volatile type *a, type v, int o);                             \
    type __tsan_atomic##n##_fetch_or(volatile type *a, type v, int o)                              \
    {                                                                                              \
        (void)o;                                                                                   \
        touch(a, 1);                                                                               \
        return __atomic_fetch_or(a, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                              \
    type __tsan_atomic##n##_fetch_and(volatile type *a, type v, int o);                            \
    type __tsan_atomic##n##_fetch_and(volatile type *a, type v, int o)                             \
    {                                                                                              \
        (void)o;                                                                                   \
        touch(a, 1);                                                                               \
        return __atomic_fetch_and(a, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    int __tsan_atomic##n##_compare_exchange_strong(volatile type *a, type *e, type v, int o,       \
                                                   int f);                                         \
    int __tsan_atomic##n##_compare_exchange_strong(volatile type *a, type *e, type v, int o,       \
                                                   int f)                                          \
    {                                                                                              \
        (void)o;                                                                                   \
        (void)f;                                                                                   \
        touch(a, 1);                                                                               \
        return __atomic_compare_exchange_n(a, e, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    }
ATOMIC(8, unsigned char)
ATOMIC(16, unsigned short)
ATOMIC(32, unsigned int)
ATOMIC(64, unsigned long)

void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* ---- what is counted --------------------------------------------------------------------------- */

static struct guest guest;

/* Entries and exits of the CPU's vCPU, and a switch of the CPU to another space in between. */
static void pass(hvmem_cpu cpu)
{
    struct hvmem_entry entry;
    unsigned i;

    for (i = 0; i < 3; i++) {
        FIGURE_REQUIRE(hvmem_vcpu_enter(guest.vcpu[cpu], cpu, &entry) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_space_entered(guest.ident, cpu) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_vcpu_exit(guest.vcpu[cpu], cpu) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_space_activate(guest.spaces[1], cpu, &entry) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_space_entered(guest.ident, cpu) == HVMEM_OK);
        if (i == 1)
            FIGURE_REQUIRE(hvmem_space_deactivate(guest.ident, cpu) == HVMEM_OK);
    }
}

static void pass_rwlock(hvmem_cpu cpu)
{
    FIGURE_REQUIRE(rwlock_entry_word(&guest.lock, guest.vcpu[cpu], cpu));
}

/* Lines that one side writes and the other touches. */
static unsigned shared(void (*body)(hvmem_cpu cpu))
{
    unsigned found = 0;
    hvmem_cpu cpu;
    unsigned i;
    unsigned k;

    memset(sides, 0, sizeof sides);
    for (cpu = 0; cpu < 2; cpu++)
        body(cpu); /* the generation is current, the CPU among the holders */
    for (cpu = 0; cpu < 2; cpu++) {
        recording = &sides[cpu];
        body(cpu);
        recording = NULL;
        FIGURE_REQUIRE(sides[cpu].count > 0);
    }
    for (i = 0; i < sides[0].count; i++) {
        for (k = 0; k < sides[1].count; k++)
            found += sides[0].line[i] == sides[1].line[k] &&
                     (sides[0].written[i] || sides[1].written[k]);
    }
    return found;
}

int main(void)
{
    char here;

    stack_at = (uintptr_t)&here;
    guest_open(&guest, 8, 2);
    printf("entry %u\n", shared(pass));
    printf("rwlock %u\n", shared(pass_rwlock));
    FIGURE_REQUIRE(calls > 100);
    guest_close(&guest);
    return 0;
}
