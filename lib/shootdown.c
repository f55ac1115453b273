/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shootdown.c: a change of the tables reaches the CPUs (by one broadcast batch, or by asking those that
 * run the space) and then the devices.
 */
#include "shootdown.h"

#include "backendcall.h"
#include "flush.h"
#include "policy.h"

/* CPUs for which a set fits on the stack without a thought. */
#define FEW_CPUS 1024u

/* What is to be forgotten, and how far that has come. */
struct shot {
    struct hvmem_mapping *mapping;
    struct hvmem_tlb_flush flush; /* as decided; scope and tag still open */
    hvmem_u32 flags;
    hvmem_u64 change; /* number of the change, where CPUs are asked */
    hvmem_u32 failed; /* a CPU could not; atomic */
};

/* All that the space may have cached: with global entries that is more than its tag names. */
static void widen(struct shot *shot)
{
    shot->flush.what = shot->flags & HVMEM__SHOOT_GLOBAL ? HVMEM_FLUSH_ALL : HVMEM_FLUSH_SPACE;
    shot->flush.ranges = HVMEM_NULL;
    shot->flush.count = 0;
    shot->flush.flags = 0;
}

/* By address, or the whole space: the policy knows. */
static void decide(struct shot *shot, const struct hvmem_tlb_range *ranges, hvmem_u32 count)
{
    const struct hvmem_mapping *mapping = shot->mapping;
    const struct hvmem_space *space = mapping->space;
    struct hvmem_policy_choice choice;

    memset(&shot->flush, 0, sizeof shot->flush);
    shot->flush.size = sizeof shot->flush;
    shot->flush.what = HVMEM_FLUSH_RANGES;
    shot->flush.scope = HVMEM_SCOPE_LOCAL;
    shot->flush.space.regime = space->regime;
    shot->flush.space.root = space->root;
    shot->flush.ranges = ranges;
    shot->flush.count = count;
    if (!count || hvmem__policy_choose(&mapping->policy, &space->ident->backend->caps, &shot->flush,
                                       &choice)) {
        widen(shot);
        return;
    }
    hvmem_policy_apply(&choice, &shot->flush);
    /* Where entries flush no other form may exist, and none is needed: being asked is enough. */
    if (shot->flush.what == HVMEM_FLUSH_ALL && !(space->ident->flags & HVMEM_IDENT_ENTRY))
        shot->flags |= HVMEM__SHOOT_GLOBAL;
    if (shot->flush.what != HVMEM_FLUSH_RANGES || !shot->flush.count)
        widen(shot);
}

/* ---- broadcast ------------------------------------------------------------------------------ */

/* One batch for all CPUs, under this tag. Ranges the back-end will not take become the space. */
static hvmem_status batch(struct shot *shot, hvmem_u32 id)
{
    struct hvmem_ident *ident = shot->mapping->space->ident;
    hvmem_u64 pin = hvmem__pin(&ident->host);
    hvmem_status status;

    shot->flush.scope = HVMEM_SCOPE_INNER;
    shot->flush.space.id = id;
    status = hvmem__backend_tlb_flush(ident->backend, &shot->flush);
    if (status && shot->flush.what == HVMEM_FLUSH_RANGES) {
        widen(shot);
        status = hvmem__backend_tlb_flush(ident->backend, &shot->flush);
    }
    hvmem__unpin(&ident->host, pin);
    return status ? HVMEM_E_HOST : HVMEM_OK;
}

/*
 * The tag must be read after the change is visible to table walkers: else a rollover in between gives
 * the space a number under which a CPU caches what is being removed. It is the first barrier of the
 * batch that makes it visible, so the tag is read again after it. If it changed, that rollover is
 * over, and any later one flushes after the change: the second batch is the last.
 */
static hvmem_status broadcast(struct shot *shot)
{
    struct hvmem_space *space = shot->mapping->space;
    hvmem_u64 word, before;
    hvmem_u32 id, turn;
    hvmem_status status;

    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    word = __atomic_load_n(&space->tag.word, __ATOMIC_SEQ_CST);
    for (turn = 0; turn < 2; turn++) {
        if (hvmem__load(&space->state) == HVMEM__SPACE_DEAD) {
            if (!(shot->flags & HVMEM__SHOOT_GLOBAL))
                return HVMEM_E_SPACE;
            widen(shot); /* its end flushed its number, which global entries do not carry */
        }
        id = hvmem__ident_number(space->ident, word);
        if (!id && shot->flush.what != HVMEM_FLUSH_ALL)
            return HVMEM_OK; /* no CPU ever ran it */
        hvmem__mapping_note(shot->mapping, &shot->mapping->stats.flushes, 1);
        (void)HVMEM_TEST_POINT("shootdown_batch");
        status = batch(shot, id);
        if (status)
            return status;
        before = word;
        word = __atomic_load_n(&space->tag.word, __ATOMIC_SEQ_CST);
        if (word == before)
            break;
    }
    return HVMEM_OK;
}

/* ---- asking --------------------------------------------------------------------------------- */

