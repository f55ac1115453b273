/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/types.h: the integer types, address words and attribute macros of every hvmem header.
 *
 * No header of any C library is used: hosts build with -nostdinc. The types come from the
 * compiler's predefined macros. Structures that cross the API hold only these types, never
 * `bool`, enums or bit-fields, so that their layout does not depend on the host's own headers.
 */
#ifndef HVMEM_TYPES_H
#define HVMEM_TYPES_H

typedef __UINT8_TYPE__ hvmem_u8;
typedef __UINT16_TYPE__ hvmem_u16;
typedef __UINT32_TYPE__ hvmem_u32;
typedef __UINT64_TYPE__ hvmem_u64;
typedef __INT32_TYPE__ hvmem_i32;
typedef __INT64_TYPE__ hvmem_i64;
typedef __SIZE_TYPE__ hvmem_size;
typedef __UINTPTR_TYPE__ hvmem_uptr;

/* Machine frame number: machine address >> page_shift of the heap. 0 is a legal frame. */
typedef hvmem_u64 hvmem_mfn;
/* Guest frame number, in units of 4 KiB. */
typedef hvmem_u64 hvmem_gfn;
/* Machine address in bytes. Frames are supported up to address 2^52. */
typedef hvmem_u64 hvmem_maddr;
/* CPU number as the host counts them, 0 .. max_cpus - 1. May have holes. */
typedef hvmem_u32 hvmem_cpu;
/* NUMA node id as the firmware gives it, 0 .. HVMEM_NODE_LIMIT - 1. May have holes. */
typedef hvmem_u32 hvmem_node;
/* log2 of a number of frames. */
typedef hvmem_u32 hvmem_order;

/* Widest machine address the library accepts, in bits. */
#define HVMEM_MADDR_BITS 52
/* Largest order a heap can be configured for. */
#define HVMEM_ORDER_LIMIT 30
/* Order wildcard of hvmem_free(): take the order from the frame table. */
#define HVMEM_ORDER_ANY 0xffu
/* Node ids are 0 .. HVMEM_NODE_LIMIT - 1. */
#define HVMEM_NODE_LIMIT 64u
/* "Any node" in requests. */
#define HVMEM_NODE_ANY 0xffffffffu
/* Number of CPUs a heap can be configured for. */
#define HVMEM_CPU_LIMIT 16383u

/*
 * A set of CPUs: bit n of words[n / 64] is CPU n. `cpus` bounds the set; bits at and above it are
 * ignored. The words belong to whoever made the set and are only read.
 */
struct hvmem_cpuset {
    const hvmem_u64 *words;
    hvmem_u32 cpus;
    hvmem_u32 reserved;
};

/*
 * Names an operation that is done in bounded steps. Zero it before the first call; a call that
 * returns HVMEM_AGAIN wants to be made again with the same arguments and the cursor as it left it.
 * Progress that matters is kept by the library: a cursor that was forged, that belongs to another
 * object or to an operation that is over, is refused with HVMEM_E_STALE and changes nothing. Only
 * hvmem_scrub_step() has no object to keep it in, and nothing that depends on it: it refuses what cannot be
 * its own, and believes where to look next.
 */
struct hvmem_cursor {
    hvmem_u64 words[4];
};

/*
 * Marks the definition of a function whose address is taken (control-flow integrity annotations of
 * the host). Not for pointers to functions: the compilers' attributes apply to functions alone.
 */
#ifndef HVMEM_CALLBACK
#    define HVMEM_CALLBACK
#endif

/*
 * A function of a header or a file, inlined whatever the optimisation: a host that compiles for size
 * may warn where `inline` is not heeded.
 */
#ifndef HVMEM_INLINE
#    define HVMEM_INLINE static inline __attribute__((always_inline))
#endif

/* Marks exported functions; everything else is hidden when built with -fvisibility=hidden. */
#ifndef HVMEM_API
#    define HVMEM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
#    define HVMEM_BEGIN_DECLS extern "C" {
#    define HVMEM_END_DECLS   }
#else
#    define HVMEM_BEGIN_DECLS
#    define HVMEM_END_DECLS
#endif

#endif
