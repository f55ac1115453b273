/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap on the model machine of backends/sim/machine.h, with tenants: domains that have a space, tables
 * in frames of the heap, blocks mapped there and in others' spaces, CPUs and devices that run them.
 * Each operation is what a hypervisor would do by the rules of the library; between any two
 * instructions hardware loads, writes back and fetches, and other CPUs do operations of their own.
 *
 * The oracle looks at every hand-over (nothing reaches the frames, nothing of an earlier owner is in
 * them, cached or not, as data or as code) and at every access (a tenant sees zeroes and itself).
 */
#ifndef SIM_RIG_H
#define SIM_RIG_H

#include "sim_arm64.h"
#include "test_main.h"

#include <hvmem/bank.h>
#include <hvmem/cache.h>
#include <hvmem/clock.h>
#include <hvmem/domain.h>
#include <hvmem/gather.h>
#include <hvmem/heap.h>
#include <hvmem/look.h>
#include <hvmem/populate.h>

enum {
    SIM_TENANTS = 4,
    SIM_BLOCKS = 12, /* a tenant */
    SIM_TABLES = HVMEM_SIM_PAGES / HVMEM_SIM_FANOUT,
    SIM_FRAMES = 112
};

/* Machines; 0: x86 without broadcast, one time a CPU, coherent instruction caches. */
#define SIM_BROADCAST 1u      /* arm64: TLBI, one time */
#define SIM_FLAWED    2u      /* with SIM_BROADCAST: hardware that needs the second operation */
#define SIM_NO_CLOCK  4u      /* HVMEM_CONFIG_NO_CLOCK */
#define SIM_NO_CACHE  8u      /* HVMEM_CONFIG_NO_CPU_CACHE */
#define SIM_DEVICES   16u     /* two of them */
#define SIM_FORCED    32u     /* stage 2 forces write-back, and fetches see the data cache */
#define SIM_POU       262144u /* with SIM_FORCED: they do not */
#define SIM_CACHED                                                                                 \
    524288u /* nobody bypasses the caches, so the host owes no clean; fetches do not see them */
#define SIM_QUIET 64u     /* nothing happens at points by itself */
#define SIM_ARM64 131072u /* with SIM_BROADCAST: flushes by the recording arm64 back-end */
#define SIM_FIXED 65536u  /* the same random numbers in every run */
/* Ways to be wrong: negative controls. */
#define SIM_BAD_FREE    128u  /* freed without the debt of translations */
#define SIM_BAD_FOREIGN 256u  /* a mapping in another space is forgotten */
#define SIM_BAD_TABLE   512u  /* a table is freed after a flush of leaves */
#define SIM_BAD_ID      1024u /* each incarnation of a tenant is loaded under the same id */
#define SIM_BAD_DEVICE  2048u /* the device is not told */
#define SIM_BAD_SCRUB   4096u /* zeroing does nothing */
#define SIM_BAD_QUIRK   8192u /* flawed hardware, nobody says so */

struct sim_block {
    int state; /* SIM_NONE ... */
    hvmem_mfn mfn;
    hvmem_u32 order;
    hvmem_u32 page; /* where it is mapped in its owner's space */
    int guest;      /* tenant that has it mapped as well, or -1 */
    int touched;    /* by first touch: to the library it waits for that until it is freed */
    hvmem_u32 guest_page;
};
#define SIM_NONE      0
#define SIM_BUSY      1 /* an operation on it is on its way */
#define SIM_OWED      2 /* allocated, not settled */
#define SIM_HELD      3 /* settled, mapped nowhere */
#define SIM_MAPPED    4
#define SIM_PLACED    5 /* has a place; populate is to fill it */
#define SIM_UNTOUCHED 6 /* has a place; what it holds is an earlier owner's */

struct sim_device {
    struct hvmem_notifier notifier;
    struct sim_rig *rig;
    hvmem_u32 number;
};

struct sim_tenant {
    struct hvmem_domain *domain; /* NULL: there is none */
    void *memory;
    struct hvmem_space *handle;
    void *space_memory;
    struct hvmem_mapping mapping;
    struct sim_device device[2];
    int busy;
    int open; /* calls of the domain that are under way */
    struct sim_rig *rig;
    int running;
    int dying;
    struct hvmem_sim_space space;
    struct sim_block block[SIM_BLOCKS];
    signed char at[HVMEM_SIM_PAGES]; /* what is mapped at a page: 1 own, 2 another's, 0 nothing */
};

/* What was done of what must occur. */
struct sim_done {
    uint64_t torn_blocks;  /* mapped blocks of running tenants that teardown found and freed */
    uint64_t torn_foreign; /* of them mapped elsewhere as well */
    uint64_t scrubbed;     /* frames zeroed by idle CPUs */
    uint64_t untouched, touched;
    uint64_t lazy;           /* CPUs that keep a space without using it */
    uint64_t lazy_again;     /* of them used it again */
    uint64_t tables_of_lazy; /* freed at once while such a CPU had them loaded */
};