/* On a CPU that was asked. */
static HVMEM_CALLBACK void flush_asked(void *arg)
{
    struct shot *shot = arg;
    struct hvmem_space *space = shot->mapping->space;
    hvmem_cpu cpu = hvmem__this_cpu(&space->ident->host);
    hvmem_status status;

    (void)HVMEM_TEST_POINT("shootdown_asked");
    status =
        hvmem_space_flush_here(space, cpu, shot->flush.ranges, shot->flush.count, shot->change);
    if (status && shot->flush.ranges)
        status = hvmem_space_flush_here(space, cpu, HVMEM_NULL, 0, shot->change);
    if (status && status != HVMEM_E_SPACE)
        hvmem__store(&shot->failed, 1);
}

/*
 * Ask the CPUs that run the space; words: room for a private set, which nobody else sees: a CPU that
 * goes offline meanwhile is skipped by the host, and flushes before it runs a space again; one that
 * comes to the space later sees the change. The caller's own share is in the set: the host runs it
 * while the others work. If the caller is the only one nobody is asked.
 */
static hvmem_status ask(struct shot *shot, hvmem_u64 *words, hvmem_u32 word_count)
{
    struct hvmem_space *space = shot->mapping->space;
    const struct hvmem__host *host = &space->ident->host;
    hvmem_u32 flags = shot->flags & HVMEM_SHOOT_TABLES ? HVMEM_TARGETS_TABLES : 0, targets = 0;
    hvmem_u64 pin = hvmem__pin(host);
    struct hvmem_cpuset set;
    hvmem_status status;
    hvmem_cpu cpu;

    status = hvmem_space_changed(space, &shot->change);
    if (!status)
        status = hvmem_space_targets(space, flags, words, word_count, &targets);
    cpu = hvmem__this_cpu(host);
    if (!status && targets == 1 && cpu < space->ident->max_cpus &&
        (words[cpu / 64] >> (cpu % 64) & 1)) {
        flush_asked(shot);
        targets = 0;
        hvmem__mapping_note(shot->mapping, &shot->mapping->stats.cpus, 1);
        hvmem__mapping_note(shot->mapping, &shot->mapping->stats.flushes, 1);
    }
    hvmem__unpin(host, pin);
    if (!status && targets) {
        hvmem__mapping_note(shot->mapping, &shot->mapping->stats.cpus, targets);
        hvmem__mapping_note(shot->mapping, &shot->mapping->stats.flushes, 1);
        set.words = words;
        set.cpus = space->ident->max_cpus;
        set.reserved = 0;
        (void)HVMEM_TEST_POINT("shootdown_send");
        status = host->ops.call_cpus ? host->ops.call_cpus(host->ctx, &set, flush_asked, shot)
                                     : HVMEM_E_UNSUPPORTED;
    }
    if (!status && hvmem__load(&shot->failed))
        status = HVMEM_E_HOST;
    return !status || status == HVMEM_E_SPACE ? status : HVMEM_E_HOST;
}

/* Two functions, so that only machines with very many CPUs need 2 KiB of stack. */
static HVMEM_NOINLINE hvmem_status ask_few(struct shot *shot)
{
    hvmem_u64 words[FEW_CPUS / 64];

    return ask(shot, words, FEW_CPUS / 64);
}

static HVMEM_NOINLINE hvmem_status ask_many(struct shot *shot)
{
    hvmem_u64 words[(HVMEM_CPU_LIMIT + 63) / 64];

    return ask(shot, words, (HVMEM_CPU_LIMIT + 63) / 64);
}

/*
 * CPUs that do not run the space hold its global entries too, whatever they run: everything, on all
 * of them that have not flushed everything since.
 */
static hvmem_status flush_globals(struct hvmem_heap *heap)
{
    return hvmem__flush_for(heap, hvmem__load_acquire(&heap->clock.now));
}

static hvmem_status shoot_cpus(struct shot *shot)
{
    const struct hvmem_ident *ident = shot->mapping->space->ident;
    hvmem_status status;

    if (shot->flush.what != HVMEM_FLUSH_RANGES)
        hvmem__mapping_note(shot->mapping, &shot->mapping->stats.whole, 1);
    if ((ident->backend->caps.features & HVMEM_CAP_BROADCAST) &&
        !(ident->flags & HVMEM_IDENT_PER_CPU))
        return broadcast(shot);
    status = ident->max_cpus <= FEW_CPUS ? ask_few(shot) : ask_many(shot);
    if ((!status || status == HVMEM_E_SPACE) && (shot->flags & HVMEM__SHOOT_GLOBAL))
        status = flush_globals(shot->mapping->heap);
    return status;
}

/* ---- devices -------------------------------------------------------------------------------- */

/* One device; bounded by its polls. */
static hvmem_status notify(const struct hvmem__host *host, const struct hvmem_notifier *notifier,
                           const struct hvmem_tlb_range *ranges, hvmem_u32 count)
{
    hvmem_u32 polls = notifier->polls ? notifier->polls : HVMEM_NOTIFIER_POLLS;
    hvmem_u64 ticket = 0;
    hvmem_status status = notifier->invalidate(notifier->ctx, ranges, count, &ticket);

    for (; status == HVMEM_AGAIN && notifier->poll && polls; polls--) {
        hvmem__relax(host);
        status = notifier->poll(notifier->ctx, &ticket);
    }
    return status > HVMEM_OK ? HVMEM_E_TIMEOUT : status;
}

