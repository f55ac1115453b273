/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * data.h: model of data caches, instruction caches and RAM below them, as unkind as the architectures
 * allow: a dirty line may be written back at any time or never, any line may be loaded at any time,
 * an instruction cache keeps what it fetched until it is told otherwise.
 *
 * Data caches are coherent among CPUs; a line that is dirty is so on one CPU. Memory has two images:
 * RAM (the point of coherency, what uncached accesses and devices that do not snoop see) and the point
 * of unification (what instruction fetch sees). A frame has a few lines; a line holds one word that
 * says who wrote it. What an operation with HVMEM_DC_MORE does to a line happens at once, later, or when the
 * CPU that issued it completes it; but before the line is written again, so that what was written stays
 * dirty. Used by one thread at a time.
 */
#ifndef HVMEM_SIM_DATA_H
#define HVMEM_SIM_DATA_H

#include <hvmem/backend.h>

struct hvmem_sim_data_config {
    hvmem_mfn base;
    hvmem_u64 frames;
    hvmem_u32 lines; /* a frame, a power of two up to 64 */
    hvmem_u32 cpus;
    hvmem_u64 features; /* HVMEM_CAP_ICOHERENT, _IDC, _DIC; with _FWB nothing bypasses the caches */
    hvmem_u64 seed;
};

struct hvmem_sim_line {
    hvmem_u32 ram;    /* at the point of coherency */
    hvmem_u32 pou;    /* at the point of unification */
    hvmem_u32 cached; /* in the data caches, if state is not HVMEM_SIM_ABSENT */
    hvmem_u16 state;
    hvmem_u16 holder; /* CPU in whose cache it is dirty */
    /* An operation that HVMEM_DC_MORE left open: HVMEM_SIM_OPEN, _WHOLE, its number. */
    hvmem_u16 open;
    hvmem_u16 opener; /* CPU that must complete it */
};
#define HVMEM_SIM_ABSENT 0u
#define HVMEM_SIM_CLEAN  1u
#define HVMEM_SIM_DIRTY  2u
#define HVMEM_SIM_WHOLE  0x0100u
#define HVMEM_SIM_OPEN   0x0200u

struct hvmem_sim_fetched {
    hvmem_u32 word;
    hvmem_u32 valid;
};

struct hvmem_sim_data {
    struct hvmem_sim_data_config config;
    hvmem_u64 random;
    struct hvmem_sim_line *line;       /* of each frame in turn */
    struct hvmem_sim_fetched *fetched; /* instruction caches: of CPU 0 all lines, of CPU 1, ... */
    hvmem_u64 open_lo, open_hi;        /* no line outside is open */
    hvmem_u64 zeroed, cleaned;         /* lines worked on */
    hvmem_u64 icache_lines, icache_whole;
};

/* Bytes behind the structure that init needs, 8-byte aligned. All memory holds 0 then. */
hvmem_size hvmem_sim_data_bytes(const struct hvmem_sim_data_config *config);
void hvmem_sim_data_init(struct hvmem_sim_data *data, void *memory,
                         const struct hvmem_sim_data_config *config);

/* Accesses of a CPU through the caches; instruction fetch; accesses that bypass the caches. */
void hvmem_sim_write(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_mfn mfn, hvmem_u32 line,
                     hvmem_u32 word);
hvmem_u32 hvmem_sim_read(struct hvmem_sim_data *data, hvmem_mfn mfn, hvmem_u32 line);
hvmem_u32 hvmem_sim_fetch(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_mfn mfn,
                          hvmem_u32 line);
void hvmem_sim_write_ram(struct hvmem_sim_data *data, hvmem_mfn mfn, hvmem_u32 line,
                         hvmem_u32 word);
hvmem_u32 hvmem_sim_read_ram(const struct hvmem_sim_data *data, hvmem_mfn mfn, hvmem_u32 line);

/* `count` things nobody asked for: write-backs, fills, fetches, of any line on any CPU. */
void hvmem_sim_data_stir(struct hvmem_sim_data *data, hvmem_u32 count);

/*
 * Where frame_map of the host maps a frame, and the operations of struct hvmem_backend_ops as `cpu`
 * does them, on such addresses. Errors: HVMEM_E_ARG, HVMEM_E_RANGE (outside of the frames).
 */
hvmem_uptr hvmem_sim_address(const struct hvmem_sim_data *data, hvmem_mfn mfn);
hvmem_status hvmem_sim_dcache(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_u32 op,
                              hvmem_uptr addr, hvmem_size bytes);
hvmem_status hvmem_sim_dcache_done(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_u32 op);
hvmem_status hvmem_sim_dcache_all(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_u32 op);
hvmem_status hvmem_sim_icache(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_uptr addr,
                              hvmem_size bytes);
hvmem_status hvmem_sim_icache_all(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_u32 scope);
hvmem_status hvmem_sim_zero(struct hvmem_sim_data *data, hvmem_cpu cpu, hvmem_uptr addr,
                            hvmem_size bytes);

#endif
