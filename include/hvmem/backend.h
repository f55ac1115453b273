/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/backend.h: the contract between the portable core and an instruction set.
 *
 * A back-end knows instructions and nothing of heaps: it is told *what* to invalidate or clean and
 * issues exactly that, with the barriers its architecture demands. Which requests to make, and in
 * which size, is decided above (range policy, gather). One call is one batch: the barrier before
 * it, all its operations, the barrier after it. When a call returns HVMEM_OK, no CPU in its scope
 * holds a translation (or cache line) that the request covers, except those loaded since from
 * tables that still allow it. When it returns an error, no instruction was issued.
 *
 * Before a TLB call the caller's change of the tables must be globally visible, or become so by
 * the first barrier of the batch (arm64: DSB ISHST is issued first; x86: the caller's locked
 * operation or MFENCE).
 *
 * Implementations: backends/x86, backends/arm64 (real instructions), backends/sim (model and
 * recorder). Each fills a struct hvmem_backend. A build may instead bind at compile time with
 * -DHVMEM_BACKEND_HEADER="<file>", which may define HVMEM_BACKEND_TLB_FLUSH(be, flush),
 * HVMEM_BACKEND_DCACHE(be, op, addr, bytes), HVMEM_BACKEND_DCACHE_DONE(be, op),
 * HVMEM_BACKEND_ICACHE(be, addr, bytes) and HVMEM_BACKEND_ZERO(be, addr, bytes); each replaces the
 * table's operation of that name.
 */
#ifndef HVMEM_BACKEND_H
#define HVMEM_BACKEND_H

#include <hvmem/status.h>
#include <hvmem/types.h>

/* Who must forget (struct hvmem_tlb_flush.scope). */
#define HVMEM_SCOPE_LOCAL 0u /* the calling CPU */
#define HVMEM_SCOPE_INNER                                                                          \
    1u /* all CPUs: arm64 inner shareable, x86 INVLPGB (HVMEM_CAP_BROADCAST) */
#define HVMEM_SCOPE_OUTER 2u /* arm64 outer shareable (HVMEM_CAP_OUTER) */

/* Translation regimes (struct hvmem_tlb_space.regime). */
/* The regime the caller itself runs in: x86 current kernel tables; arm64 EL2, EL2&0 or EL1&0. */
#define HVMEM_REGIME_HOST 0u
/* Stage 1 of address spaces below the caller, tagged: x86 PCID, arm64 ASID in EL1&0 or EL2&0. */
#define HVMEM_REGIME_USER 1u
/* Second stage: arm64 stage 2 by VMID, AMD nested tables by ASID, Intel EPT by EPTP. */
#define HVMEM_REGIME_STAGE2 2u
/* A guest's own stage 1 under its VMID, VPID or SVM ASID (all its address spaces). */
#define HVMEM_REGIME_GUEST 3u

/*
 * A translation space. `id` is the tag in force when the tables were changed (read it after the
 * change is visible). `root`: arm64 stage 2: the VTTBR value without VMID; Intel: the EPTP; else 0.
 * Ids are PCID (12 bits), ASID or VMID (8 or 16 bits), VPID (16), SVM ASID (32).
 */
struct hvmem_tlb_space {
    hvmem_u32 regime;
    hvmem_u32 id;
    hvmem_u64 root;
};

/* Flags of a range. */
#define HVMEM_RANGE_LEAF   1u /* only leaf entries changed: no table was unhooked or freed */
#define HVMEM_RANGE_GLOBAL 2u /* entries may be global (x86 G bit, arm64 nG = 0) */

/*
 * One range of input addresses (VA, or IPA for STAGE2): [start, start + pages << page_shift).
 * start is aligned to the back-end's page_shift. `level` is the table level (arm64 numbering 0..3)
 * at which every leaf of the range sits, HVMEM_LEVEL_UNKNOWN if mixed or if tables were freed: a
 * wrong level may invalidate nothing. `stride_shift` is log2 bytes of the smallest entry that was
 * in the range: one operation per stride is enough, and stepping by it is the caller's promise.
 */
