/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * deps.h: the only place that names anything outside the library: the two functions every compiler
 * may call on its own, and the compiler's builtins under short names.
 */
#ifndef HVMEM_LIB_DEPS_H
#define HVMEM_LIB_DEPS_H

#include <hvmem/types.h>

void *memset(void *to, int byte, hvmem_size bytes);
void *memcpy(void *to, const void *from, hvmem_size bytes);

#define HVMEM_NULL ((void *)0)

#define hvmem__likely(x)   (__builtin_expect(!!(x), 1) != 0)
#define hvmem__unlikely(x) (__builtin_expect(!!(x), 0) != 0)

#define HVMEM_NOINLINE __attribute__((noinline))

/* Compile-time assertion usable from gnu99 on: `name` describes what must hold. */
#define HVMEM_STATIC_ASSERT(condition, name) typedef char hvmem_assert_##name[(condition) ? 1 : -1]

/* Bytes of a cache line the structures are laid out for (false sharing, not correctness). */
#define HVMEM_LINE 64u

/* Plain loads and stores that another CPU may see at any time; no ordering. */
#define hvmem__load(p)             __atomic_load_n((p), __ATOMIC_RELAXED)
#define hvmem__store(p, v)         __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define hvmem__load_acquire(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define hvmem__store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

/* The compiler may not move memory accesses across it; the CPU may. */
#define hvmem__compiler_barrier() __atomic_signal_fence(__ATOMIC_SEQ_CST)

/* In a loop that moves the elements of an array: it stays a loop, for hosts need not have memmove. */
#define hvmem__no_memmove() hvmem__compiler_barrier()

HVMEM_INLINE hvmem_u64 hvmem__round_up(hvmem_u64 value, hvmem_u64 power_of_two)
{
    return (value + (power_of_two - 1)) & ~(power_of_two - 1);
}

/* Index of the lowest set bit; word must not be 0. */
HVMEM_INLINE hvmem_u32 hvmem__lowest(hvmem_u64 word)
{
    return (hvmem_u32)__builtin_ctzll(word);
}

/* Index of the highest set bit; word must not be 0. */
HVMEM_INLINE hvmem_u32 hvmem__highest(hvmem_u64 word)
{
    return 63u - (hvmem_u32)__builtin_clzll(word);
}

/* Number of set bits; the builtin would call a library on machines without the instruction. */
HVMEM_INLINE hvmem_u32 hvmem__weight(hvmem_u64 word)
{
    word -= word >> 1 & 0x5555555555555555u;
    word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (hvmem_u32)(word * 0x0101010101010101u >> 56);
}

/* Smallest order whose block holds `frames`; frames >= 1. */
HVMEM_INLINE hvmem_u32 hvmem__order_for(hvmem_u64 frames)
{
    return frames <= 1 ? 0 : hvmem__highest(frames - 1) + 1;
}

#endif
