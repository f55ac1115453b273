/* SPDX-License-Identifier: BSD-2-Clause */
/* pcpu.c: sections, bias tokens, refill and drain of the per-CPU caches. */
#include "pcpu.h"

#include "arena.h"
#include "claim.h"
#include "take.h"
#include "testpoint.h"

/* Work a lock section of a drain does before it lets others in, in frames given back. */
#define DRAIN_STEPS 4u
/* Blocks one refill takes. */
#define REFILL0 32u
#define REFILL1 4u

hvmem_size hvmem__pcpu_tokens_bytes(void)
{
    return HVMEM__TOKENS * sizeof(hvmem_u32);
}

/* What `given` holds while there is no token: the bias of no block. */
#define NEVER ((hvmem__record)0xfffeu << 48)
HVMEM_STATIC_ASSERT(HVMEM__TOKENS <= 0xfffeu && HVMEM__BIAS_MIXED != 0xfffeu, never_is_no_bias);

/* ---- tokens --------------------------------------------------------------------------------- */

/* Set the token and the records that follow from it. Inside the section, no hot frame. */
static void set_token(struct hvmem__pcpu *pc, hvmem_u32 token)
{
    hvmem_u32 i;

    pc->token = token;
    for (i = 0; i < HVMEM__MAGS; i++) {
        hvmem_u32 order = i ? HVMEM__MAG_ORDER1 : 0;
        hvmem__record given = hvmem__rec_make(order, HVMEM_BLOCK_ALLOCATED, 0);

        pc->mag[i].cached = hvmem__rec_make(order, HVMEM_BLOCK_CACHED, 0);
        pc->mag[i].given = hvmem__rec_with_bias(given, token);
    }
    pc->fast.given = token ? pc->mag[0].given : NEVER;
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

/* Blocks handed out so far are nobody's any more. Inside the section. */
static void drop_token(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    hvmem__pcpu_spill(heap, pc);
    if (pc->token)
        hvmem__store_release(&heap->token_cpu[pc->token], HVMEM__NO_CPU);
    set_token(pc, 0);
}

void hvmem__unbias(struct hvmem_heap *heap, hvmem__record record)
{
    hvmem_u32 token = hvmem__rec_bias(record), cpu;
    struct hvmem__section s;

    if (!token || token >= HVMEM__TOKENS)
        return;
    cpu = hvmem__load_acquire(&heap->token_cpu[token]);
    if (cpu == HVMEM__NO_CPU)
        return;
    hvmem__section_enter_other(heap, &s, cpu);
    if (s.pc->token == token) {
        drop_token(heap, s.pc);
        if (s.pc->revocations < 16)
            s.pc->revocations++;
        s.pc->rest = 1u << s.pc->revocations;
    }
    hvmem__section_leave(heap, &s);
}

/* ---- sections ------------------------------------------------------------------------------- */

/* Take the gate of a cache. Sections of its CPU are kept out by `closed` or by the lock. */
static void pass_gate(struct hvmem_heap *heap, struct hvmem__section *s, hvmem_u32 how)
{
    s->lock_state = hvmem__lock(&heap->host, &s->pc->gate, HVMEM__RANK_CACHE);
    s->gated = how;
}

void hvmem__section_enter(struct hvmem_heap *heap, struct hvmem__section *s)
{
    s->pc = hvmem__pcpu_own(heap, &s->pin);
    s->gated = HVMEM__GATED_NOT;
    if (!hvmem__section_begin(s->pc)) {
        hvmem__section_end(s->pc);
        pass_gate(heap, s, HVMEM__GATED_OWN);
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

void hvmem__section_enter_other(struct hvmem_heap *heap, struct hvmem__section *s, hvmem_cpu cpu)
{
    s->pc = &heap->pcpu[cpu];
    s->pin = 0;
    if (!heap->host.smp) {
        s->gated = HVMEM__GATED_NOBODY;
        return;
    }
    __atomic_fetch_add(&s->pc->fast.closed, 1, __ATOMIC_SEQ_CST);
    if (!s->pc->forced && hvmem__this_cpu(&heap->host) != cpu)
        heap->host.ops.barrier_cpu(heap->host.ctx, cpu);
    pass_gate(heap, s, HVMEM__GATED_OTHER);
    while (hvmem__load_acquire(&s->pc->fast.busy))
        hvmem__relax(&heap->host);
}

hvmem_node hvmem__pcpu_node(const struct hvmem_heap *heap, const struct hvmem__pcpu *pc)
{
    hvmem_u64 nodes = hvmem__load(&heap->node_mask);
    hvmem_node home = heap->cpu_node[pc - heap->pcpu];

    return nodes ? hvmem__nearest(heap, home, nodes) : home;
}

/* ---- give back ------------------------------------------------------------------------------ */

/*
 * How many single frames at the front of a batch make one block, freed upwards or downwards: a power
 * of two, and the block's first frame. All owe nothing and lie in bank b.
 */
static hvmem_u32 block_at_front(const struct hvmem_heap *heap, const struct hvmem__bank *b,
                                const hvmem_mfn *blocks, hvmem_u32 count, hvmem_mfn *first)
{
    const hvmem__record plain = hvmem__rec_make(0, HVMEM_BLOCK_CACHED, 0);
    hvmem_u64 step = count > 1 && blocks[1] < blocks[0] ? ~(hvmem_u64)0 : 1;
    hvmem_u32 n = 0, order, most;

    while (n < count && blocks[n] == blocks[0] + n * step && hvmem__bank_holds(b, blocks[n]) &&
           hvmem__load(hvmem__record_at(b, blocks[n])) == plain)
        n++;
    *first = blocks[0];
    if (n < 2)
        return 1;
    /* The largest aligned block: going down its last frame comes first. */
    most = hvmem__lowest((step == 1 ? blocks[0] : blocks[0] + 1) | (hvmem_u64)1 << 32);
    order = hvmem__highest(n);
    order = order < most ? order : most;
    order = order < heap->max_order ? order : heap->max_order;
    if (step != 1)
        *first = blocks[0] + 1 - ((hvmem_u64)1 << order);
    return 1u << order;
}

/* Give back the front of a batch as one block; how many of its frames that were. Arena lock held. */
static hvmem_u32 give_front(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__bank *b, const hvmem_mfn *blocks, hvmem_u32 count)
{
    hvmem__record record = hvmem__load(hvmem__record_at(b, blocks[0]));
    hvmem_mfn first = blocks[0];
    hvmem_u32 n = 1;

    if (hvmem__rec_order(record) == 0)
        n = block_at_front(heap, b, blocks, count, &first);
    if (n > 1)
        hvmem__return_frames(heap, arena, b, first, hvmem__lowest(n));
    else
        hvmem__return_block(heap, arena, b, blocks[0], record);
    return n;
}

/*
 * Give blocks back to their arenas: one lock a section, a section ends after DRAIN_STEPS blocks or
 * where the arena changes; neighbours among single frames go as one block. Their records say CACHED.
 * Inside the section.
 */
static void give_back(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 count)
{
    hvmem_u32 i = 0;

    while (i < count) {
        struct hvmem__bank *b = hvmem__bank_of(heap, blocks[i]);
        struct hvmem__arena *arena = hvmem__arena_of(heap, b);
        hvmem_u64 state = hvmem__lock_arena(heap, arena);
        hvmem_u32 steps = 0;

        do {
            i += give_front(heap, arena, b, blocks + i, count - i);
            steps++;
        } while (i < count && steps < DRAIN_STEPS &&
                 (b = hvmem__arena_bank(heap, arena, b, blocks[i])) != HVMEM_NULL);
        hvmem__unlock_arena(heap, arena, state);
    }
}

static void flush_out(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    hvmem_u32 count = pc->out_count;

    give_back(heap, pc->out, count);
    hvmem__store(&pc->out_count, 0);
}

/* Give back the oldest `count` blocks of a magazine. Inside the section. */
static void shed(struct hvmem_heap *heap, struct hvmem__mag *mag, hvmem_u32 count)
{
    hvmem_u32 i;

    give_back(heap, mag->slot, count);
    for (i = count; i < mag->count; i++)
        hvmem__store(&mag->slot[i - count], mag->slot[i]);
    hvmem__store(&mag->count, mag->count - count);
}

void hvmem__pcpu_spill(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    struct hvmem__mag *mag = &pc->mag[0];
    hvmem_mfn hot = hvmem__load(&pc->fast.hot);

    if (hot == HVMEM_FAST_NONE)
        return;
    if (hvmem__unlikely(!mag->capacity)) {
        give_back(heap, &hot, 1);
        hvmem__store(&pc->fast.hot, HVMEM_FAST_NONE);
        return;
    }
    if (mag->count == mag->capacity)
        shed(heap, mag, mag->capacity / 2);
    hvmem__store(&mag->slot[mag->count], hot);
    hvmem__store(&mag->count, mag->count + 1);
    hvmem__store(&pc->fast.hot, HVMEM_FAST_NONE);
}

void hvmem__pcpu_put(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__bank *b,
                     hvmem_mfn mfn, hvmem__record record)
{
    struct hvmem__mag *mag = hvmem__mag_of(pc, hvmem__rec_order(record));

    if (hvmem__unlikely(hvmem__load(&b->table->clean)))
        hvmem__store(&b->table->clean, 0);
    if (hvmem__unlikely(!mag->capacity)) {
        give_back(heap, &mfn, 1);
        return;
    }
    if (b->node != hvmem__pcpu_node(heap, pc) || hvmem__rec_owed(record)) {
        hvmem__store(&pc->out[pc->out_count], mfn);
        hvmem__store(&pc->out_count, pc->out_count + 1);
        if (pc->out_count == HVMEM__OUT_SLOTS)
            flush_out(heap, pc);
        return;
    }
    if (hvmem__rec_order(record) == 0)
        hvmem__pcpu_spill(heap, pc); /* older than this one */
    if (mag->count == mag->capacity)
        shed(heap, mag, mag->capacity / 2);
    hvmem__store(&mag->slot[mag->count], mfn);
    hvmem__store(&mag->count, mag->count + 1);
}

/* Let the magazines take blocks in, or no more. Inside the section. */
static void set_open(struct hvmem__pcpu *pc, int open)
{
    pc->mag[0].capacity = open ? HVMEM__MAG_SLOTS : 0;
    pc->mag[1].capacity = open ? HVMEM__MAG_SLOTS1 : 0;
}

/* ---- refill --------------------------------------------------------------------------------- */

/* Fill a magazine from the nearest node with memory. Inside the section. */
static hvmem_status refill(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__mag *mag,
                           hvmem_u32 order)
{
    hvmem_u32 want = order ? REFILL1 : REFILL0, got = 0;
    hvmem_status status;
    hvmem_u32 i;

    if (hvmem__unlikely(!mag->capacity)) {
        if (hvmem__claim_short(heap))
            return HVMEM_E_CLAIM;
        set_open(pc, 1);
    }
    if (pc->rest)
        pc->rest--;
    else if (!pc->token && !pc->forced)
        take_token(heap, pc);
    status = hvmem__take_batch(heap, hvmem__pcpu_node(heap, pc), order, mag->slot, want, &got);
    /* The lowest address goes out first. */
    for (i = 0; i < got / 2; i++) {
        hvmem_mfn other = mag->slot[i];

        hvmem__store(&mag->slot[i], mag->slot[got - 1 - i]);
        hvmem__store(&mag->slot[got - 1 - i], other);
    }
    hvmem__store(&mag->count, got);
    return got ? HVMEM_OK : status;
}

/* Inside the section. */
static void remember(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__bank *b)
{
    hvmem__pcpu_spill(heap, pc);
    pc->fast.base = b->base;
    pc->fast.frames = b->frames;
    pc->fast.record = b->record;
    pc->fast.head0 = b->head.level[0];
    pc->fast.head1 = b->head.level[1];
    pc->bank = b;
}

int hvmem__pcpu_take(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order,
                     struct hvmem_domain *domain, struct hvmem__drawn *drawn, hvmem_mfn *mfn,
                     hvmem__record **record, hvmem_status *status)
{
    struct hvmem__mag *mag = hvmem__mag_of(pc, order);
    hvmem_mfn taken;

    if (!mag->count && !order)
        hvmem__pcpu_spill(heap, pc);
    if (!mag->count) {
        *status = HVMEM_TEST_POINT("refill") ? HVMEM_E_NOMEM : refill(heap, pc, mag, order);
        if (*status)
            return 0;
    }
    taken = mag->slot[mag->count - 1];
    hvmem__store(&mag->count, mag->count - 1);
    if (taken - pc->fast.base >= pc->fast.frames)
        remember(heap, pc, hvmem__bank_of(heap, taken));
    hvmem__claim_use(heap, domain, pc->bank->node, (hvmem_u64)1 << order, drawn);
    *mfn = taken;
    *record = &pc->fast.record[taken - pc->fast.base];
    HVMEM__ASSERT(&heap->host, hvmem__rec_state(hvmem__load(*record)) == HVMEM_BLOCK_CACHED);
    return 1;
}

/* ---- all caches ----------------------------------------------------------------------------- */

static int holds_any(const struct hvmem__pcpu *pc)
{
    return hvmem__load(&pc->out_count) || hvmem__load(&pc->mag[0].count) ||
           hvmem__load(&pc->mag[1].count) || hvmem__load(&pc->fast.hot) != HVMEM_FAST_NONE;
}

int hvmem__pcpu_any(const struct hvmem_heap *heap)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++)
        if (holds_any(&heap->pcpu[cpu]))
            return 1;
    return 0;
}

/* Give the last few blocks of a list back. Inside the section. */
static void shed_last(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 *count)
{
    hvmem_u32 some = *count < DRAIN_STEPS ? *count : DRAIN_STEPS;

    give_back(heap, blocks + (*count - some), some);
    hvmem__store(count, *count - some);
}

/* A few blocks of a cache, so that the gate is not held for long. Whether more are left. */
static int drain_some(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    if (!pc->mag[0].count)
        hvmem__pcpu_spill(heap, pc);
    if (pc->out_count)
        shed_last(heap, pc->out, &pc->out_count);
    else if (pc->mag[0].count)
        shed_last(heap, pc->mag[0].slot, &pc->mag[0].count);
    else
        shed_last(heap, pc->mag[1].slot, &pc->mag[1].count);
    return holds_any(pc);
}

/* Let others, the cache's own CPU among them, through the gate; `closed` stays raised. */
static void breathe(struct hvmem_heap *heap, struct hvmem__section *s)
{
    if (s->gated == HVMEM__GATED_NOBODY)
        return;
    hvmem__unlock(&heap->host, &s->pc->gate, HVMEM__RANK_CACHE, s->lock_state);
    s->lock_state = hvmem__lock(&heap->host, &s->pc->gate, HVMEM__RANK_CACHE);
}

void hvmem__pcpu_drain(struct hvmem_heap *heap, hvmem_cpu cpu)
{
    struct hvmem__pcpu *pc = &heap->pcpu[cpu];
    struct hvmem__section s;

    if (!holds_any(pc))
        return;
    hvmem__section_enter_other(heap, &s, cpu);
    while (drain_some(heap, pc))
        breathe(heap, &s);
    hvmem__section_leave(heap, &s);
}

/* Inside the section. */
static void forget_bank(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    hvmem__pcpu_spill(heap, pc);
    pc->fast.frames = 0;
    pc->bank = HVMEM_NULL;
}

void hvmem__pcpu_shut(struct hvmem_heap *heap)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        struct hvmem__section s;

        hvmem__section_enter_other(heap, &s, cpu);
        set_open(s.pc, 0);
        while (drain_some(heap, s.pc))
            breathe(heap, &s);
        forget_bank(heap, s.pc); /* or a hot frame could come in */
        hvmem__section_leave(heap, &s);
    }
}

