/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * machine.h: a machine of 1 to 256 CPUs and some devices, whose translation tables lie in the frames
 * that a heap hands out: TLBs and pointers to tables (tlb.h), caches (data.h), interrupts to other
 * CPUs, and the oracle: at a hand-over nothing reaches the frame through an earlier owner's
 * translation, and nobody walks a frame that is no table any more.
 *
 * It implements hvmem/backend.h and the host operation call_cpus. Whatever happens between two
 * instructions is up to config.point, which is called around each of them: there hardware may load and
 * write back, and other CPUs may run. Used by one thread at a time.
 */
#ifndef HVMEM_SIM_MACHINE_H
#define HVMEM_SIM_MACHINE_H

#include <hvmem/host.h>

#include "cost.h"
#include "data.h"
#include "tlb.h"

/*
 * A space has a root of 8 entries, each a block or a table. Geometry is that of 4 KiB granules, levels 2
 * and 3, of which only a part is used: a block or a table spans 512 input pages, the first 8 of which
 * can be mapped. Operations count these, 0 .. HVMEM_SIM_PAGES - 1; hvmem_sim_input() gives input pages.
 */
#define HVMEM_SIM_FANOUT      8u
#define HVMEM_SIM_PAGES       64u
#define HVMEM_SIM_BLOCK_ORDER 3u
#define HVMEM_SIM_CPUS        256u

static inline hvmem_u64 hvmem_sim_input(hvmem_u64 page)
{
    return page / HVMEM_SIM_FANOUT << 9 | page % HVMEM_SIM_FANOUT;
}

/* What a frame is used as. */
#define HVMEM_SIM_FREE  0u
#define HVMEM_SIM_DATA  1u
#define HVMEM_SIM_TABLE 2u

struct hvmem_sim_frame {
    hvmem_u32 use;
    hvmem_u32 serial; /* TABLE: of its space; DATA: of its owner */
    hvmem_u32 turn;   /* times it was put to use */
    hvmem_u32 reserved;
    hvmem_u32 word[HVMEM_SIM_FANOUT]; /* as a walker reads it */
};

/* A space of the machine. tag.root names the root's frame and the serial; 0: none. */
struct hvmem_sim_space {
    struct hvmem_tlb_space tag;
    hvmem_u32 serial;
    hvmem_u32 reserved;
};

/* How a device answers a flush. */
#define HVMEM_SIM_ANSWERS 0u
#define HVMEM_SIM_FAILS   1u /* HVMEM_E_HOST, nothing is dropped */
#define HVMEM_SIM_SILENT  2u /* never: HVMEM_E_TIMEOUT, nothing is dropped */

struct hvmem_sim_machine_config {
    hvmem_u32 cpus;
    hvmem_u32 devices;
    hvmem_u32 slots; /* TLB entries a CPU or device */
    hvmem_u32 lines; /* cache lines a frame; 0: contents are not modelled */
    hvmem_mfn base;
    hvmem_u64 frames; /* less than 2^24 */
    hvmem_u64 features;
    hvmem_u32 flawed; /* broadcasts need HVMEM_QUIRK_REPEAT_TLBI */
    hvmem_u32 reserved;
    hvmem_u64 seed;
    void (*point)(void *ctx, const char *where); /* may be NULL */
    void *ctx;
};

struct hvmem_sim_machine {
    struct hvmem_sim_machine_config config;
    struct hvmem_backend backend; /* for the library */
    hvmem_cpu current;            /* CPU whose code runs */
    hvmem_u32 fail;               /* the next `fail` batches and calls are refused */
    hvmem_u32 answer[8];          /* of each device */
    hvmem_u64 online[HVMEM_SIM_CPUS / 64];
    hvmem_u64 lazy[HVMEM_SIM_CPUS / 64]; /* keep their space loaded without an access through it */
    hvmem_u64 random;
    hvmem_u32 serials;
    hvmem_u32 reserved;
    struct hvmem_sim_tlb tlb;
    struct hvmem_sim_data data;
    struct hvmem_sim_frame *frame;
    hvmem_u64 calls, asked;     /* call_cpus, and CPUs that ran it */
    hvmem_u64 recycled;         /* walks of frames that are no table of the space */
    struct hvmem_sim_bill bill; /* of what the library asked for */
};

