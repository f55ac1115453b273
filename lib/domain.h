/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * domain.h: the inside of a domain handle, charging frames to it, what it has to settle, and the one
 * operation in steps that may be open on it.
 *
 * SETTLE OBJECT. Debts that were left on frames of a domain stay on their records; here is how many
 * frames that are, the newest stamp among them, and where they lie. Debts that need no look at each
 * frame are moved here by populate: the instruction caches (`owes`), and data caches by guest range
 * (`dirty`). While `owes` has a bit, every frame of the domain that is freed owes it (free.c).
 *
 * START. A call that allocates for a domain in state BUILDING counts itself in `calls`, then looks at the
 * state; start publishes STARTING, then looks at `calls`. Both are sequentially consistent: either start
 * sees the call and is refused, or the call sees STARTING and is. So nobody else leaves, pays or hands
 * out frames of the domain while start pays.
 */
#ifndef HVMEM_LIB_DOMAIN_H
#define HVMEM_LIB_DOMAIN_H

#include <hvmem/populate.h>

#include "heap.h"
#include "ranges.h"

#define HVMEM__CLAIM_ANY HVMEM_NODE_LIMIT /* index of the claim for anywhere */

/* The operation that is open on a domain (struct hvmem_domain.open). */
#define HVMEM__OPEN_NONE     0u
#define HVMEM__OPEN_POPULATE 1u
#define HVMEM__OPEN_START    2u
#define HVMEM__OPEN_TEARDOWN 3u

/* What blocks have to settle: in frames. */
struct hvmem__tally {
    hvmem_u64 frames; /* in blocks that owe anything */
    hvmem_u64 flush;  /* of these, in blocks that owe a flush */
    hvmem_u64 newest; /* stamp of those, decoded */
};

/* A populate in progress (populate.h). Owned by whoever has `running`. */
struct hvmem__populate {
    hvmem_u64 first; /* index of the slice's first extent: those before it are mapped */
    hvmem_u64 count; /* as the request was when it was opened */
    hvmem_u32 flags;
    hvmem_node node;
    hvmem_u32 phase;
    hvmem_u32 taken;   /* slots in use */
    hvmem_u32 paid;    /* of these, paid for */
    hvmem_u32 mapped;  /* of these, mapped */
    hvmem_u64 inside;  /* bytes done within the slot that is being paid for */
    hvmem_u64 newest;  /* stamp of the slots that owe a flush */
    hvmem_status stop; /* why no more are taken */
    hvmem_u32 owed;    /* debts that any slot has */
    hvmem_u32 icache;  /* the slice owes an instruction invalidate before it is mapped */
    hvmem_u32 unit;    /* order of the largest piece that is mapped by one call */
    hvmem_gfn gfn;     /* where the slot that is being mapped begins */
    hvmem_u64 part;    /* frames of it that are mapped */
    hvmem_u32 begun;   /* 1: its mapping has begun; 2: and it may be reached for ever */
    hvmem_u32 drew;    /* 1: the slots used claims up, as `drawn` says; 0: none did */
    hvmem_u64 slot[HVMEM_POPULATE_SLICE];
    /* Frames of each slot that were promised, on its node and anywhere; low bits of when (claim.h). */
    struct {
        hvmem_u32 from_node, from_any, when;
    } drawn[HVMEM_POPULATE_SLICE];
};

/* A start or a teardown in progress. */
struct hvmem__progress {
    hvmem_u32 phase;
    hvmem_u32 flags;
    hvmem_u64 at;               /* frame, or guest frame */
    hvmem_u64 inside;           /* bytes done within the block at hand */
    struct hvmem_cursor cursor; /* of ops.unmap_all */
};

