/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Player of recorded page events: the compact trace form, the order rules between CPUs and the
 * meaning of recorded TLB flushes. Freestanding: the Linux tool and the metal image replay the same
 * bytes with the same code. The text form and the converter are described in test/data/README.md.
 */
#ifndef REPLAY_PLAYER_H
#define REPLAY_PLAYER_H

#include <hvmem/status.h>
#include <hvmem/types.h>

/*
 * The compact form, little-endian, every part 8-byte aligned:
 *
 *     struct replay_header | records of CPU 0 | records of CPU 1 | ...
 *
 * Frame numbers are gone: each allocation of the trace has a slot number of its own, never used
 * twice, and the free that ends it names that slot, on whichever CPU it was made. So a free has
 * exactly one thing to wait for, and an address that is used again cannot be mistaken.
 */
#define REPLAY_MAGIC    0x31747668u /* "hvt1" */
#define REPLAY_MAX_CPUS 8u

struct replay_header {
    hvmem_u32 magic;
    hvmem_u32 bytes; /* sizeof(struct replay_header) */
    hvmem_u32 cpus;
    hvmem_u32 slots;                    /* allocations in the trace */
    hvmem_u32 peak_pages;               /* most pages live at once, in the order of the recording */
    hvmem_u32 last_us;                  /* length of the recording */
    hvmem_u32 records[REPLAY_MAX_CPUS]; /* by CPU */
    hvmem_u32 peak_at[REPLAY_MAX_CPUS]; /* records of each CPU before the peak was reached */
};

/* Kinds of record. */
#define REPLAY_ALLOC      1u
#define REPLAY_FREE       2u
#define REPLAY_FREE_FIRST 3u /* not recorded: the next record allocates the same frames again */
#define REPLAY_FOREIGN    4u /* free of a block that was allocated before the recording */
#define REPLAY_FLUSH      5u

/* Use of an allocation (struct replay_record.use). */
#define REPLAY_USE_KERNEL  0u
#define REPLAY_USE_USER    1u /* movable pages: memory of processes */
#define REPLAY_USE_RECLAIM 2u /* kernel caches that can be dropped */
#define REPLAY_USE_MASK    3u
#define REPLAY_USE_ZERO    4u /* zeroed memory was asked for (added to one of the above) */

/* Pages of a flush of everything. */
#define REPLAY_FULL 0xffffffffu

struct replay_record {
    hvmem_u8 kind;
    hvmem_u8 order; /* REPLAY_ALLOC, REPLAY_FREE, REPLAY_FREE_FIRST, REPLAY_FOREIGN */
    hvmem_u8 use;   /* REPLAY_ALLOC: REPLAY_USE_* ; REPLAY_FLUSH: recorded reason */
    hvmem_u8 reserved;
    hvmem_u32 value; /* slot; REPLAY_FLUSH: pages or REPLAY_FULL; REPLAY_FOREIGN: 0 */
};

/* Flushes that replay makes (`what` of the flush operation), from reason and pages. */
#define REPLAY_LOCAL 0u /* this CPU: reasons 0 (task switch, full only), 2 and 3 */
#define REPLAY_OTHER 1u /* every other CPU: reason 4 */

/*
 * What the player needs. `cpu` is the CPU of the trace that plays. handle is any number below 2^58
 * by which free finds the block again. flush may be NULL: flushes are then only counted.
 */
struct replay_ops {
    HVMEM_CALLBACK hvmem_status (*alloc)(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u32 use,
                                         hvmem_u64 *handle);
    HVMEM_CALLBACK hvmem_status (*free)(void *ctx, hvmem_u32 cpu, hvmem_u32 order,
                                        hvmem_u64 handle);
    HVMEM_CALLBACK hvmem_status (*flush)(void *ctx, hvmem_u32 cpu, hvmem_u32 what, hvmem_u32 pages);
    HVMEM_CALLBACK hvmem_u64 (*now)(void *ctx); /* any unit; read only around waits */
    HVMEM_CALLBACK void (*relax)(void *ctx);    /* one turn of a wait; serves other CPUs' calls */
};