hvmem_size hvmem_sim_machine_bytes(const struct hvmem_sim_machine_config *config);
/* CPU 0 is online, nothing is loaded, every frame is free. */
void hvmem_sim_machine_init(struct hvmem_sim_machine *m, void *memory,
                            const struct hvmem_sim_machine_config *config);

/* ---- frames: what the owner says ---- */

/*
 * The frames are now data of the owner `serial`; an empty table of a space; nobody's. A table that is
 * freed stays what it is until its frame is used again: walkers with a pointer to it may still read it.
 */
void hvmem_sim_use_data(struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u64 frames,
                        hvmem_u32 serial);
void hvmem_sim_use_table(struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u32 serial);
void hvmem_sim_use_none(struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u64 frames);

/*
 * The oracle: translations and pointers to tables by which a CPU that is online, with the space it has
 * loaded, or a device reaches one of the frames. 0 is what a hand-over needs. Of a lazy CPU only pointers
 * to tables count: hardware follows them, but nobody there uses a translation.
 */
hvmem_u64 hvmem_sim_reached(const struct hvmem_sim_machine *m, hvmem_mfn mfn, hvmem_u64 frames);
/*
 * What a CPU or device holds for the space it has loaded and that leads to frames which were put to
 * another use since. 0 is what the load of a space needs: entries under tags that are not loaded may be
 * older.
 */
hvmem_u64 hvmem_sim_outdated(const struct hvmem_sim_machine *m, hvmem_u32 row);

/* ---- tables: writes of the code that runs; visible to walkers at once ---- */

/* A space with an empty root in this frame, under a tag. */
void hvmem_sim_space_create(struct hvmem_sim_machine *m, struct hvmem_sim_space *space,
                            hvmem_u32 regime, hvmem_u32 id, hvmem_mfn root);
/* Entry `slot` of the root points to an empty table in this frame; the frame comes back: unhooked. */
void hvmem_sim_hook(struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                    hvmem_u32 slot, hvmem_mfn table);
hvmem_mfn hvmem_sim_unhook(struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                           hvmem_u32 slot);
/* Map a page (its table exists) or, with order HVMEM_SIM_BLOCK_ORDER, a block; take it away. */
void hvmem_sim_map(struct hvmem_sim_machine *m, const struct hvmem_sim_space *space, hvmem_u64 page,
                   hvmem_mfn mfn, hvmem_u32 order);
void hvmem_sim_unmap(struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                     hvmem_u64 page);
/* Whether a root entry points to a table. */
int hvmem_sim_has_table(const struct hvmem_sim_machine *m, const struct hvmem_sim_space *space,
                        hvmem_u32 slot);

/* ---- CPUs and devices ---- */

hvmem_mfn hvmem_sim_root(const struct hvmem_sim_machine *m, const struct hvmem_sim_space *space);
int hvmem_sim_online(const struct hvmem_sim_machine *m, hvmem_cpu cpu);
void hvmem_sim_set_online(struct hvmem_sim_machine *m, hvmem_cpu cpu, int online);
/* CPU or device (row config.cpus + n) walks this space from now on; NULL: none. */
void hvmem_sim_load(struct hvmem_sim_machine *m, hvmem_u32 row,
                    const struct hvmem_sim_space *space);
/* The CPU keeps what it has loaded, but accesses nothing through it before the next load. */
void hvmem_sim_set_lazy(struct hvmem_sim_machine *m, hvmem_cpu cpu);
int hvmem_sim_lazy(const struct hvmem_sim_machine *m, hvmem_cpu cpu);
/* Every CPU that is online and every device loads up to `each` translations. */
void hvmem_sim_speculate(struct hvmem_sim_machine *m, hvmem_u32 each);
/* One CPU or device does. */
void hvmem_sim_speculate_on(struct hvmem_sim_machine *m, hvmem_u32 row, hvmem_u32 count);

/* Host operation call_cpus: in any order, config.point before and after each CPU. */
hvmem_status hvmem_sim_call_cpus(struct hvmem_sim_machine *m, const struct hvmem_cpuset *cpus,
                                 void (*fn)(void *arg), void *arg);
/* A device is told to forget; how it answers is in `answer`. */
hvmem_status hvmem_sim_device_flush(struct hvmem_sim_machine *m, hvmem_u32 device,
                                    const struct hvmem_tlb_flush *flush);

#endif