struct hvmem_tlb_range {
    hvmem_u64 start;
    hvmem_u64 pages;
    hvmem_u8 stride_shift;
    hvmem_u8 level;
    hvmem_u16 flags;
    hvmem_u32 reserved;
};
#define HVMEM_LEVEL_UNKNOWN 0xffu

/* What to invalidate (struct hvmem_tlb_flush.what). */
#define HVMEM_FLUSH_RANGES 0u /* the ranges, in the space */
#define HVMEM_FLUSH_SPACE  1u /* everything tagged with the space's id (HOST: all, globals too) */
#define HVMEM_FLUSH_ALL    2u /* every translation, all ids, globals too; space is ignored */
/* All ids of one regime: USER: all PCIDs/ASIDs; STAGE2 and GUEST: all VMs (rollover of ids). */
#define HVMEM_FLUSH_REGIME 3u

/* One batch of TLB work. ranges and count are used with HVMEM_FLUSH_RANGES only. */
struct hvmem_tlb_flush {
    hvmem_u32 size; /* sizeof(struct hvmem_tlb_flush) */
    hvmem_u16 what;
    hvmem_u16 scope;
    struct hvmem_tlb_space space;
    const struct hvmem_tlb_range *ranges;
    hvmem_u32 count;
    hvmem_u32 flags; /* HVMEM_TLB_* */
};
#define HVMEM_TLB_SINGLES 1u /* ranges: by single-page operations, even if range operations exist */

/* Data-cache operations by address. Point of coherency unless said. */
#define HVMEM_DC_CLEAN            0u /* write back, keep */
#define HVMEM_DC_CLEAN_INVALIDATE 1u /* write back, drop */
#define HVMEM_DC_INVALIDATE       2u /* drop; partial lines at the ends are written back first */
#define HVMEM_DC_CLEAN_POU        3u /* write back to the point of unification (code) */
/*
 * Or'ed to one of them: more calls with the same operation follow on this CPU, or dcache_done. Complete is
 * this one only with the first that comes without the flag.
 */
#define HVMEM_DC_MORE 256u

/*
 * How a guest must be entered next so that its stale translations are gone (op guest_entry).
 * HVMEM_ENTRY_*: what is owed; the result is what to put into the entry structure.
 */
#define HVMEM_ENTRY_NOTHING     0u
#define HVMEM_ENTRY_FLUSH_GUEST 1u /* this guest's id */
#define HVMEM_ENTRY_FLUSH_ALL   2u /* all ids (id rollover) */

/* Capabilities (struct hvmem_backend_caps.features). */
#define HVMEM_CAP_BROADCAST     (1ull << 0) /* scope INNER works without host IPIs */
#define HVMEM_CAP_OUTER         (1ull << 1) /* scope OUTER works */
#define HVMEM_CAP_RANGE         (1ull << 2) /* range operations exist (arm64 TLBIRANGE, INVLPGB count) */
#define HVMEM_CAP_TTL           (1ull << 3)  /* level hints are encoded */
#define HVMEM_CAP_USER_IDS      (1ull << 4)  /* tagged stage 1 (PCID, ASID) */
#define HVMEM_CAP_USER_RANGE    (1ull << 5)  /* one page of a tagged space can be invalidated */
#define HVMEM_CAP_STAGE2        (1ull << 6)  /* STAGE2 whole-space invalidation works */
#define HVMEM_CAP_STAGE2_RANGE  (1ull << 7)  /* STAGE2 by guest-physical address works */
#define HVMEM_CAP_GUEST         (1ull << 8)  /* GUEST regime works (VPID, SVM ASID, VMALLE1) */
#define HVMEM_CAP_FWB           (1ull << 9)  /* every stage 2 forces write-back: HVMEM_ARM64_FWB */
#define HVMEM_CAP_IDC           (1ull << 10) /* no clean to PoU needed for code */
#define HVMEM_CAP_DIC           (1ull << 11) /* no I-cache invalidation needed for code */
#define HVMEM_CAP_ICOHERENT     (1ull << 12) /* I-cache snoops stores (x86) */
#define HVMEM_CAP_CLWB          (1ull << 13) /* clean without invalidate exists */
#define HVMEM_CAP_CLFLUSHOPT    (1ull << 14) /* unordered flush exists */
#define HVMEM_CAP_WHOLE_CACHE   (1ull << 15) /* dcache_all works (WBINVD, set/way) */
#define HVMEM_CAP_FAST_ZERO     (1ull << 16) /* DC ZVA, CLZERO or non-temporal zeroing exists */
#define HVMEM_CAP_BBM2          (1ull << 17) /* block size change without break-before-make */
#define HVMEM_CAP_FLUSH_BY_ASID (1ull << 18) /* SVM TLB_CONTROL 3 exists */
#define HVMEM_CAP_GLOBAL        (1ull << 19) /* global entries survive a space flush (PGE) */
#define HVMEM_CAP_SMALL_INPUT   (1ull << 20) /* T0SZ above 39: inputs below 25 bits (FEAT_TTST) */

