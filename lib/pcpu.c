/* SPDX-License-Identifier: BSD-2-Clause */
/* pcpu.c: sections, bias tokens and refill of the per-CPU caches; drain.c empties them. */
#include "pcpu.h"

#include "ageing.h"
#include "arena.h"
#include "claim.h"
#include "clock.h"
#include "credit.h"
#include "drain.h"
#include "magazine.h"
#include "take.h"
#include "testpoint.h"

/* Blocks one refill takes. */
#define REFILL0 32u
#define REFILL1 4u
/* Times a barrier is asked for before the cache is closed for good. */
#define BARRIER_TRIES 3u

/* What `given` holds while there is no token: the bias of no block. */
#define NEVER ((hvmem__record)0xfffeu << 48)
HVMEM_STATIC_ASSERT(HVMEM__TOKENS <= HVMEM__BIAS_UNTOUCHED && HVMEM__BIAS_MIXED != 0xfffeu,
                    never_is_no_bias);

/* ---- tokens --------------------------------------------------------------------------------- */

/* Set the token and the records that follow from it. Inside the section, no hot frame. */
static void set_token(struct hvmem__pcpu *pc, hvmem_u32 token)
{
    hvmem_u32 i;

    pc->token = token;
    for (i = 0; i < HVMEM__MAGS; i++) {
        hvmem__record given = hvmem__rec_make(i, HVMEM_BLOCK_ALLOCATED, 0);

        pc->mag[i].cached = hvmem__rec_make(i, HVMEM_BLOCK_CACHED, 0);
        pc->mag[i].given = hvmem__rec_with_bias(given, token);
    }
    pc->fast.given = token ? pc->mag[0].given : NEVER;
    hvmem__pcpu_name_owner(pc);
}

void hvmem__pcpu_name_owner(struct hvmem__pcpu *pc)
{
    const struct hvmem_domain *domain = pc->fast.domain;
    hvmem_u32 i;

    pc->fast.owes = domain ? &domain->owes : HVMEM_NULL;
    for (i = 0; i < 2; i++) {
        hvmem__record given = pc->mag[i * HVMEM__MAG_ORDER1].given;

        pc->fast.queue[i].given =
            pc->token && domain ? hvmem__rec_with_owner(given, domain->id) : NEVER;
    }
}

/* A fresh token for this CPU, or none if they are used up. Inside the section. */
static void take_token(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    hvmem_u32 token;

    if (heap->host.smp)
        token = __atomic_fetch_add(&heap->tokens_used, 1, __ATOMIC_RELAXED) + 1;
    else
        token = ++heap->tokens_used;
    if (token >= HVMEM__TOKENS) {
        hvmem__store(&heap->tokens_used, HVMEM__TOKENS);
        return;
    }
    hvmem__store_release(&heap->token_cpu[token], (hvmem_u32)(pc - heap->pcpu));
    set_token(pc, token);
}

void hvmem__pcpu_want_token(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    if (pc->rest)
        pc->rest--;
    else if (!pc->token && !hvmem__load(&pc->forced))
        take_token(heap, pc);
}

/* Blocks handed out so far are nobody's any more. Inside the section. */
static void drop_token(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    hvmem__pcpu_spill(heap, pc);
    hvmem__credit_unready(pc, 0);
    hvmem__credit_unready(pc, HVMEM__MAG_ORDER1);
    if (pc->token)
        hvmem__store_release(&heap->token_cpu[pc->token], HVMEM__NO_CPU);
    set_token(pc, 0);
}

hvmem_status hvmem__unbias(struct hvmem_heap *heap, hvmem__record record)
{
    hvmem_u32 token = hvmem__rec_bias(record), cpu;
    struct hvmem__section s;

    if (!token || token >= HVMEM__TOKENS)
        return HVMEM_OK;
    cpu = hvmem__load_acquire(&heap->token_cpu[token]);
    if (cpu == HVMEM__NO_CPU)
        return HVMEM_OK;
    if (hvmem__section_enter_other(heap, &s, cpu))
        return HVMEM_E_HOST;
    if (s.pc->token == token) {
        drop_token(heap, s.pc);
        if (s.pc->revocations < 16)
            s.pc->revocations++;
        s.pc->rest = 1u << s.pc->revocations;
    }
    hvmem__section_leave(heap, &s);
    return HVMEM_OK;
}

/* ---- sections ------------------------------------------------------------------------------- */

/* Take the gate of a cache. Sections of its CPU are kept out by `closed` or by the lock. */
static void pass_gate(struct hvmem_heap *heap, struct hvmem__section *s, hvmem_u32 how)
{
    s->lock_state = hvmem__lock(&heap->host, &s->pc->gate, HVMEM__RANK_CACHE);
    s->gated = how;
}

