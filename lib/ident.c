/* SPDX-License-Identifier: BSD-2-Clause */
/* Identifiers by generations: handing out, rollover, pins. Set-up is in ident_init.c. */
#include "ident.h"

#include "backendcall.h"
#include "testpoint.h"

hvmem_status hvmem__ident_refuse(struct hvmem_ident *ident, hvmem_status code)
{
    __atomic_fetch_add(&ident->refused, 1, __ATOMIC_RELAXED);
    if (code <= HVMEM_E_ARG)
        hvmem__host_report(&ident->host, code, 0, HVMEM_ORDER_ANY, 0);
    return code;
}

static hvmem_status flush_regime_of(struct hvmem_ident *ident, hvmem_u32 regime, hvmem_u32 scope)
{
    struct hvmem_tlb_flush flush;

    memset(&flush, 0, sizeof flush);
    flush.size = sizeof flush;
    flush.what = HVMEM_FLUSH_REGIME;
    flush.scope = (hvmem_u16)scope;
    flush.space.regime = regime;
    return hvmem__backend_tlb_flush(ident->backend, &flush);
}

hvmem_status hvmem__ident_flush_regime(struct hvmem_ident *ident, hvmem_u32 scope)
{
    hvmem_status status = flush_regime_of(ident, ident->regime, scope);

    if (status == HVMEM_OK && (ident->flags & HVMEM_IDENT_ROOTS) &&
        ident->regime != HVMEM_REGIME_STAGE2)
        status = flush_regime_of(ident, HVMEM_REGIME_STAGE2, scope);
    return status;
}

/* ---- the set of numbers ---------------------------------------------------------------------- */

static int test_number(const hvmem_u64 *set, hvmem_u32 number)
{
    return (int)(set[number >> 6] >> (number & 63) & 1);
}

/* Take `number` if it is free. IDENT lock held. */
static int claim_number(struct hvmem_ident *ident, hvmem_u32 number)
{
    if (number < ident->first || number > ident->last || test_number(ident->used, number))
        return 0;
    ident->used[number >> 6] |= (hvmem_u64)1 << (number & 63);
    ident->in_use++;
    return 1;
}

/* Lowest free number in [from, to], 0 if there is none. At most `words` steps. IDENT lock held. */
static hvmem_u32 find_free(const struct hvmem_ident *ident, hvmem_u32 from, hvmem_u32 to)
{
    hvmem_u32 word = from >> 6;
    hvmem_u64 free;

    if (from > to)
        return 0;
    free = ~ident->used[word] & ~(hvmem_u64)0 << (from & 63);
    while (!free) {
        if (++word > to >> 6)
            return 0;
        free = ~ident->used[word];
    }
    from = word << 6 | hvmem__lowest(free);
    return from <= to ? from : 0;
}

/* A free number, taken; 0 if this generation has none left. IDENT lock held. */
static hvmem_u32 next_number(struct hvmem_ident *ident)
{
    hvmem_u32 number;

    if (ident->in_use > ident->last - ident->first)
        return 0;
    number = find_free(ident, ident->next, ident->last);
    if (!number)
        number = find_free(ident, ident->first, ident->last);
    if (!number || !claim_number(ident, number))
        return 0;
    ident->next = number == ident->last ? ident->first : number + 1;
    return number;
}

/* ---- rollover, common numbering --------------------------------------------------------------- */

/*
 * What the CPU runs on, or last said it does, stays its own. The exchange decides against the CPU's
 * own: either it sees 0 and waits for the lock, or its new tag is what is reserved. IDENT lock held.
 */
static void reserve_cpu(struct hvmem_ident *ident, struct hvmem__ident_cpu *cpu)
{
    hvmem_u64 tag = __atomic_exchange_n(&cpu->active, (hvmem_u64)0, __ATOMIC_ACQ_REL);

    (void)HVMEM_TEST_POINT("ident_reserve");
    if (!tag)
        tag = cpu->reserved;
    (void)claim_number(ident, hvmem__ident_number(ident, tag));
    (void)claim_number(ident, hvmem__ident_number(ident, hvmem__load(&cpu->leaving_tag)));
    cpu->reserved = hvmem__ident_number(ident, tag) ? tag : 0;
}

/*
 * End the generation. The new one is published first: a CPU that still matches the old one either
 * finds its active tag gone or has it reserved. IDENT lock held.
 */
