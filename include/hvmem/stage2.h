/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/stage2.h: second-stage tables of a guest: arm64 stage 2, AMD nested paging, Intel EPT.
 *
 * Granule 4 KiB, levels numbered as on arm64: 3 holds 4 KiB pages, 2 blocks of 2 MiB, 1 of 1 GiB.
 * Walks of at most four levels: FEAT_LPA2 (VTCR_EL2.DS, 52-bit addresses, level -1), 5-level EPT and NPT
 * under LA57 are not supported; input_bits above 48, or output_bits above 48 on arm64, HVMEM_E_ARG.
 * A mapping exists while its entry has the library's own present bit; hardware's valid bit says only that the
 * guest touched it since tracking was armed (hvmem/track.h). Access and dirty bits are set in advance.
 *
 * Every call may be made by several CPUs at once (in the lock regimes that lock): one lock a guest, held for
 * at most one table of entries. Flushes and table allocation happen without it. Whatever changed an entry
 * that hardware could have loaded is invalidated by a gather (hvmem/gather.h) before the call returns, or
 * before the gather is finished that the caller gave. Where the host flushes by IPI interrupts must be on.
 *
 * Ranges are in guest frames of 4 KiB. A range that is empty, wraps or exceeds the input size is refused with
 * HVMEM_E_RANGE, so that numbers of a guest may be passed on unchecked.
 * FRAMES that no call maps, for others get them while the guest has them: free ones of the heap (HVMEM_E_FREE;
 * _OFFLINE, _QUARANTINE); gathered ones, any stage 2's tables, what is being freed scrubbed (_GATHERED); where
 * config.domain or the space's hvmem_domain_attach() tells the guest's domain, others' not made foreign (_OWNER).
 */
#ifndef HVMEM_STAGE2_H
#define HVMEM_STAGE2_H

#include <hvmem/config.h>

struct hvmem_stage2;
struct hvmem_gather;
struct hvmem_mapping;
struct hvmem_space;
struct hvmem_policy;
struct hvmem_cursor;
struct hvmem_domain_ops;

/* Formats. Arm ARM D8.3; AMD APM vol. 2 15.25; Intel SDM vol. 3 29.3. */
#define HVMEM_S2_ARM64 1u
#define HVMEM_S2_NPT   2u
#define HVMEM_S2_EPT   3u

/* Rights, and kinds of access. R must be among the rights of a mapping. */
#define HVMEM_S2_R   1u
#define HVMEM_S2_W   2u
#define HVMEM_S2_X   4u
#define HVMEM_S2_RWX 7u

/* Memory types. Before one but WB, and where it changes, the caller cleans: hvmem_cache_range(). */
#define HVMEM_S2_WB     0u /* write-back */
#define HVMEM_S2_NC     1u /* uncached memory: arm64 Normal NC, EPT WC, NPT PAT entry 2 (UC-) */
#define HVMEM_S2_DEVICE 2u /* arm64 Device-nGnRE, never X; EPT UC, NPT PAT entry 3 (UC) */

/* Flags of a stage 2. */
#define HVMEM_S2_TRACK 1u /* arm access tracking when the domain starts */
/* WB frames are scrubbed (if they owe it) and cleaned when the guest first touches them: once, wherever mapped. */
#define HVMEM_S2_FIRST_TOUCH 2u
/* arm64: for HCR_EL2.FWB, exactly where the back-end keeps HVMEM_CAP_FWB; EPT: ignore the guest's PAT. */
#define HVMEM_S2_FORCE_WB 4u
/* Map, unmap, protect, merge answer HVMEM_AGAIN after a step if the host wants the CPU: go on behind *done. */
#define HVMEM_S2_PREEMPTIBLE 8u
#define HVMEM_S2_LEVEL_AUTO  0xffu
/* Most entries of one lock hold, and lines that a first-touch fault pays for unless configured or preempted. */
#define HVMEM_S2_SLICE       512u
#define HVMEM_S2_TOUCH_LINES 2048u