/* Errata and quirks (struct hvmem_backend_caps.quirks); sources at the detection code. */
#define HVMEM_QUIRK_REPEAT_TLBI       (1ull << 0) /* one more broadcast TLBI + DSB after each batch */
#define HVMEM_QUIRK_CLFLUSH_UNORDERED (1ull << 1) /* MFENCE around CLFLUSH loops (AMD) */
#define HVMEM_QUIRK_INVLPG_GLOBAL     (1ull << 2) /* INVLPG may miss globals under PCID */
#define HVMEM_QUIRK_CLEAN_IS_CIVAC    (1ull << 3) /* promote CVAC/CVAU to CIVAC (Cortex-A53) */
#define HVMEM_QUIRK_CMO_TWICE         (1ull << 4) /* run D-cache loops twice (SI L1 4311569) */
#define HVMEM_QUIRK_SPECULATIVE_AT    (1ull << 5) /* guard VMID switches (1165522 and kin) */
#define HVMEM_QUIRK_NO_RANGE          (1ull << 6) /* advertised range/broadcast operations unusable */
#define HVMEM_QUIRK_HIDE_DIC          (1ull << 7) /* Neoverse-N1 1542419 */
#define HVMEM_QUIRK_VIPT_ICACHE       (1ull << 8) /* aliasing I-cache: whole invalidate only */
#define HVMEM_QUIRK_FLUSH_SUPERPAGE                                                                \
    (1ull << 9) /* INVLPG of large pages unreliable: flush the space */
#define HVMEM_QUIRK_BBM_REQUIRED (1ull << 10) /* page-size change only through not-present */

/* What the machine can do. Filled by the back-end's detection; constant afterwards. */
struct hvmem_backend_caps {
    hvmem_u32 size; /* sizeof(struct hvmem_backend_caps) */
    hvmem_u32 page_shift;
    hvmem_u64 features;
    hvmem_u64 quirks;
    hvmem_u64 max_range_pages; /* largest range one range operation covers; 0 without CAP_RANGE */
    hvmem_u32 user_id_bits;    /* width of PCID / ASID */
    hvmem_u32 stage2_id_bits;  /* width of VMID / VPID; for SVM log2 of the ASID count */
    hvmem_u32 stage2_ids;      /* number of ids (SVM: need not be a power of two); id 0 reserved */
    hvmem_u32 dline;       /* bytes a D-cache line, smallest of the system; 0 = no maintenance */
    hvmem_u32 iline;       /* bytes an I-cache line, smallest of the system */
    hvmem_u32 zero_block;  /* bytes a zeroing instruction clears; 0 = none */
    hvmem_u64 cache_bytes; /* size of the last-level cache; 0 = unknown */
};

struct hvmem_backend;