struct hvmem_domain {
    struct hvmem_heap *heap; /* constant */
    hvmem_u32 id;            /* constant */
    hvmem_u32 state;         /* HVMEM_DOMAIN_*; admin lock to write */
    hvmem_u64 node_mask;     /* constant; 0: any */
    hvmem_u64 limit;         /* atomic */
    hvmem_u64 pages;         /* frames owned; atomic */
    hvmem_u32 turn;          /* round robin over node_mask; atomic */
    hvmem_u32 calls;         /* allocations under way while BUILDING; atomic */
    /* Settle object. The counts are atomic, the rest is guarded by `lock`. */
    hvmem_u64 deferred;  /* frames in blocks with debts (hvmem__rec_debts) */
    hvmem_u64 flush;     /* of these, in blocks that owe a flush */
    hvmem_u64 untouched; /* frames in blocks mapped untouched; atomic */
    hvmem_u32 owes;      /* ICACHE, DCACHE: for the domain as a whole; atomic */
    struct hvmem_lock lock;
    hvmem_u64 newest;            /* at or after the stamp of every deferred block */
    struct hvmem__ranges frames; /* where deferred blocks lie */
    struct hvmem__ranges dirty;  /* guest frames to clean at start */
    /* The operation in steps; `lock` for these four. */
    hvmem_u32 open;    /* HVMEM__OPEN_* */
    hvmem_u32 running; /* a CPU is inside a call of it */
    hvmem_u64 serial;  /* what its cursor must say */
    struct hvmem_domain_ops ops;
    void *ctx;
    struct hvmem_space *space;
    hvmem_u32 ids_gone; /* no translation of the domain exists or can be loaded; teardown */
    hvmem_u32 unmapped; /* ops.unmap_all has finished; teardown */
    struct hvmem__passages cleans;          /* hvmem_domain_clean() */
    struct hvmem__progress progress;        /* by whoever has `running`, as the next */
    hvmem_u64 claim[HVMEM_NODE_LIMIT + 1];  /* outstanding; claim lock, as the next two */
    hvmem_u64 set_at[HVMEM_NODE_LIMIT + 1]; /* of each claim: claims_set when it was set last */
    hvmem_u64 claims_set;                   /* how many times claims were set or cancelled */
    struct {
        struct hvmem__tally debts;
        hvmem_u64 pages, untouched;
    } audited; /* what hvmem_audit() finds; admin lock */
    struct hvmem__populate populate;
};

/* The domain of an owner id, or NULL for 0. The owner of a frame exists. */
HVMEM_INLINE struct hvmem_domain *hvmem__domain_of(const struct hvmem_heap *heap, hvmem_u32 id)
{
    return id && id <= heap->max_domains ? __atomic_load_n(&heap->domain[id], __ATOMIC_ACQUIRE)
                                         : (struct hvmem_domain *)0;
}

/* What a block owes because its domain does as a whole. */
HVMEM_INLINE hvmem_u32 hvmem__owed_as_whole(const struct hvmem_heap *heap, hvmem__record r)
{
    struct hvmem_domain *domain = hvmem__domain_of(heap, hvmem__rec_owner(r));

    return domain ? hvmem__load(&domain->owes) : 0;
}

/*
 * Charge frames against the limit: all or nothing. E_LIMIT, E_DOMAIN (dying), E_BUSY (starting).
 * NULL: nothing.
 */
hvmem_status hvmem__domain_charge(struct hvmem_domain *domain, hvmem_u64 frames);
/* Whether a charge would stay below the limit just now. */
int hvmem__domain_may_have(const struct hvmem_domain *domain, hvmem_u64 frames);
void hvmem__domain_uncharge(struct hvmem_domain *domain, hvmem_u64 frames);

/*
 * A call that gets blocks for the domain, or pays for its blocks, begins and ends: counted, so that neither a
 * start nor a teardown goes on beside it. *building: it may leave debts. Not entered: E_BUSY (starting), E_DOMAIN
 * (dying). NULL: nothing.
 */