/* A mapping as it is, or as it is to be. */
struct hvmem_stage2_leaf {
    hvmem_mfn mfn;    /* machine frame, in units of 4 KiB */
    hvmem_u32 order;  /* look-up: 0, 9 or 18, the size of its entry */
    hvmem_u32 rights; /* HVMEM_S2_R | ... */
    hvmem_u32 type;   /* HVMEM_S2_WB, _NC, _DEVICE */
    hvmem_u32 state;  /* look-up: HVMEM_S2_TOUCHED, HVMEM_S2_UNCLEAN */
};
#define HVMEM_S2_TOUCHED 1u /* touched since tracking was armed: valid, or broken since */
#define HVMEM_S2_UNCLEAN 2u /* waits for its first touch to be cleaned: disarm before devices */

/*
 * Give a frame for an unmapped guest frame that was accessed: fill *leaf (order 0, 9 or 18 of no more than
 * 512 entries of the largest size; gfn and mfn aligned down to it). HVMEM_OK: it is mapped. HVMEM_AGAIN: the
 * guest shall fault again. Any other: HVMEM_FAULT_UNMAPPED. Called without library locks; may run for one
 * frame on two CPUs: `lost` says that the frame of this answer is not in use, for another CPU's was mapped or
 * an error came; the guest may have written to parts of it before: free it as its owner's. Not called on
 * HVMEM_E_QUARANTINE: it may still be reached, and is in quarantine; one not of the heap the host withholds.
 */
struct hvmem_stage2_populate {
    hvmem_status (*give)(void *ctx, hvmem_gfn gfn, hvmem_u32 access,
                         struct hvmem_stage2_leaf *leaf);
    void (*lost)(void *ctx, hvmem_gfn gfn, const struct hvmem_stage2_leaf *leaf);
};

struct hvmem_stage2_config {
    hvmem_u32 size;  /* sizeof(struct hvmem_stage2_config) */
    hvmem_u32 flags; /* HVMEM_S2_TRACK, _FIRST_TOUCH, _FORCE_WB, _PREEMPTIBLE */
    hvmem_u32 format;
    hvmem_u32 input_bits;    /* guest-physical: arm64 25 (FEAT_TTST: 22) .. 48, others 32 .. 48 */
    hvmem_u32 start_level;   /* arm64 0 (44 bits out) .. 2, up to 16 roots; _AUTO: least */
    hvmem_u32 output_bits;   /* machine address bits, 32 .. 52 (arm64 48) */
    hvmem_u32 id_bits;       /* arm64: VMID 8 or 16 */
    hvmem_u32 largest;       /* largest order mapped: 0, 9, 18 (NPT, EPT: what the CPU has) */
    hvmem_node node;         /* of the tables; HVMEM_NODE_ANY */
    hvmem_u32 touch_lines;   /* cache lines a first-touch fault cleans at most; 0: default */
    hvmem_u64 max_tables;    /* root included; 0: no limit */
    struct hvmem_heap *heap; /* page_shift 12; tables come from it, the frames may */
    struct hvmem_domain *domain;       /* charged for the tables; NULL: the host */
    struct hvmem_space *space;         /* of this stage 2 alone; not loaded before init */
    const struct hvmem_policy *policy; /* NULL: default */
    /*
     * Where table memory is reached: at direct_map + machine address, or where table_at says (called with a
     * lock held; valid as long as the table lives). Of up to 16 root tables, side by side, the first is asked.
     */
    hvmem_uptr direct_map;
    void *(*table_at)(void *ctx, hvmem_maddr table);
    struct hvmem_stage2_populate populate; /* give NULL: nothing on demand */
    void *ctx;                             /* of table_at and populate */
};

/* A request to map frames to frames. Zero what is not used. */
struct hvmem_stage2_map {
    hvmem_u32 size;  /* sizeof(struct hvmem_stage2_map) */
    hvmem_u32 flags; /* HVMEM_S2_REPLACE */
    hvmem_gfn gfn;
    hvmem_u64 frames;
    hvmem_mfn mfn;
    hvmem_u32 rights;
    hvmem_u32 type;
};
#define HVMEM_S2_REPLACE 1u /* what is mapped goes first, flushed: a device finds nothing then */

