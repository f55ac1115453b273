/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A guest's second-stage tables (arm64, 40 bits, start level 1) on memory of their own. Where no back-end
 * is given it is one that accepts everything and does nothing: for counting and timing what the library
 * itself does.
 */
#ifndef BENCH_GUEST_TABLES_H
#define BENCH_GUEST_TABLES_H

#include <hvmem/heap.h>
#include <hvmem/space.h>
#include <hvmem/track.h>

#define GUEST_GIB  0x40000u  /* frames */
#define GUEST_HOME 0x100400u /* first of GUEST_LOT frames with memory behind them */
#define GUEST_LOT  1024u

struct guest_tables {
    struct hvmem_backend be;
    struct hvmem_heap *heap;
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    struct hvmem_stage2 *s2;
    unsigned char *pool;
    void *memory[8];
    unsigned blocks;
};

/* No entry is larger than 2^largest frames. */
void guest_tables_open(struct guest_tables *rig, unsigned largest);
/* The same with a back-end of the caller's, which is copied. */
void guest_tables_open_on(struct guest_tables *rig, unsigned largest,
                          const struct hvmem_backend *backend);
void guest_tables_close(struct guest_tables *rig);
void guest_tables_map(struct guest_tables *rig, hvmem_gfn gfn, hvmem_u64 frames, hvmem_mfn mfn);
void guest_tables_arm(struct guest_tables *rig);
/* CPU 0 runs the guest: its translations may be cached. */
void guest_tables_run(struct guest_tables *rig);
/* Traps until the guest gets at the page. */
hvmem_u64 guest_tables_touch(struct guest_tables *rig, hvmem_gfn gfn);

#endif