/*
 * The CPU of this section heeds `closed` for good: what was asked of its cache while that was not
 * known is done now. Inside the section, through the gate.
 */
static void obey(struct hvmem_heap *heap, struct hvmem__section *s)
{
    if (hvmem__likely(hvmem__load(&s->pc->forced) != HVMEM__FORCED_ASKED))
        return;
    hvmem__store_release(&s->pc->forced, HVMEM__FORCED_KNOWN);
    hvmem__credit_close(s->pc);
    drop_token(heap, s->pc);
    hvmem__pcpu_clear(heap, s);
}

void hvmem__section_enter(struct hvmem_heap *heap, struct hvmem__section *s)
{
    s->pc = hvmem__pcpu_own(heap, &s->pin);
    s->gated = HVMEM__GATED_NOT;
    if (!hvmem__section_begin(s->pc)) {
        hvmem__section_end(s->pc);
        pass_gate(heap, s, HVMEM__GATED_OWN);
        obey(heap, s);
    }
}

void hvmem__section_leave(struct hvmem_heap *heap, struct hvmem__section *s)
{
    if (s->gated == HVMEM__GATED_NOBODY)
        return;
    if (s->gated == HVMEM__GATED_OTHER)
        __atomic_fetch_sub(&s->pc->fast.closed, 1, __ATOMIC_RELEASE);
    if (s->gated == HVMEM__GATED_NOT)
        hvmem__section_end(s->pc);
    else
        hvmem__unlock(&heap->host, &s->pc->gate, HVMEM__RANK_CACHE, s->lock_state);
    if (s->gated != HVMEM__GATED_OTHER)
        hvmem__unpin(&heap->host, s->pin);
}

/*
 * Whether a CPU, whose cache was closed just now, is known to heed that: a section of its own begun
 * before shows in `busy`, a later one takes the gate. No lock held.
 */
static int heeds(struct hvmem_heap *heap, const struct hvmem__pcpu *pc, hvmem_cpu cpu)
{
    hvmem_u32 tries;

    if (hvmem__load_acquire(&pc->forced) == HVMEM__FORCED_KNOWN ||
        hvmem__this_cpu(&heap->host) == cpu)
        return 1;
    for (tries = 0; tries < BARRIER_TRIES; tries++)
        if (!heap->host.ops.barrier_cpu(heap->host.ctx, cpu))
            return 1;
    /* Offline it is in no call. One that joins passes a fence after it can be seen in the set. */
    return !(__atomic_load_n(&heap->online[cpu / 64], __ATOMIC_SEQ_CST) >> (cpu % 64) & 1);
}

/*
 * Nobody can tell what the CPU has seen: its cache stays closed for good. Whether the section was
 * entered after all, because the CPU came through the gate meanwhile.
 */
static int force(struct hvmem_heap *heap, struct hvmem__section *s)
{
    pass_gate(heap, s, HVMEM__GATED_OTHER);
    if (hvmem__load(&s->pc->forced) == HVMEM__FORCED_KNOWN)
        return 1;
    if (hvmem__load(&s->pc->forced) == HVMEM__FORCED_ASKED)
        __atomic_fetch_sub(&s->pc->fast.closed, 1, __ATOMIC_RELEASE);
    else
        hvmem__store(&s->pc->forced, HVMEM__FORCED_ASKED);
    hvmem__unlock(&heap->host, &s->pc->gate, HVMEM__RANK_CACHE, s->lock_state);
    return 0;
}

hvmem_status hvmem__section_enter_other(struct hvmem_heap *heap, struct hvmem__section *s,
                                        hvmem_cpu cpu)
{
    s->pc = &heap->pcpu[cpu];
    s->pin = 0;
    if (!heap->host.smp) {
        s->gated = HVMEM__GATED_NOBODY;
        return HVMEM_OK;
    }
    __atomic_fetch_add(&s->pc->fast.closed, 1, __ATOMIC_SEQ_CST);
    (void)HVMEM_TEST_POINT("section_closed");
    if (heeds(heap, s->pc, cpu))
        pass_gate(heap, s, HVMEM__GATED_OTHER);
    else if (!force(heap, s))
        return HVMEM_E_HOST;
    while (hvmem__load_acquire(&s->pc->fast.busy))
        hvmem__relax(&heap->host);
    obey(heap, s);
    return HVMEM_OK;
}

hvmem_node hvmem__pcpu_node_far(const struct hvmem_heap *heap, const struct hvmem__pcpu *pc)
{
    hvmem_u64 nodes = hvmem__load(&heap->node_mask);
    hvmem_node home = heap->cpu_node[pc - heap->pcpu];

    return nodes ? hvmem__nearest(heap, home, nodes) : home;
}

/* ---- into a cache ---------------------------------------------------------------------------- */