struct hvmem_stage2_stats {
    hvmem_u32 size;        /* sizeof(struct hvmem_stage2_stats) */
    hvmem_u32 root_tables; /* side by side */
    hvmem_u64 tables;      /* in use, root included */
    hvmem_u64 pool;        /* ready, not in use; tables + pool came from the heap */
    hvmem_u64 max_tables;
    hvmem_u64 leaves[3]; /* mapped entries of order 0, 9, 18 */
    hvmem_u64 frames;    /* mapped, in 4 KiB */
    hvmem_u64 faults;    /* taken by hvmem_stage2_fault */
    hvmem_u64 repairs;   /* of these, entries made valid again */
    hvmem_u64 pushed;    /* tables whose entries were made invalid by a push-down */
    hvmem_u64 splits, merges;
};

/* What a fault came to (*outcome). */
#define HVMEM_FAULT_ENTER    0u /* resolved, by this call or another CPU: enter the guest again */
#define HVMEM_FAULT_AGAIN    1u /* work goes on; enter again, it may fault again */
#define HVMEM_FAULT_UNMAPPED 2u /* nothing is mapped there */
#define HVMEM_FAULT_RIGHTS   3u /* mapped, but not for this access */

HVMEM_BEGIN_DECLS

/* Bytes (64-byte aligned) of a stage 2. Errors: as hvmem_stage2_init, but for E_BUFFER, E_NOMEM. */
HVMEM_API hvmem_status hvmem_stage2_size(const struct hvmem_stage2_config *config,
                                         hvmem_size *bytes);

/*
 * Make an empty stage 2 in memory[0 .. bytes), root tables allocated and zeroed. The memory is the library's
 * until hvmem_stage2_teardown() returned HVMEM_OK, as are pages for tables (freed, gathered or shared by their
 * numbers: HVMEM_E_GATHERED). Errors: HVMEM_E_ARG (null, flag, format, level, bits; arm64 without FORCE_WB where
 * the back-end has HVMEM_CAP_FWB), HVMEM_E_UNSUPPORTED (FORCE_WB where it has not; input_bits below 25 without
 * HVMEM_CAP_SMALL_INPUT), HVMEM_E_VERSION, HVMEM_E_BUFFER, HVMEM_E_ORDER (largest), HVMEM_E_SPACE (dead, another
 * stage 2's, not of REGIME_STAGE2; EPT: without IDENT_ROOTS), HVMEM_E_LIMIT (max_tables), those of hvmem_alloc().
 */
HVMEM_API hvmem_status hvmem_stage2_init(void *memory, hvmem_size bytes,
                                         const struct hvmem_stage2_config *config,
                                         struct hvmem_stage2 **s2);

/*
 * Map a range with the largest entries that fit its alignment. *done (may be NULL): how many frames, from the
 * first on, are mapped by this call on return. Only where something was replaced is anything invalidated.
 * Errors: HVMEM_E_RANGE (also: machine frames beyond output_bits), HVMEM_E_ARG (rights, type, flag),
 * HVMEM_E_VERSION, those of FRAMES (above; nothing was replaced), HVMEM_E_BUSY (something is mapped there,
 * or the first touch is to pay and a device walks the tables), HVMEM_E_LIMIT, HVMEM_E_PHASE (torn down),
 * those of hvmem_alloc() for tables; after a flush that failed, those of the flush of everything then.
 */
HVMEM_API hvmem_status hvmem_stage2_map(struct hvmem_stage2 *s2,
                                        const struct hvmem_stage2_map *request, hvmem_u64 *done);

/*
 * Unmap what is mapped in a range; holes are passed over. Entries that lie in it only in part are split;
 * tables left empty are freed. gather: one begun on hvmem_stage2_mapping() for at least the range; the caller
 * then finishes it, and frees nothing of it before (what is mapped there before, by a fault too, costs a flush
 * of its own). NULL: flushed on return, else the flush's error whatever else failed. *done: frames of the range
 * dealt with, from the first on; those behind are unchanged. Tables out of more than HVMEM_GATHER_WINDOWS spans
 * of 2^32 frames are flushed for on the way. Errors: HVMEM_E_RANGE, HVMEM_E_PHASE, HVMEM_E_ARG, HVMEM_E_STALE
 * (the gather is over); where an entry must be split, which stays as before: HVMEM_E_LIMIT, hvmem_alloc()'s,
 * HVMEM_E_BUSY (a device walks the tables, and would lose accesses to a broken entry; or 16 tries failed).
 */
