/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tlb.h: model of the TLBs of several CPUs, as unkind as the architectures allow. An entry stays
 * until an operation covers it or another one needs its slot; it may come into being at any time
 * from whatever the tables that a CPU has loaded allow (hvmem_sim_tlb_speculate). Invalidation does
 * what is asked and nothing more: wrong level, tag, root or stride leave the entry where it is.
 *
 * Tables are walked in one go (config.walk), or a descriptor at a time (config.step): then CPUs keep
 * pointers to tables too, and go on from the deepest one they have. Devices are further rows behind
 * the CPUs, which only hvmem_sim_tlb_flush_device reaches.
 *
 * Used by one thread at a time. Times are in cost.h, data caches in data.h.
 */
#ifndef HVMEM_SIM_TLB_H
#define HVMEM_SIM_TLB_H

#include <hvmem/backend.h>

/* One cached translation: of 2^shift pages from `page`, or a table (a paging-structure cache). */
struct hvmem_sim_entry {
    hvmem_u64 page;  /* input address / 4 KiB, aligned to 2^shift */
    hvmem_u64 frame; /* whatever the walk gave; the model only carries it */
    hvmem_u64 root;
    hvmem_u32 regime;
    hvmem_u32 id;
    hvmem_u8 shift;
    hvmem_u8 level; /* of the entry, arm64 numbering */
    hvmem_u8 global;
    hvmem_u8 table;
    hvmem_u32 valid; /* the model's: 1, HVMEM_SIM_LINGERS or _ANNOUNCED */
    hvmem_u32 turn;  /* whatever the walk gave */
    /*
     * Not 0: the CPU keeps a large entry in pieces, and this one translates page + (fragment - 1) alone. An
     * operation at any address of the entry drops all pieces, which count as of its level (KVM, Linux
     * and Xen rely on it: one TLBI, one INVLPG a block).
     */
    hvmem_u32 fragment;
};
/*
 * Entries of flawed hardware (config.flawed) whose invalidation is not through: stores through them may
 * still happen, before the wait for it and, announced as complete, after it, until another broadcast
 * was waited for (CVE-2025-10263 and kin).
 */
#define HVMEM_SIM_LINGERS   2u
#define HVMEM_SIM_ANNOUNCED 3u

/*
 * Walk the tables of `space` for a page: fill page, shift, level, frame, global, table and return 1,
 * or return 0 if nothing is mapped. The model adds the tag.
 */
typedef int hvmem_sim_walk(void *ctx, const struct hvmem_tlb_space *space, hvmem_u64 page,
                           struct hvmem_sim_entry *entry);
/*
 * Read one descriptor: that of `page` in the table at `frame` (at the first level: in the root of
 * `space`; frame is 0). Fill page, shift, frame and global of *entry, and table if it points to one;
 * 0: absent. Levels count from 0.
 */
typedef int hvmem_sim_step(void *ctx, const struct hvmem_tlb_space *space, hvmem_u64 frame,
                           hvmem_u32 level, hvmem_u64 page, struct hvmem_sim_entry *entry);
/* Called for each batch before it takes effect. */
typedef void hvmem_sim_observe(void *ctx, hvmem_cpu cpu, const struct hvmem_tlb_flush *flush);

struct hvmem_sim_tlb_config {
    hvmem_u32 cpus;
    hvmem_u32 slots;     /* entries a CPU */
    hvmem_u32 roots;     /* 1: STAGE2 entries are tagged by root alone (Intel EPT) */
    hvmem_u32 page_bits; /* speculation picks pages below 2^page_bits */
    hvmem_u64 features;  /* HVMEM_CAP_* the back-end claims */
    hvmem_u64 seed;
    hvmem_sim_walk *walk;
    hvmem_sim_observe *observe; /* may be NULL */
    void *ctx;
    hvmem_sim_step *step; /* in place of walk */
    hvmem_u32 levels; /* with step: of a walk, at most HVMEM_SIM_LEVELS; the last has leaves only */
    hvmem_u32 level;  /* with step: number of the first, arm64 numbering */
    hvmem_u32 devices;   /* rows behind the CPUs */
    hvmem_u32 fragments; /* 1: large entries are kept in single pages, or whole, as it comes */
    hvmem_u32 flawed;    /* 1: broadcasts need the second operation (HVMEM_QUIRK_REPEAT_TLBI) */
    /* Page that a random number stands for, for speculation; NULL: one below 2^page_bits. */
    hvmem_u64 (*pick)(hvmem_u64 random);
};
#define HVMEM_SIM_LEVELS 5u

