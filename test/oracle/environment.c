/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host and the back-end of a world. Each operation checks its rule of the contract (locks held,
 * interrupts, pins, sizes), does to the debts of the world what real hardware would do, and fails
 * when its turn has come.
 */
#include "world.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Mappings are addresses that nobody reads: this plus the machine address. */
#define MAP_WINDOW ((hvmem_uptr)1 << 60)

static _Thread_local unsigned locks_held;
static _Thread_local unsigned pins;
static _Thread_local unsigned interrupts_off;
static _Thread_local struct lines {
    hvmem_u32 op; /* without HVMEM_DC_MORE */
    hvmem_uptr addr;
    hvmem_size bytes; /* 0: none */
} open_lines;         /* which a dcache with HVMEM_DC_MORE left open */

bool world_fails(struct world *world)
{
    bool fails;

    pthread_mutex_lock(&world->guard);
    fails = world->fail_in != 0 && --world->fail_in == 0;
    world->fail_count += fails;
    pthread_mutex_unlock(&world->guard);
    return fails;
}

static void count(struct world *world, uint64_t *counter, uint64_t by)
{
    pthread_mutex_lock(&world->guard);
    *counter += by;
    pthread_mutex_unlock(&world->guard);
}

static void no_lock(struct world *world, const char *operation)
{
    if (locks_held != 0)
        world_fail(world, "%s called with %u library locks held", operation, locks_held);
}

bool world_mapped_frames(struct world *world, hvmem_uptr address, hvmem_size bytes,
                         hvmem_mfn *first, hvmem_u64 *frames)
{
    hvmem_uptr base = world->content != NULL ? (hvmem_uptr)world->content : MAP_WINDOW;
    hvmem_uptr page = (hvmem_uptr)1 << world->config.page_shift;

    if (address < base || bytes == 0)
        return false;
    *first = (address - base) >> world->config.page_shift;
    *frames = ((address - base) % page + bytes + page - 1) >> world->config.page_shift;
    if (world->content != NULL)
        *first += world->debt_base;
    return true;
}

/* Whole frames inside the mapped range have paid these debts. */
static void pay(struct world *world, hvmem_uptr address, hvmem_size bytes, hvmem_u32 paid)
{
    hvmem_mfn first;
    hvmem_u64 frames;
    hvmem_u64 i;

    if (!world_mapped_frames(world, address, bytes, &first, &frames)) {
        world_fail(world, "maintenance of %#llx, which is not a mapping",
                   (unsigned long long)address);
        return;
    }
    pthread_mutex_lock(&world->guard);
    for (i = 0; i < frames; i++) {
        hvmem_u64 at = first + i - world->debt_base;

        if (first + i >= world->debt_base && at < world->debt_frames)
            world->debt[at] &= (unsigned char)~paid;
    }
    pthread_mutex_unlock(&world->guard);
}

/* ---- host ------------------------------------------------------------------------------------ */

static hvmem_cpu host_this_cpu(void *host)
{
    (void)host;
    return world_cpu();
}

/* The calling thread has no library lock and its CPU is in no section: another CPU gets its turn. */
static void between(struct world *world)
{
    if (world->between != NULL && locks_held == 0 && pins == 0)
        world->between(world);
}

static hvmem_u64 host_pin(void *host)
{
    between(host);
    if (pins++ != 0)
        world_fail(host, "pins nest");
    return 0x70696e00u + world_cpu();
}

static void host_unpin(void *host, hvmem_u64 state)
{
    if (pins-- != 1)
        world_fail(host, "unpin without pin");
    if (state != 0x70696e00u + world_cpu())
        world_fail(host, "unpin got %#llx, not what pin returned", (unsigned long long)state);
    between(host);
}

static void nothing_open(struct world *world, const char *operation)
{
    if (open_lines.bytes != 0)
        world_fail(world, "%s with lines of %#llx left open", operation,
                   (unsigned long long)open_lines.addr);
    open_lines.bytes = 0;
}

static void host_relax(void *host)
{
    struct world *world = host;

    nothing_open(world, "relax");
    if (world->relaxing != NULL)
        world->relaxing(world);
    sched_yield();
}