HVMEM_API hvmem_status hvmem_stage2_unmap(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                                          struct hvmem_gather *gather, hvmem_u64 *done);

/* Change the rights of what is mapped in a range, but for X of arm64 devices. As unmap in all else. */
HVMEM_API hvmem_status hvmem_stage2_protect(struct hvmem_stage2 *s2, hvmem_gfn gfn,
                                            hvmem_u64 frames, hvmem_u32 rights,
                                            struct hvmem_gather *gather, hvmem_u64 *done);

/*
 * Merge every table of the range whose 512 entries continue each other with equal rights and type into one
 * block, break before make where the machine needs it. One that is touched in part comes out as touched. (A
 * call that stopped inside 1 GiB has not merged that: merge all of it once more.) Errors: as unmap. After a
 * flush that failed (as hvmem_shootdown) the block is not usable, guests fault on it (HVMEM_FAULT_AGAIN), no
 * device is let in, until another merge of its range returned HVMEM_OK.
 */
HVMEM_API hvmem_status hvmem_stage2_merge(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                                          hvmem_u64 *done);

/* The mapping of one guest frame. Errors: HVMEM_E_RANGE, _PHASE, HVMEM_E_FREE (not mapped, not reported). */
HVMEM_API hvmem_status hvmem_stage2_lookup(struct hvmem_stage2 *s2, hvmem_gfn gfn,
                                           struct hvmem_stage2_leaf *leaf);

/*
 * The guest faulted at a guest-physical byte address. access: one or more of R, W, X. At most one table is
 * pushed down, touch_lines lines are cleaned or 512 entries mapped. *outcome: HVMEM_FAULT_*. Errors:
 * HVMEM_E_RANGE, _ARG, _PHASE, _ORDER (of `give`), _QUARANTINE (see `lost`), those of hvmem_stage2_map().
 */
HVMEM_API hvmem_status hvmem_stage2_fault(struct hvmem_stage2 *s2, hvmem_u64 gpa, hvmem_u32 access,
                                          hvmem_u32 *outcome);

/*
 * Take tables in advance, so that `tables` are in the pool; none where that is more than max_tables (without
 * it: one for 16 free frames) or the domain's limit, HVMEM_E_LIMIT, or than are free, HVMEM_E_NOMEM. _PHASE.
 */
HVMEM_API hvmem_status hvmem_stage2_reserve(struct hvmem_stage2 *s2, hvmem_u64 tables);

/*
 * Unmap and free everything, tables and root, in slices: HVMEM_AGAIN until done, also while another CPU
 * pays for a first touch that it began before. One whole-space flush before the first table is freed. Other
 * calls are refused from the first slice on; those under way then end as they would, and the memory is the
 * caller's when the last of them has returned. No CPU may load the root again. Errors: HVMEM_E_STALE,
 * HVMEM_E_BUSY (another CPU is in it, a device shares the tables, a gather is open), HVMEM_E_PHASE (done).
 */
HVMEM_API hvmem_status hvmem_stage2_teardown(struct hvmem_stage2 *s2, struct hvmem_cursor *cursor);

HVMEM_API hvmem_status hvmem_stage2_stats(struct hvmem_stage2 *s2,
                                          struct hvmem_stage2_stats *stats);

/*
 * What to load: arm64 VTTBR_EL2, EPT the EPTP, NPT the nested CR3; id: VMID (others 0). HVMEM_E_RANGE (id
 * wider than id_bits), HVMEM_E_PHASE. control: arm64 VTCR_EL2 without its PS field (bits 18:16); others 0.
 */
HVMEM_API hvmem_status hvmem_stage2_root(const struct hvmem_stage2 *s2, hvmem_u32 id,
                                         hvmem_u64 *value);
HVMEM_API hvmem_u64 hvmem_stage2_control(const struct hvmem_stage2 *s2);

/* What gathers on these tables are begun on; device notifiers are added to it. */
HVMEM_API struct hvmem_mapping *hvmem_stage2_mapping(struct hvmem_stage2 *s2);

/* Fill in the operations for hvmem_domain_attach() (hvmem/populate.h); their ctx is the stage 2. */
HVMEM_API void hvmem_stage2_ops(struct hvmem_domain_ops *ops);

HVMEM_END_DECLS

#endif