struct hvmem_backend_ops {
    /* sizeof(struct hvmem_backend_ops) of the back-end's build; members beyond it are absent. */
    hvmem_u32 size;
    hvmem_u32 reserved;

    /*
     * One batch of TLB work. Context: pinned to a CPU for LOCAL scope and for INVLPGB; interrupts
     * as they are. Mandatory.
     * Errors: HVMEM_E_ARG (unknown what, scope, regime or flag), HVMEM_E_RANGE (range wraps or
     * exceeds the input size), HVMEM_E_ALIGN, HVMEM_E_SPACE (id wider than the machine's),
     * HVMEM_E_UNSUPPORTED (a capability is missing), HVMEM_E_LEVEL (exception level too low).
     */
    hvmem_status (*tlb_flush)(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush);

    /*
     * D-cache maintenance of [addr, addr + bytes), HVMEM_DC_*. addr is a virtual address of the
     * caller, any alignment; bytes 0 does nothing. Complete on return, with all that HVMEM_DC_MORE
     * left open before it, unless it has that flag itself. The caller bounds bytes (cache cursor): one
     * call is one stretch between preemption checks. Given the flag only if dcache_done is there.
     * Errors: HVMEM_E_ARG (op), HVMEM_E_RANGE (wraps), HVMEM_E_UNSUPPORTED (no such instruction).
     */
    hvmem_status (*dcache)(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                           hvmem_size bytes);

    /*
     * Make stores to [addr, addr + bytes) visible to instruction fetch of every CPU, including the
     * clean to the point of unification where it is needed. Other CPUs still need a context
     * synchronisation before they execute it (entering a guest is one). Errors: HVMEM_E_RANGE (wraps).
     */
    hvmem_status (*icache)(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes);

    /*
     * Invalidate every I-cache in the scope (LOCAL or INNER). x86: nothing to issue.
     * Errors: HVMEM_E_ARG (scope), HVMEM_E_LEVEL (user space).
     */
    hvmem_status (*icache_all)(struct hvmem_backend *be, hvmem_u32 scope);

    /*
     * Clean (HVMEM_DC_CLEAN) or clean and invalidate the whole data cache of the calling CPU:
     * arm64 set/way walk to the level of coherency, x86 WBINVD / WBNOINVD. Milliseconds; never used
     * unless asked for. Errors: HVMEM_E_ARG (op), HVMEM_E_LEVEL (user space), HVMEM_E_UNSUPPORTED.
     */
    hvmem_status (*dcache_all)(struct hvmem_backend *be, hvmem_u32 op);

    /*
     * Zero [addr, addr + bytes), both multiples of 64, by the fastest means; ordered on return.
     * Errors: HVMEM_E_ALIGN, HVMEM_E_RANGE (wraps).
     */
    hvmem_status (*zero)(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes);

    /*
     * Value for the entry structure of a guest so that HVMEM_ENTRY_* is honoured by hardware at
     * the next entry: SVM TLB_CONTROL in *value. Others: HVMEM_E_UNSUPPORTED; use tlb_flush.
     */
    hvmem_status (*guest_entry)(struct hvmem_backend *be, hvmem_u32 owed, hvmem_u32 *value);

    /*
     * Complete what calls of dcache with HVMEM_DC_MORE and this `op` (without the flag) left open on this
     * CPU: one barrier, as at the end of dcache. The core calls it before anybody is told of the lines and
     * before it gives the CPU away. A host that moves a running call to another CPU by itself needs the
     * barrier there (arm64: DSB SY; x86: any locked operation), as for a move within one call of dcache.
     * May be absent; then every call of dcache is complete. Errors: HVMEM_E_ARG (op).
     */
    hvmem_status (*dcache_done)(struct hvmem_backend *be, hvmem_u32 op);
};

/*
 * A back-end instance. `ctx` is its own state (recorder, model, exception level). Owned by the
 * host, constant once given to a heap.
 */
struct hvmem_backend {
    const struct hvmem_backend_ops *ops;
    void *ctx;
    struct hvmem_backend_caps caps;
};

#endif