static hvmem_u64 host_irq_save(void *host)
{
    struct world *world = host;

    if (world->config.lock_regime != HVMEM_LOCK_IRQSAVE)
        world_fail(world, "interrupts touched in a regime that leaves them alone");
    return 0x69727100u + interrupts_off++;
}

static void host_irq_restore(void *host, hvmem_u64 state)
{
    if (interrupts_off == 0 || state != 0x69727100u + --interrupts_off)
        world_fail(host, "irq_restore got %#llx, not what irq_save returned",
                   (unsigned long long)state);
}

static void host_lock(void *host, struct hvmem_lock *lock)
{
    struct world *world = host;

    between(world);
    if (!world->smp && world->config.lock_regime == HVMEM_LOCK_CALLER)
        world_fail(world, "lock taken where the caller serialises");
    if (world->config.lock_regime == HVMEM_LOCK_IRQSAVE && interrupts_off == 0)
        world_fail(world, "lock taken with interrupts on");
    while (__atomic_exchange_n(&lock->next, 1, __ATOMIC_ACQUIRE) != 0)
        sched_yield();
    locks_held++;
}

static void host_unlock(void *host, struct hvmem_lock *lock)
{
    if (locks_held == 0)
        world_fail(host, "unlock without lock");
    else
        locks_held--;
    __atomic_store_n(&lock->next, 0, __ATOMIC_RELEASE);
    between(host);
}

static hvmem_status host_barrier_cpu(void *host, hvmem_cpu cpu)
{
    struct world *world = host;

    if (cpu >= world->config.max_cpus)
        world_fail(world, "barrier for CPU %u, which does not exist", cpu);
    count(world, &world->counts.barriers, 1);
    if (world_fails(world))
        return HVMEM_E_HOST;
    if (world->barrier != NULL && world->barrier(world, cpu) != HVMEM_OK)
        return HVMEM_E_HOST;
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return HVMEM_OK;
}

/* In a single thread: plays each CPU in turn. Threads of the tests are not interrupted either. */
static hvmem_status host_call_cpus(void *host, const struct hvmem_cpuset *cpus,
                                   void (*fn)(void *arg), void *arg)
{
    struct world *world = host;
    hvmem_cpu caller = world_cpu();
    hvmem_cpu cpu;

    no_lock(world, "call_cpus");
    count(world, &world->counts.calls, 1);
    if (world_fails(world))
        return HVMEM_E_HOST;
    for (cpu = 0; cpu < cpus->cpus && cpu < world->config.max_cpus; cpu++) {
        if (!(cpus->words[cpu / 64] >> (cpu % 64) & 1) || !(world->online >> cpu & 1))
            continue;
        world_set_cpu(cpu);
        fn(arg);
    }
    world_set_cpu(caller);
    return HVMEM_OK;
}

static void *host_frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    struct world *world = host;

    no_lock(world, "frame_map");
    if (mfn & ((1ull << order) - 1))
        world_fail(world, "frame_map of a misaligned block");
    if (world_fails(world))
        return NULL;
    count(world, &world->counts.mapped, 1);
    if (world->content != NULL)
        return world->content + ((mfn - world->debt_base) << world->config.page_shift);
    return (void *)(MAP_WINDOW + (mfn << world->config.page_shift));
}

static void host_frame_unmap(void *host, void *map, hvmem_order order)
{
    struct world *world = host;
    (void)map;
    (void)order;
    nothing_open(world, "frame_unmap");
    count(world, &world->counts.unmapped, 1);
}

static void host_report(void *host, hvmem_status code, hvmem_mfn mfn, hvmem_order order,
                        hvmem_u64 info)
{
    struct world *world = host;

    no_lock(world, "report");
    pthread_mutex_lock(&world->guard);
    world->counts.reports++;
    world->report = (struct world_report){code, mfn, order, info};
    pthread_mutex_unlock(&world->guard);
}

static void host_bug(void *host, const char *where)
{
    (void)host;
    printf("  bug reported by the library: %s\n", where);
    fflush(stdout);
    abort();
}