void hvmem__pcpu_put(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__bank *b,
                     hvmem_mfn mfn, hvmem__record record)
{
    const hvmem_u32 order = hvmem__rec_order(record), owed = hvmem__rec_owed(record);
    struct hvmem__mag *mag = &pc->mag[order];

    hvmem__table_changes(b->table);
    if (hvmem__unlikely(!mag->capacity || (owed && !hvmem__cacheable(heap, order)))) {
        hvmem__pcpu_give_back(heap, &mfn, 1);
        return;
    }
    if (hvmem__unlikely(b->node != hvmem__pcpu_node(heap, pc))) {
        hvmem__store(&pc->out[pc->out_count], mfn);
        hvmem__store(&pc->out_order[pc->out_count], (hvmem_u8)order);
        hvmem__store(&pc->out_count, pc->out_count + 1);
        if (pc->out_count == HVMEM__OUT_SLOTS)
            hvmem__pcpu_flush_out(heap, pc);
        return;
    }
    if (owed) {
        hvmem__ageing_put(heap, pc, mfn, record);
        return;
    }
    if (order == 0)
        hvmem__pcpu_spill(heap, pc); /* older than this one */
    hvmem__store(&pc->filled, pc->filled | 1u << order);
    if (mag->count == mag->capacity)
        hvmem__pcpu_shed(heap, mag, mag->capacity / 2);
    hvmem__store(&mag->slot[mag->count], mfn);
    hvmem__store(&mag->count, mag->count + 1);
}

/* Let the magazines take blocks in, or no more. Inside the section. */
void hvmem__pcpu_set_open(struct hvmem__pcpu *pc, int open)
{
    hvmem_u32 order;

    for (order = 0; order < HVMEM__MAGS; order++)
        pc->mag[order].capacity = open ? hvmem__mag_slots(order) : 0;
}

/* ---- refill --------------------------------------------------------------------------------- */

/* Fill an empty magazine from the nearest node with memory, with what `of` allows. Inside the section. */
static hvmem_status refill(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order,
                           hvmem_u32 most, enum hvmem__supply of)
{
    hvmem_u32 want = order ? REFILL1 : REFILL0, got = 0;
    struct hvmem__mag *mag = &pc->mag[order];
    struct hvmem__batch batch;
    hvmem_status status;
    hvmem_u32 i;

    if (HVMEM_TEST_POINT("refill"))
        return HVMEM_E_NOMEM;
    want = want < most ? want : most;
    if (hvmem__unlikely(!mag->capacity)) {
        if (hvmem__claim_short(heap))
            return HVMEM_E_CLAIM;
        hvmem__pcpu_set_open(pc, 1);
    }
    hvmem__pcpu_want_token(heap, pc);
    hvmem__batch_init(&batch, order, mag->cached);
    batch.node = hvmem__pcpu_node(heap, pc);
    batch.of = of;
    status = hvmem__take_batch(heap, &batch, mag->slot, want, &got);
    /* The lowest address goes out first. */
    for (i = 0; i < got / 2; i++) {
        hvmem_mfn other = mag->slot[i];

        hvmem__store(&mag->slot[i], mag->slot[got - 1 - i]);
        hvmem__store(&mag->slot[got - 1 - i], other);
    }
    hvmem__store(&mag->count, got);
    return got ? HVMEM_OK : status;
}

void hvmem__pcpu_remember(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__bank *b)
{
    hvmem__pcpu_spill(heap, pc);
    pc->fast.base = b->base;
    pc->fast.frames = b->frames;
    pc->fast.record = b->record;
    pc->fast.head0 = b->head.level[0];
    pc->fast.head1 = b->head.level[1];
    pc->bank = b;
}

/* The top of the magazine, if there is one. Inside the section. */
static int from_magazine(struct hvmem__mag *mag, hvmem_mfn *mfn)
{
    if (!mag->count)
        return 0;
    *mfn = mag->slot[mag->count - 1];
    hvmem__store(&mag->count, mag->count - 1);
    return 1;
}

/*
 * A block in the order of reuse (pcpu.h). Without anything in the queue it does not matter which
 * clean memory comes first: one look at the arenas. Inside the section.
 */