struct sim_rig {
    struct hvmem_heap *heap;
    struct hvmem_sim_machine m;
    struct sim_arm64 arm64;
    struct test_rng rng;
    unsigned flags;
    unsigned cpus;
    unsigned depth;
    unsigned masked; /* CPUs whose interrupts are off: nobody else gets a turn */
    struct hvmem_ident *ident;
    struct sim_tenant tenant[SIM_TENANTS];
    int loaded[HVMEM_SIM_CPUS + 8]; /* tenant that a CPU or device runs, or -1 */
    unsigned char acting[HVMEM_SIM_CPUS];
    uint64_t steps, handed, accesses, started, ended; /* what was done */
    uint64_t populated;                               /* blocks */
    struct sim_done done;
    hvmem_status (*zero)(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes);
    unsigned scrubbing; /* depth of an idle scrub under way + 1 */
    uint64_t stale;     /* ways to reach frames that were handed over */
    uint64_t leaked;    /* words of another owner that were seen */
    const char *broken; /* a call did not answer as it must */
    void *memory[4];
};

/* `cpus` CPUs, online all. */
void sim_rig_begin(struct sim_rig *rig, unsigned flags, unsigned cpus, uint64_t stream);
/* Everything is given back and audited. */
void sim_rig_end(struct sim_rig *rig);
/* At least that many random operations, those between instructions included; stops when wrong. */
void sim_rig_run(struct sim_rig *rig, uint64_t steps);
/* Whether the oracle found anything. */
int sim_rig_wrong(const struct sim_rig *rig);

/* ---- spaces (sim_space.c) ---- */

void sim_ident_begin(struct sim_rig *rig, const struct hvmem_host_ops *host);
void sim_space_create(struct sim_rig *rig, int tenant, hvmem_mfn root);
void sim_mapping_end(struct sim_rig *rig, int tenant);
void sim_space_destroy(struct sim_rig *rig, int tenant);
/* Pages of a tenant's space are forgotten at once; flags as of a range. */
void sim_shoot(struct sim_rig *rig, int tenant, hvmem_u32 page, hvmem_u32 pages, hvmem_u32 flags);

/* ---- operations, by CPU `cpu`; 0 or the status of the library call that refused ---- */

hvmem_cpu sim_act(struct sim_rig *rig, hvmem_cpu cpu);
void sim_leave(struct sim_rig *rig, hvmem_cpu before);
/* Whether a call in steps has more to do: on whatever CPU. */
int sim_goes_on(struct sim_rig *rig, hvmem_status status);
void sim_broken(struct sim_rig *rig, const char *what);

/* Tenants; ended by hand, or by hvmem_domain_teardown, which asks for unmap_all (sim_tenant.c). */
hvmem_status sim_create(struct sim_rig *rig, int tenant);
hvmem_status sim_start(struct sim_rig *rig, int tenant);
void sim_destroy(struct sim_rig *rig, int tenant);
void sim_teardown(struct sim_rig *rig, int tenant);
hvmem_status sim_unmap_all(void *ctx, struct hvmem_cursor *cursor);
/* Allocate a block with HVMEM_REQ_* flags; settle it; map it; map it elsewhere too; take it back. */
hvmem_status sim_alloc(struct sim_rig *rig, int tenant, int block, hvmem_u32 order,
                       hvmem_u32 flags);
/* Blocks for up to 4 places at once, by hvmem_domain_populate in steps (sim_populate.c). */
void sim_populate(struct sim_rig *rig, int tenant);
/* A vCPU's first access to a block: paid for by the host, then let in. */
void sim_touch(struct sim_rig *rig, int tenant, int block);
/* A block that is not mapped gives its place up. */
void sim_leave_place(struct sim_rig *rig, int tenant, const struct sim_block *b);
/* Give the tenant's domain its tables. */
void sim_attach(struct sim_rig *rig, int tenant);
void sim_settle(struct sim_rig *rig, int tenant, int block);
void sim_map_block(struct sim_rig *rig, int tenant, int block);
void sim_share(struct sim_rig *rig, int tenant, int block, int guest);
void sim_give_back(struct sim_rig *rig, int tenant, int block, int at_once);
void sim_drop_table(struct sim_rig *rig, int tenant, hvmem_u32 slot, int at_once);

/* An idle CPU zeroes free memory. */
void sim_scrub(struct sim_rig *rig);
/* A frame of the host's own for a table; devices forget everything. */
hvmem_status sim_table_frame(struct sim_rig *rig, hvmem_mfn *mfn);
void sim_tell_devices(struct sim_rig *rig);

void sim_switch(struct sim_rig *rig, hvmem_u32 row, int tenant, int flush);
/* The CPU keeps its space loaded and uses it no more, until the next switch. */
void sim_lazy(struct sim_rig *rig, hvmem_cpu cpu);
void sim_flush_all(struct sim_rig *rig, hvmem_u32 flags);
void sim_offline(struct sim_rig *rig, hvmem_cpu cpu);
void sim_online(struct sim_rig *rig, hvmem_cpu cpu);
/* A CPU or device uses a page of what it runs. */
void sim_access(struct sim_rig *rig, hvmem_u32 row);
/* Look at frames that are about to be used; as code too, or as data only. */
void sim_handed_over(struct sim_rig *rig, hvmem_mfn mfn, hvmem_u64 frames);
void sim_handed_over_data(struct sim_rig *rig, hvmem_mfn mfn, hvmem_u64 frames);
/* Room in a tenant's space, with its table: the first page, or SIM_NO_ROOM; pages of a block. */
#define SIM_NO_ROOM HVMEM_SIM_PAGES
hvmem_u32 sim_room(struct sim_rig *rig, int tenant, hvmem_u32 order);
void sim_set_pages(struct sim_rig *rig, int tenant, hvmem_u32 page, hvmem_mfn mfn, hvmem_u32 order,
                   int kind);

#endif