/* What a CPU's hardware has loaded: it may walk these tables at any time. */
struct hvmem_sim_loaded {
    struct hvmem_tlb_space space;
    hvmem_u32 on;
    hvmem_u32 reserved;
};

struct hvmem_sim_tlb {
    struct hvmem_sim_tlb_config config;
    struct hvmem_backend backend; /* for the library: flushes act on `current` */
    hvmem_cpu current;            /* CPU whose code runs; set by the test */
    hvmem_u32 fail;               /* the next `fail` operations are refused, nothing is done */
    hvmem_u64 random;
    hvmem_u64 batches;  /* TLB batches executed */
    hvmem_u64 whole[4]; /* of them by hvmem_tlb_flush.what */
    hvmem_u64 dropped;  /* entries invalidated */
    struct hvmem_sim_loaded *loaded;
    struct hvmem_sim_entry *entries;
};

/* Bytes behind the structure that hvmem_sim_tlb_init needs, 8-byte aligned. */
hvmem_size hvmem_sim_tlb_bytes(const struct hvmem_sim_tlb_config *config);
void hvmem_sim_tlb_init(struct hvmem_sim_tlb *tlb, void *memory,
                        const struct hvmem_sim_tlb_config *config);

/* The hardware of `cpu` now walks this space's tables; NULL: none. */
void hvmem_sim_tlb_set_loaded(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                              const struct hvmem_tlb_space *space);

/*
 * An access of `cpu` to a page of what it has loaded: a hit gives the cached entry, a miss walks and
 * caches. 0: fault.
 */
int hvmem_sim_tlb_access(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu, hvmem_u64 page,
                         struct hvmem_sim_entry *entry);

/* `cpu` loads `count` translations nobody asked for. */
void hvmem_sim_tlb_speculate(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu, hvmem_u32 count);

/* One batch as if issued by `cpu`. Errors as struct hvmem_backend_ops.tlb_flush. */
hvmem_status hvmem_sim_tlb_flush(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                                 const struct hvmem_tlb_flush *flush);

/* What the device in row `row` (config.cpus ..) has cached of the request is gone when this returns. */
void hvmem_sim_tlb_flush_device(struct hvmem_sim_tlb *tlb, hvmem_u32 row,
                                const struct hvmem_tlb_flush *flush);

/*
 * The parts of hvmem_sim_tlb_flush, for those who replay instructions: the operations without checks
 * and counts; the wait (DSB) for a broadcast issued before. The request's scope may be LOCAL or INNER.
 * A batch waits once, and once more where backend.caps.quirks has HVMEM_QUIRK_REPEAT_TLBI.
 */
void hvmem_sim_tlb_issue(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                         const struct hvmem_tlb_flush *flush);
void hvmem_sim_tlb_wait(struct hvmem_sim_tlb *tlb);

/* A guest is entered with this TLB_CONTROL (SVM): it acts, then the space is loaded. */
void hvmem_sim_tlb_vmrun(struct hvmem_sim_tlb *tlb, hvmem_cpu cpu,
                         const struct hvmem_tlb_space *space, hvmem_u32 tlb_control);

/* Whether accesses of the row, as it is loaded now, use the entry. */
int hvmem_sim_tlb_usable(const struct hvmem_sim_tlb *tlb, hvmem_u32 row,
                         const struct hvmem_sim_entry *entry);

/* For oracles: the entries of a CPU or device, config.slots of them, those with `valid` set. */
const struct hvmem_sim_entry *hvmem_sim_tlb_entries(const struct hvmem_sim_tlb *tlb, hvmem_cpu cpu);

#endif