void hvmem__pcpu_drain_all(struct hvmem_heap *heap)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++)
        hvmem__pcpu_drain(heap, cpu);
}

void hvmem__pcpu_forget_banks(struct hvmem_heap *heap)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        struct hvmem__section s;

        hvmem__store(&heap->pcpu[cpu].met, HVMEM_NULL);
        hvmem__section_enter_other(heap, &s, cpu);
        forget_bank(heap, s.pc);
        hvmem__section_leave(heap, &s);
    }
}

static hvmem_u64 cached_on(struct hvmem_heap *heap, const hvmem_mfn *slot, hvmem_u32 count,
                           hvmem_u32 order, hvmem_node node)
{
    hvmem_u64 frames = 0;
    hvmem_u32 i;

    if (node == HVMEM_NODE_ANY && order != HVMEM_ORDER_ANY)
        return (hvmem_u64)count << order;
    for (i = 0; i < count; i++) {
        const struct hvmem__bank *b = hvmem__bank_of(heap, hvmem__load(&slot[i]));

        if (b && (node == HVMEM_NODE_ANY || b->node == node))
            frames += (hvmem_u64)1 << (order == HVMEM_ORDER_ANY
                                           ? hvmem__rec_order(hvmem__load(
                                                 hvmem__record_at(b, hvmem__load(&slot[i]))))
                                           : order);
    }
    return frames;
}