void hvmem__ident_rollover(struct hvmem_ident *ident)
{
    hvmem_u32 local = !(ident->flags & HVMEM_IDENT_BROADCAST);
    hvmem_u32 i;

    hvmem__store(&ident->generation, ident->generation + ((hvmem_u64)1 << ident->shift));
    (void)HVMEM_TEST_POINT("ident_rollover");
    memcpy(ident->used, ident->pinned, ident->words * sizeof *ident->used);
    ident->in_use = ident->pins;
    ident->next = ident->first;
    for (i = 0; i < ident->max_cpus; i++)
        reserve_cpu(ident, &ident->cpus[i]);
    /* No CPU leaves active = 0 before we release the lock: until then this is not too late. */
    if (!local && hvmem__ident_flush_regime(ident, HVMEM_SCOPE_INNER) != HVMEM_OK)
        local = 1;
    for (i = 0; local && i < ident->max_cpus; i++)
        hvmem__store(&ident->cpus[i].pending, 1);
    ident->rollovers++;
}

/*
 * If a CPU kept this tag over the rollover, carry it (in all its copies) into this generation: the
 * space runs on with one number everywhere. IDENT lock held.
 */
static int renew_reserved(struct hvmem_ident *ident, hvmem_u64 old, hvmem_u64 renewed)
{
    int found = 0;
    hvmem_u32 i;

    for (i = 0; i < ident->max_cpus; i++) {
        found |= hvmem__load(&ident->cpus[i].leaving_tag) == old;
        if (ident->cpus[i].reserved != old)
            continue;
        ident->cpus[i].reserved = renewed;
        found = 1;
    }
    return found;
}

/*
 * A word of the current generation for the owner of *tag; 0: none is free. A number that is pinned,
 * but not for this owner, was given away in a generation it slept through. IDENT lock held.
 */
static hvmem_u64 assign(struct hvmem_ident *ident, const struct hvmem__ident_tag *tag)
{
    hvmem_u64 old = tag->word;
    hvmem_u32 number = hvmem__ident_number(ident, old);

    if (number) {
        hvmem_u64 renewed = ident->generation | number;

        if (renew_reserved(ident, old, renewed) || tag->pinned || claim_number(ident, number))
            return renewed;
    }
    number = next_number(ident);
    if (!number) {
        hvmem__ident_rollover(ident);
        number = next_number(ident);
    }
    return number ? ident->generation | number : 0;
}

/* Make *tag current. IDENT lock held. */
static hvmem_status refresh(struct hvmem_ident *ident, struct hvmem__ident_tag *tag)
{
    hvmem_u64 renewed;

    if (tag->word && hvmem__ident_current(ident, tag->word))
        return HVMEM_OK;
    renewed = assign(ident, tag);
    if (!renewed)
        return HVMEM_E_NOID;
    hvmem__store(&tag->word, renewed);
    ident->assigned++;
    return HVMEM_OK;
}

HVMEM_NOINLINE hvmem_status hvmem__ident_take_slow(struct hvmem_ident *ident, hvmem_cpu cpu,
                                                   struct hvmem__ident_tag *tag)
{
    struct hvmem__ident_cpu *me = &ident->cpus[cpu];
    hvmem_u64 state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    hvmem_status status = refresh(ident, tag);

    if (status == HVMEM_OK) {
        if (hvmem__load(&me->pending)) {
            hvmem__store(&me->pending, 0);
            me->owed_all = 1;
        }
        hvmem__ident_leave_tag(ident, me, me->reserved);
        hvmem__ident_leave_tag(ident, me, hvmem__load(&me->active));
        me->reserved = 0;
        hvmem__store(&me->active, tag->word);
    }
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
    return status;
}