static void host_event(void *host, hvmem_u32 event, hvmem_u64 a, hvmem_u64 b)
{
    struct world *world = host;

    no_lock(world, "event");
    pthread_mutex_lock(&world->guard);
    world->events[world->counts.events++ % WORLD_MAX_EVENTS] = (struct world_event){event, a, b};
    pthread_mutex_unlock(&world->guard);
}

static hvmem_status host_settle(void *host, hvmem_mfn mfn, hvmem_order order, hvmem_u32 owed)
{
    const hvmem_u32 kinds = HVMEM_OWES_HOST0 | HVMEM_OWES_HOST1 | HVMEM_OWES_HOST2;
    struct world *world = host;
    hvmem_u64 i;

    no_lock(world, "settle");
    if (owed == 0 || (owed & ~kinds))
        world_fail(world, "settle asked for %#x", owed);
    if (world_owed(world, mfn, 1ull << order) & HVMEM_OWES_TLB)
        world_fail(world, "settle of frame %#llx before its TLB work", (unsigned long long)mfn);
    if (world_fails(world))
        return HVMEM_E_HOST;
    pthread_mutex_lock(&world->guard);
    world->counts.settled += 1ull << order;
    for (i = 0; i < 1ull << order; i++)
        if (mfn + i >= world->debt_base && mfn + i - world->debt_base < world->debt_frames)
            world->debt[mfn + i - world->debt_base] &= (unsigned char)~owed;
    pthread_mutex_unlock(&world->guard);
    return HVMEM_OK;
}

static hvmem_u32 host_yield_wanted(void *host)
{
    struct world *world = host;

    no_lock(world, "yield_wanted");
    world->yields_asked++;
    return world->yields != 0 && world->yields_asked % world->yields == 0;
}

void world_host_ops(struct world *world)
{
    struct hvmem_host_ops *ops = &world->host;

    memset(ops, 0, sizeof *ops);
    ops->size = sizeof *ops;
    ops->this_cpu = host_this_cpu;
    ops->pin = host_pin;
    ops->unpin = host_unpin;
    ops->relax = host_relax;
    ops->irq_save = host_irq_save;
    ops->irq_restore = host_irq_restore;
    if (world->flags & WORLD_HOST_LOCK) {
        ops->lock = host_lock;
        ops->unlock = host_unlock;
    }
    if (world->flags & WORLD_BARRIER) {
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
        ops->barrier_cpu = host_barrier_cpu;
    }
    ops->call_cpus = host_call_cpus;
    if (!(world->flags & WORLD_NO_MAP)) {
        ops->frame_map = host_frame_map;
        ops->frame_unmap = host_frame_unmap;
    }
    ops->report = host_report;
    ops->bug = host_bug;
    ops->event = host_event;
    ops->yield_wanted = host_yield_wanted;
    if (!(world->flags & WORLD_NO_SETTLE))
        ops->settle = host_settle;
}

/* ---- back-end -------------------------------------------------------------------------------- */

static hvmem_status backend_tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct world *world = be->ctx;
    uint64_t forget = flush->scope == HVMEM_SCOPE_LOCAL ? 1ull << world_cpu() : ~0ull;
    hvmem_u64 i;

    no_lock(world, "tlb_flush");
    if (flush->size != sizeof *flush)
        world_fail(world, "tlb_flush without its size");
    if (flush->scope != HVMEM_SCOPE_LOCAL && !(be->caps.features & HVMEM_CAP_BROADCAST))
        world_fail(world, "broadcast asked of a back-end that has none");
    if (world_fails(world))
        return HVMEM_E_HOST;
    pthread_mutex_lock(&world->guard);
    world->counts.tlb++;
    if (flush->what == HVMEM_FLUSH_ALL) {
        world->counts.flushes++;
        for (i = 0; i < world->debt_frames; i++)
            world->stale[i] &= ~forget;
    }
    pthread_mutex_unlock(&world->guard);
    return HVMEM_OK;
}