/* What one CPU did. Add results with replay_add(). */
struct replay_result {
    hvmem_u64 allocs;
    hvmem_u64 frees;          /* recorded frees and those made first */
    hvmem_u64 freed_first;    /* of these, blocks allocated again without a recorded free */
    hvmem_u64 foreign;        /* frees of blocks allocated before the recording: ignored */
    hvmem_u64 no_memory;      /* allocations refused with HVMEM_E_NOMEM; their frees are left out */
    hvmem_u64 lost_frees;     /* frees left out for that reason */
    hvmem_u64 waits;          /* frees that found their allocation not made yet */
    hvmem_u64 wait_time;      /* spent there, in units of now() */
    hvmem_u64 flush_full[2];  /* by REPLAY_LOCAL, REPLAY_OTHER */
    hvmem_u64 flush_range[2]; /* the same, of a number of pages */
    hvmem_u64 flush_pages[2]; /* pages of those ranges */
    hvmem_u64 flush_nothing;  /* recorded, nothing was needed */
    hvmem_u64 flush_counted;  /* the receiving end of another CPU's flush: only counted */
    hvmem_u64 flush_unknown;  /* reasons this player does not know */
};

/*
 * One replay. Filled by replay_open(); all members are private to the player but for `header`,
 * which points into the caller's bytes. Shared by the CPUs that play.
 */
struct replay {
    const struct replay_header *header;
    const struct replay_record *stream[REPLAY_MAX_CPUS];
    hvmem_u64 *slot; /* one word a slot, see player.c */
    const struct replay_ops *ops;
    void *ctx;
    hvmem_u64 wait_limit;
    hvmem_u32 stopped; /* some CPU failed: the others stop waiting */
};

/* Bytes of slot memory a trace needs; 0 if `bytes` of `trace` are not a well-formed trace. */
hvmem_size replay_slot_bytes(const void *trace, hvmem_size bytes);

/*
 * Prepare a replay from the start. trace (8-byte aligned) and slots stay the caller's and must
 * outlive it; slots is written. wait_limit: the longest one wait may take, in units of now().
 * One CPU calls, before any plays. Errors: HVMEM_E_ARG (null argument, not a well-formed trace),
 * HVMEM_E_ALIGN, HVMEM_E_BUFFER (slot_bytes too small).
 */
hvmem_status replay_open(struct replay *replay, const void *trace, hvmem_size bytes, void *slots,
                         hvmem_size slot_bytes, const struct replay_ops *ops, void *ctx,
                         hvmem_u64 wait_limit);

/*
 * Play records [from, to) of one CPU of the trace (to: clipped to the number of records); adds to
 * *result. Called on the CPU that stands for it; the CPUs of the trace play at the same time.
 * Errors: HVMEM_E_CPU, HVMEM_E_RANGE (from beyond the end), HVMEM_E_TIMEOUT (a wait ran out),
 * HVMEM_E_BUSY (another CPU stopped on an error), HVMEM_E_ARG (record of unknown kind or slot, or a
 * slot used twice), or what an operation returned; the records before stay played.
 */
hvmem_status replay_play(struct replay *replay, hvmem_u32 cpu, hvmem_u32 from, hvmem_u32 to,
                         struct replay_result *result);

/* Free every block that is still live, as `cpu`; *freed counts them. No CPU may be playing. */
hvmem_status replay_free_rest(struct replay *replay, hvmem_u32 cpu, hvmem_u64 *freed);

/* Walk the live blocks: *cursor starts at 0; returns 1 and fills in, or 0 at the end. */
int replay_live(const struct replay *replay, hvmem_u32 *cursor, hvmem_u64 *handle,
                hvmem_u32 *order);

/* sum += part. */
void replay_add(struct replay_result *sum, const struct replay_result *part);

#endif