hvmem_u64 hvmem__pcpu_cached(struct hvmem_heap *heap, hvmem_node node)
{
    hvmem_u64 frames = 0;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        const struct hvmem__pcpu *pc = &heap->pcpu[cpu];

        if (hvmem__load(&pc->fast.hot) != HVMEM_FAST_NONE)
            frames += cached_on(heap, &pc->fast.hot, 1, 0, node);
        frames += cached_on(heap, pc->slot0, hvmem__load(&pc->mag[0].count), 0, node);
        frames +=
            cached_on(heap, pc->slot1, hvmem__load(&pc->mag[1].count), HVMEM__MAG_ORDER1, node);
        frames += cached_on(heap, pc->out, hvmem__load(&pc->out_count), HVMEM_ORDER_ANY, node);
    }
    return frames;
}

void hvmem__pcpu_init(struct hvmem_heap *heap)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        struct hvmem__pcpu *pc = &heap->pcpu[cpu];

        memset(pc, 0, sizeof *pc);
        pc->mag[0].slot = pc->slot0;
        pc->mag[1].slot = pc->slot1;
        set_open(pc, 1);
        pc->fast.hot = HVMEM_FAST_NONE;
        set_token(pc, 0);
    }
    HVMEM__ASSERT(&heap->host, HVMEM_FAST_CACHED == hvmem__rec_make(0, HVMEM_BLOCK_CACHED, 0));
}

struct hvmem_cpu *hvmem_cpu_handle_version(struct hvmem_heap *heap, hvmem_cpu cpu,
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
            pc->forced = 1;
            pc->fast.closed++;
        }
    }
}