/* What is open is paid. */
static void complete(struct world *world)
{
    if (open_lines.op == HVMEM_DC_CLEAN_INVALIDATE || open_lines.op == HVMEM_DC_CLEAN)
        pay(world, open_lines.addr, open_lines.bytes, HVMEM_OWES_DCACHE);
    open_lines.bytes = 0;
}

static hvmem_status backend_dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                                   hvmem_size bytes)
{
    struct world *world = be->ctx;

    no_lock(world, "dcache");
    if (world_fails(world))
        return HVMEM_E_HOST;
    count(world, &world->counts.dcache, bytes);
    if (open_lines.bytes == 0)
        open_lines = (struct lines){op & ~HVMEM_DC_MORE, addr, 0};
    if ((op & ~HVMEM_DC_MORE) != open_lines.op || addr != open_lines.addr + open_lines.bytes)
        world_fail(world, "lines left open by another operation, or elsewhere");
    open_lines.bytes += bytes;
    if (!(op & HVMEM_DC_MORE))
        complete(world);
    return HVMEM_OK;
}

static hvmem_status backend_dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
    struct world *world = be->ctx;

    no_lock(world, "dcache_done");
    if (open_lines.bytes == 0 || op != open_lines.op)
        world_fail(world, "no such lines to complete");
    if (world_fails(world)) {
        open_lines.bytes = 0; /* nobody is told of them */
        return HVMEM_E_HOST;
    }
    count(world, &world->counts.completed, 1);
    complete(world);
    return HVMEM_OK;
}

static hvmem_status backend_icache(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    struct world *world = be->ctx;

    no_lock(world, "icache");
    if (world_fails(world))
        return HVMEM_E_HOST;
    count(world, &world->counts.icache, 1);
    pay(world, addr, bytes, HVMEM_OWES_ICACHE);
    return HVMEM_OK;
}

static hvmem_status backend_icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    struct world *world = be->ctx;
    hvmem_u64 i;
    (void)scope;

    no_lock(world, "icache_all");
    if (world_fails(world))
        return HVMEM_E_HOST;
    pthread_mutex_lock(&world->guard);
    world->counts.icache++;
    for (i = 0; i < world->debt_frames; i++)
        world->debt[i] &= (unsigned char)~HVMEM_OWES_ICACHE;
    pthread_mutex_unlock(&world->guard);
    return HVMEM_OK;
}

static hvmem_status backend_zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    struct world *world = be->ctx;
    hvmem_mfn first;
    hvmem_u64 frames;

    no_lock(world, "zero");
    if (addr % 64 != 0 || bytes % 64 != 0)
        world_fail(world, "zero of an odd range");
    if (!world_mapped_frames(world, addr, bytes, &first, &frames))
        world_fail(world, "zero of %#llx, which is not a mapping", (unsigned long long)addr);
    else if (world_owed(world, first, frames) & HVMEM_OWES_TLB)
        world_fail(world, "frame %#llx zeroed while a CPU may reach it", (unsigned long long)first);
    if (world_fails(world))
        return HVMEM_E_HOST;
    count(world, &world->counts.zeroed, bytes);
    if (world->content != NULL)
        memset((void *)addr, 0, bytes);
    pay(world, addr, bytes, HVMEM_OWES_SCRUB);
    return HVMEM_OK;
}

void world_backend_ops(struct world *world)
{
    struct hvmem_backend_ops *ops = &world->backend_ops;
    struct hvmem_backend_caps *caps = &world->backend.caps;

    memset(ops, 0, sizeof *ops);
    ops->size = sizeof *ops;
    ops->tlb_flush = backend_tlb_flush;
    ops->dcache = backend_dcache;
    ops->dcache_done = backend_dcache_done;
    ops->icache = backend_icache;
    ops->icache_all = backend_icache_all;
    ops->zero = backend_zero;
    caps->size = sizeof *caps;
    caps->page_shift = world->config.page_shift;
    caps->features = (world->flags & WORLD_BROADCAST) ? HVMEM_CAP_BROADCAST : 0;
    caps->dline = 64;
    caps->iline = 64;
    caps->zero_block = 64;
    world->backend.ops = ops;
    world->backend.ctx = world;
}
