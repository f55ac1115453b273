/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of second-stage tables on the model: traps of a guest that touches 1 GiB while tracking is
 * armed, pages that set/way emulation cleans, and how fast a guest of the reports is unmapped.
 */
#include "guest_tables.h"

#include "bench/common/figure.h"

#include <string.h>
#include <time.h>

static double traps(unsigned largest)
{
    hvmem_u64 gfn, n = 0;
    struct guest_tables rig;

    guest_tables_open(&rig, largest);
    guest_tables_map(&rig, GUEST_GIB, GUEST_GIB, GUEST_GIB);
    guest_tables_arm(&rig);
    for (gfn = GUEST_GIB; gfn < 2 * GUEST_GIB; gfn++)
        n += guest_tables_touch(&rig, gfn);
    for (gfn = GUEST_GIB; gfn < 2 * GUEST_GIB; gfn += 63)
        FIGURE_REQUIRE(guest_tables_touch(&rig, gfn) == 0);
    guest_tables_close(&rig);
    return (double)n;
}

FIGURE(track_traps_1g, "track.traps_1g", "traps",
       "a guest touches 1 GiB mapped by one block, armed")
{
    return traps(18);
}

FIGURE(track_traps_2m, "track.traps_2m", "traps", "the same, mapped by blocks of 2 MiB")
{
    figure_comment(
        "track.traps_2m: the fault that pushes the table down also makes its block valid");
    return traps(9);
}

FIGURE(track_traps_4k, "track.traps_4k", "traps", "the same, mapped by pages of 4 KiB")
{
    figure_comment("track.traps_4k: a page each, and one for the table above the first pages' own");
    return traps(0);
}

/* Pages cleaned by set/way emulation after the guest touched `touched` of GUEST_LOT pages. */
static double cleaned(int tracked, unsigned touched)
{
    struct hvmem_track_progress progress;
    struct hvmem_cursor cursor;
    hvmem_status status;
    struct guest_tables rig;
    unsigned i;

    guest_tables_open(&rig, 0);
    guest_tables_map(&rig, 0, GUEST_LOT, GUEST_HOME);
    if (tracked)
        guest_tables_arm(&rig);
    for (i = 0; i < touched; i++)
        guest_tables_touch(&rig, i * (GUEST_LOT / touched));
    memset(&cursor, 0, sizeof cursor);
    memset(&progress, 0, sizeof progress);
    do
        status = hvmem_track_setway(rig.s2, 0, &cursor, &progress);
    while (status == HVMEM_AGAIN);
    FIGURE_REQUIRE(status == HVMEM_OK && progress.noted == progress.cleaned);
    guest_tables_close(&rig);
    return (double)progress.cleaned;
}

FIGURE(setway_before, "setway.pages_cleaned_before", "pages",
       "set/way by a guest of 1024 pages that touched 16, not tracked: all that is mapped")
{
    return cleaned(0, 16);
}

FIGURE(setway_after, "setway.pages_cleaned_after", "pages",
       "the same, tracked: what was touched since the last time")
{
    return cleaned(1, 16);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Least ns an entry of 2 MiB to unmap that many GiB in one call, flush (which costs nothing) included. */
static double ns_per_entry(hvmem_u64 gib)
{
    hvmem_u64 rounds = gib > 1 ? 10 : 400, done;
    double best = 1e18, start, t;
    struct guest_tables rig;

    guest_tables_open(&rig, 9);
    for (; rounds; rounds--) {
        guest_tables_map(&rig, 0, gib * GUEST_GIB, 0);
        start = now();
        FIGURE_REQUIRE(hvmem_stage2_unmap(rig.s2, 0, gib * GUEST_GIB, NULL, &done) == HVMEM_OK &&
                       done == gib * GUEST_GIB);
        t = (now() - start) / (double)(gib * 512);
        best = t < best ? t : best;
    }
    guest_tables_close(&rig);
    return best;
}

FIGURE(unmap_entries, "unmap.entries_per_s", "entries/s",
       "entries of 2 MiB unmapped a second, a guest of 192 GiB in one call (software part)")
{
    return 1e9 / ns_per_entry(192);
}

FIGURE(unmap_growth, "unmap.growth", "ratio",
       "time an entry to unmap a guest of 192 GiB over that of one of 1 GiB")
{
    double one = ns_per_entry(1), all = ns_per_entry(192);

    figure_comment("unmap.growth: %.1f ns an entry of 1 GiB, %.1f of 192 GiB", one, all);
    return all / one;
}