hvmem_status hvmem__domain_enter(struct hvmem_domain *domain, int *building);
void hvmem__domain_leave(struct hvmem_domain *domain);
/*
 * The same of the domain that has this id by now (0: none, NULL), of which no handle is known to stay: it does
 * until hvmem__domain_leave(). E_DOMAIN also if there is none. No lock held.
 */
hvmem_status hvmem__domain_enter_id(struct hvmem_heap *heap, hvmem_u32 id,
                                    struct hvmem_domain **domain);
/* Whether a call is under way: none begins any more once the domain is dying. */
int hvmem__domain_called(const struct hvmem_domain *domain);

/* Add a block's record to a tally. */
void hvmem__tally_add(const struct hvmem_heap *heap, struct hvmem__tally *tally, hvmem__record r);

/* Frames of [mfn, mfn + count) are the domain's and have this to settle. NULL: nothing. */
void hvmem__domain_hold(struct hvmem_domain *domain, hvmem_mfn mfn, hvmem_u64 count,
                        const struct hvmem__tally *tally);
/* As much of that as this says is paid. */
void hvmem__domain_release(struct hvmem_domain *domain, const struct hvmem__tally *tally);
/* A block's record changed from `from` to `to`; to 0: the block has left the domain. NULL: nothing. */
void hvmem__domain_changed(struct hvmem_domain *domain, hvmem__record from, hvmem__record to);

/*
 * A block of the domain was split into blocks, of which `owing` frames have debts and `untouched` are
 * mapped untouched. NULL: nothing.
 */
void hvmem__domain_split(struct hvmem_domain *domain, hvmem__record from, hvmem_u64 owing,
                         hvmem_u64 untouched);

/* The domain owes these as a whole. */
void hvmem__domain_owe(struct hvmem_domain *domain, hvmem_u32 owed);
/* Whether any domain owes something as a whole, or has an operation open: not in the tables. */
int hvmem__domains_pending(struct hvmem_heap *heap);
/* Guest frames [gfn, gfn + n) are to be cleaned at start. */
void hvmem__domain_dirty(struct hvmem_domain *domain, hvmem_gfn gfn, hvmem_u64 n);

/*
 * Open an operation of `kind`, or go on with the one that the cursor names. E_BUSY: another one is open
 * or this one is running; E_STALE. Left again with the cursor as it must be next time: zero if `over`.
 */
hvmem_status hvmem__domain_open(struct hvmem_domain *domain, hvmem_u32 kind,
                                struct hvmem_cursor *cursor, int *fresh);
/* Enter the open operation without its cursor. E_PHASE: another one or none; E_BUSY: it is running. */
hvmem_status hvmem__domain_retake(struct hvmem_domain *domain, hvmem_u32 kind);
void hvmem__domain_close(struct hvmem_domain *domain, struct hvmem_cursor *cursor, int over);

struct hvmem__budget;

/*
 * Clean and invalidate guest frames [*gfn, end), from byte *inside of what is mapped at *gfn on.
 * HVMEM_AGAIN: the budget says stop. What ops.lookup returned, E_UNSUPPORTED, E_HOST.
 */
hvmem_status hvmem__clean_guest(struct hvmem_domain *domain, hvmem_gfn *gfn, hvmem_gfn end,
                                hvmem_u64 *inside, struct hvmem__budget *budget);

/* Guest frames (4 KiB) in one frame of the heap, as a shift. */
HVMEM_INLINE hvmem_u32 hvmem__gfn_shift(const struct hvmem_heap *heap)
{
    return heap->page_shift - 12;
}

/* Whether [gfn, gfn + n) is a range of guest frames. */
#define HVMEM__GFN_BITS (HVMEM_MADDR_BITS - 12)
HVMEM_INLINE int hvmem__gfn_range(hvmem_gfn gfn, hvmem_u64 n)
{
    return n && gfn < (hvmem_u64)1 << HVMEM__GFN_BITS &&
           n <= ((hvmem_u64)1 << HVMEM__GFN_BITS) - gfn;
}

#endif