void hvmem__ident_drop(struct hvmem_ident *ident, hvmem_cpu cpu, int ran)
{
    struct hvmem__ident_cpu *me = &ident->cpus[cpu];
    hvmem_u64 now = hvmem__load(&me->active);
    hvmem_u64 state;

    if (ran)
        hvmem__ident_leave_tag(ident, me, now);
    if (ident->flags & HVMEM_IDENT_PER_CPU) {
        hvmem__store(&me->active, hvmem__ident_idle(ident));
        return;
    }
    /* An active tag of 0 must stay 0: it is what makes the next switch look at `pending`. */
    if (now && __atomic_compare_exchange_n(&me->active, &now, hvmem__ident_idle(ident), 0,
                                           __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    if (ran)
        hvmem__ident_leave_tag(ident, me, me->reserved);
    me->reserved = 0;
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
}

void hvmem__ident_release(struct hvmem_ident *ident, hvmem_u64 tag)
{
    hvmem_u32 number = hvmem__ident_number(ident, tag);
    hvmem_u64 state;

    if (ident->flags & HVMEM_IDENT_PER_CPU || !number)
        return;
    state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    if (hvmem__ident_current(ident, tag) && test_number(ident->used, number) &&
        !test_number(ident->pinned, number)) {
        ident->used[number >> 6] &= ~((hvmem_u64)1 << (number & 63));
        ident->in_use--;
        ident->returned++;
    }
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
}

/* ---- pins ------------------------------------------------------------------------------------ */

/*
 * Every CPU keeps a number to run on, and of many numbers half stay unpinned: so a generation hands
 * out at least that many, and generations times numbers is 2^63 hand-outs. IDENT lock held.
 */
static hvmem_u32 pin_limit(const struct hvmem_ident *ident)
{
    hvmem_u32 ids = ident->last - ident->first + 1;
    hvmem_u32 limit = ids > ident->max_cpus ? ids - ident->max_cpus : 0;

    return ids >= 256 && limit > ids / 2 ? ids / 2 : limit;
}

hvmem_status hvmem__ident_pin(struct hvmem_ident *ident, struct hvmem__ident_tag *tag)
{
    hvmem_u64 state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    hvmem_status status = HVMEM_E_NOID;
    hvmem_u32 number;

    if (ident->pins < pin_limit(ident))
        status = refresh(ident, tag);
    if (status == HVMEM_OK) {
        number = hvmem__ident_number(ident, tag->word);
        tag->pinned = 1;
        ident->pinned[number >> 6] |= (hvmem_u64)1 << (number & 63);
        ident->pins++;
    }
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
    return status;
}

void hvmem__ident_unpin(struct hvmem_ident *ident, struct hvmem__ident_tag *tag)
{
    hvmem_u64 state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    hvmem_u32 number;

    /* The number stays used in this generation; the tag is made current so that it is the owner. */
    (void)refresh(ident, tag);
    number = hvmem__ident_number(ident, tag->word);
    tag->pinned = 0;
    ident->pinned[number >> 6] &= ~((hvmem_u64)1 << (number & 63));
    ident->pins--;
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
}

void hvmem__ident_flush_all(struct hvmem_ident *ident)
{
    hvmem_u64 state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    hvmem_u32 i;

    if (ident->flags & HVMEM_IDENT_PER_CPU) {
        for (i = 0; i < ident->max_cpus; i++)
            __atomic_store_n(&ident->cpus[i].pending, 1, __ATOMIC_SEQ_CST);
    } else {
        hvmem__ident_rollover(ident);
    }
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
}

/* ---- own numbering --------------------------------------------------------------------------- */

/*
 * A new generation on this CPU. What the hardware still has loaded keeps filling its number until
 * the switch is done: the number is not handed out before the next flush. Where the entry itself
 * flushes, nothing runs between flush and switch.
 */
static void rollover_own(struct hvmem_ident *ident, struct hvmem__ident_cpu *me)
{
    me->generation += (hvmem_u64)1 << ident->shift;
    me->next = ident->first;
    me->reserved = me->leaving_tag ? me->leaving_tag : me->active;
    if (ident->flags & HVMEM_IDENT_ENTRY)
        me->reserved = 0;
    me->owed_all = 1;
    hvmem__store(&me->rollovers, me->rollovers + 1);
}

static hvmem_u32 next_own(const struct hvmem_ident *ident, struct hvmem__ident_cpu *me)
{
    hvmem_u32 kept = hvmem__ident_number(ident, me->reserved);

    if (me->next == kept)
        me->next++;
    return me->next <= hvmem__load(&ident->last) ? me->next++ : 0;
}

hvmem_status hvmem__ident_take_own(struct hvmem_ident *ident, hvmem_cpu cpu, hvmem_u64 *tag,
                                   int retire)
{
    struct hvmem__ident_cpu *me = &ident->cpus[cpu];
    hvmem_u64 old = hvmem__load(tag);
    hvmem_u32 number = 0;

    if (hvmem__load(&me->pending) && __atomic_exchange_n(&me->pending, 0, __ATOMIC_SEQ_CST))
        rollover_own(ident, me);
    if (old && !retire && !((old ^ me->generation) >> ident->shift)) {
        hvmem__ident_leave_tag(ident, me, me->active);
        hvmem__store(&me->active, old);
        return HVMEM_OK;
    }
    if (old && old == me->reserved && !retire)
        number = hvmem__ident_number(ident, old);
    if (!number)
        number = next_own(ident, me);
    if (!number) {
        rollover_own(ident, me);
        number = next_own(ident, me);
        if (!number)
            return HVMEM_E_NOID;
    }
    hvmem__ident_leave_tag(ident, me, me->active);
    hvmem__store(&me->assigned, me->assigned + 1);
    hvmem__store(tag, me->generation | number);
    hvmem__store(&me->active, me->generation | number);
    return HVMEM_OK;
}
