/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-count-traps: instructions of hvmem_stage2_fault() while access tracking is armed: each kind of fault
 * by itself, and 512 pages that the guest touches one after the other. See bench/count/run.
 */
#include "bench/common/figure.h"
#include "bench/count/section.h"
#include "bench/scenarios/guest_tables.h"

static void fault(struct guest_tables *guest, hvmem_gfn gfn)
{
    hvmem_u32 outcome = 99;
    hvmem_status status = hvmem_stage2_fault(guest->s2, gfn << 12, HVMEM_S2_W, &outcome);

    FIGURE_REQUIRE(status == HVMEM_OK && outcome == HVMEM_FAULT_ENTER);
}

int main(void)
{
    struct guest_tables guest;
    hvmem_gfn gfn;

    section_empty();
    guest_tables_open(&guest, 0);
    guest_tables_map(&guest, 0, 4096, 0x200000);
    guest_tables_arm(&guest);
    section_begin();
    fault(&guest, 0); /* the root entry: the table of 2 MiB is pushed down */
    section_end("push_tables");
    section_begin();
    fault(&guest, 0); /* the table of pages, and its first page */
    section_end("push_pages");
    section_begin();
    fault(&guest, 1);
    section_end("page");
    for (gfn = 2; gfn < 512; gfn++)
        fault(&guest, gfn);
    /* A table's worth of pages, its push-down included. */
    section_begin();
    for (; gfn < 1024; gfn++)
        fault(&guest, gfn);
    section_end("pages512");
    guest_tables_close(&guest);
    guest_tables_open(&guest, 9);
    guest_tables_map(&guest, 0, GUEST_GIB, 0);
    guest_tables_arm(&guest);
    section_begin();
    fault(&guest, 0);
    section_end("push_blocks");
    guest_tables_close(&guest);
    return 0;
}