static hvmem_status pick(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order,
                         int noflush, hvmem_mfn *mfn)
{
    struct hvmem__mag *mag = &pc->mag[order];
    struct hvmem_cpu_queue *queue = hvmem__ageing_of(pc, order);
    hvmem_status status = HVMEM_E_NOMEM;
    hvmem_u32 aged, room = ~(hvmem_u32)0;

    if (!mag->count && !order)
        hvmem__pcpu_spill(heap, pc);
    if (from_magazine(mag, mfn))
        return HVMEM_OK;
    aged = hvmem__ageing_count(queue);
    if (aged) {
        if (hvmem__ageing_ripe(heap, queue)) {
            *mfn = hvmem__ageing_take(pc, order);
            return HVMEM_OK;
        }
        /* Not more than the rotation may still grow by. */
        room = (hvmem_u32)queue->mask + 1 - aged;
        if (room)
            status = refill(heap, pc, order, room, HVMEM__SUPPLY_SMALL);
    }
    if (status && (room || noflush))
        status = refill(heap, pc, order, room ? room : ~(hvmem_u32)0, HVMEM__SUPPLY_CLEAN);
    if (status && aged && !noflush) {
        *mfn = hvmem__ageing_take(pc, order);
        return HVMEM_OK;
    }
    if (status && !noflush)
        status = refill(heap, pc, order, ~(hvmem_u32)0, HVMEM__SUPPLY_ANY);
    return from_magazine(mag, mfn) ? HVMEM_OK : status;
}

int hvmem__pcpu_take(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order, int noflush,
                     hvmem_u64 nodes, struct hvmem_domain *domain, struct hvmem__drawn *drawn,
                     struct hvmem__taken *taken, hvmem_status *status)
{
    int immature;

    *status = pick(heap, pc, order, noflush, &taken->mfn);
    if (*status)
        return 0;
    if (taken->mfn - pc->fast.base >= pc->fast.frames)
        hvmem__pcpu_remember(heap, pc, hvmem__bank_of(heap, taken->mfn));
    taken->at = &pc->fast.record[taken->mfn - pc->fast.base];
    taken->record = hvmem__load_acquire(taken->at);
    HVMEM__ASSERT(&heap->host, hvmem__rec_state(taken->record) == HVMEM_BLOCK_CACHED);
    taken->flush_for = 0;
    immature = hvmem__immature(heap, taken->record);
    /* Those that owe a flush came with the last refill. */
    if (hvmem__unlikely((immature && noflush) || !(nodes >> pc->bank->node & 1))) {
        hvmem__pcpu_put(heap, pc, pc->bank, taken->mfn, taken->record);
        *status = HVMEM_E_NOMEM;
        return 0;
    }
    if (immature) {
        taken->flush_for = hvmem__stamp_time(heap, taken->record);
        if (taken->flush_for < hvmem__ageing_of(pc, order)->newest)
            taken->flush_for = hvmem__ageing_of(pc, order)->newest;
    } else if (hvmem__rec_owed(taken->record) & HVMEM__OWES_FLUSH) {
        taken->record = hvmem__flush_paid(taken->record);
    }
    hvmem__claim_use(heap, domain, pc->bank->node, (hvmem_u64)1 << order, drawn);
    return 1;
}

/* ---- birth ----------------------------------------------------------------------------------- */

void hvmem__pcpu_init(struct hvmem_heap *heap)
{
    hvmem_u32 order;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        struct hvmem__pcpu *pc = &heap->pcpu[cpu];
        hvmem_mfn *slot = pc->slot;

        memset(pc, 0, sizeof *pc);
        for (order = 0; order < HVMEM__MAGS; order++) {
            pc->mag[order].slot = slot;
            slot += hvmem__mag_slots(order);
        }
        HVMEM__ASSERT(&heap->host, slot == pc->slot + sizeof pc->slot / sizeof *slot);
        hvmem__pcpu_set_open(pc, 1);
        pc->filled = HVMEM__FILLED;
        pc->fast.hot = HVMEM_FAST_NONE;
        pc->fast.claims = &heap->claims_active;
        pc->fast.clock = &heap->clock.now;
        set_token(pc, 0);
    }
    HVMEM__ASSERT(&heap->host, HVMEM_FAST_CACHED == hvmem__rec_make(0, HVMEM_BLOCK_CACHED, 0));
}

struct hvmem_cpu_cache *hvmem_cpu_handle_version(struct hvmem_heap *heap, hvmem_cpu cpu,
                                                 hvmem_u32 version)
{
    if (!heap)
        return HVMEM_NULL;
    if (version != HVMEM_FAST_VERSION || cpu >= heap->max_cpus) {
        hvmem__refuse(heap, version != HVMEM_FAST_VERSION ? HVMEM_E_VERSION : HVMEM_E_CPU, 0,
                      HVMEM_ORDER_ANY, cpu);
        return HVMEM_NULL;
    }
    return &heap->pcpu[cpu].fast;
}

void hvmem__pcpu_smp(struct hvmem_heap *heap)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        struct hvmem__pcpu *pc = &heap->pcpu[cpu];

        drop_token(heap, pc);
        if (!heap->host.ops.barrier_cpu) {
            pc->forced = HVMEM__FORCED_KNOWN;
            pc->fast.closed++;
        }
    }
}