/* All devices, though one fails; the first failure. While one is called it stays linked. */
static hvmem_status shoot_devices(struct hvmem_mapping *mapping,
                                  const struct hvmem_tlb_range *ranges, hvmem_u32 count)
{
    hvmem_status status = HVMEM_OK, one;
    struct hvmem_notifier *notifier;
    hvmem_u64 state;

    if (!hvmem__load(&mapping->notifiers))
        return HVMEM_OK;
    state = hvmem__mapping_lock(mapping);
    for (notifier = mapping->notifiers; notifier; notifier = notifier->next) {
        notifier->calls++;
        hvmem__mapping_unlock(mapping, state);
        hvmem__mapping_note(mapping, &mapping->stats.notified, 1);
        one = notify(&mapping->heap->host, notifier, count ? ranges : HVMEM_NULL, count);
        status = status ? status : one;
        state = hvmem__mapping_lock(mapping);
        notifier->calls--;
    }
    hvmem__mapping_unlock(mapping, state);
    return status;
}

/* ---- both ----------------------------------------------------------------------------------- */

hvmem_status hvmem__shoot(struct hvmem_mapping *mapping, const struct hvmem_tlb_range *ranges,
                          hvmem_u32 count, hvmem_u32 flags)
{
    hvmem_u64 failures = __atomic_load_n(&mapping->failures, __ATOMIC_SEQ_CST);
    hvmem_status status, devices = HVMEM_OK;
    struct shot shot;
    int mends = 0;

    if (failures != hvmem__load(&mapping->mended)) {
        count = 0;
        flags |= HVMEM_SHOOT_TABLES;
        flags |= mapping->flags & HVMEM_MAPPING_GLOBALS ? HVMEM__SHOOT_GLOBAL : 0;
        mends = !(flags & HVMEM_SHOOT_CPUS);
    }
    shot.mapping = mapping;
    shot.flags = flags;
    shot.change = 0;
    shot.failed = 0;
    decide(&shot, ranges, count);
    status = shoot_cpus(&shot);
    if (status == HVMEM_E_SPACE)
        status = HVMEM_OK;
    (void)HVMEM_TEST_POINT("shootdown_devices");
    if (!(flags & HVMEM_SHOOT_CPUS))
        devices = shoot_devices(mapping, ranges, count);
    if (status || devices) {
        hvmem__mapping_note(mapping, &mapping->stats.failed, 1);
        hvmem__mapping_add(mapping, &mapping->failures, 1);
    } else if (mends && failures > hvmem__load(&mapping->mended)) {
        hvmem__store(&mapping->mended, failures);
    }
    return status ? status : devices;
}

/* ---- public --------------------------------------------------------------------------------- */

static hvmem_status check_range(const struct hvmem_tlb_range *range, hvmem_u32 page_shift)
{
    hvmem_u64 most = ~(hvmem_u64)0 >> page_shift;

    if (!range->pages || range->pages - 1 > most ||
        ((range->pages - 1) << page_shift) > ~(hvmem_u64)0 - range->start)
        return HVMEM_E_RANGE;
    if ((range->start & (((hvmem_u64)1 << page_shift) - 1)) ||
        (range->stride_shift && (range->stride_shift < page_shift || range->stride_shift > 47)))
        return HVMEM_E_ALIGN;
    return range->flags & ~(hvmem_u32)(HVMEM_RANGE_LEAF | HVMEM_RANGE_GLOBAL) ? HVMEM_E_ARG
                                                                              : HVMEM_OK;
}

hvmem_status hvmem_shootdown(struct hvmem_mapping *mapping, const struct hvmem_tlb_range *ranges,
                             hvmem_u32 count, hvmem_u32 flags)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i, global = 0;

    if (!hvmem__mapping_valid(mapping))
        return HVMEM_E_ARG;
    if ((count && !ranges) || (flags & ~(HVMEM_SHOOT_TABLES | HVMEM_SHOOT_CPUS)))
        status = HVMEM_E_ARG;
    for (i = 0; i < count && !status; i++) {
        status = check_range(&ranges[i], mapping->heap->backend->caps.page_shift);
        if (!status && (ranges[i].flags & HVMEM_RANGE_GLOBAL))
            global = HVMEM__SHOOT_GLOBAL;
    }
    if (!status && hvmem__load(&mapping->space->state) == HVMEM__SPACE_DEAD)
        status = HVMEM_E_SPACE;
    if (!count && (mapping->flags & HVMEM_MAPPING_GLOBALS))
        global = HVMEM__SHOOT_GLOBAL;
    if (!status)
        status = hvmem__shoot(mapping, ranges, count, flags | global);
    return status ? hvmem__refuse(mapping->heap, status, 0, HVMEM_ORDER_ANY, count) : HVMEM_OK;
}
