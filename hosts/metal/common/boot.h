/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of the metal host: what the boot code of an architecture calls to fill struct metal_boot,
 * and what the shared code asks of the architecture. Not for programs.
 */
#ifndef METAL_BOOT_H
#define METAL_BOOT_H

#include "metal.h"

/* Kinds of a firmware memory map (numbers of PVH, multiboot and E820). */
#define METAL_MAP_RAM      1u
#define METAL_MAP_RESERVED 2u
/* Not a number of firmware: lies in RAM on purpose, is cut out without being called a contradiction. */
#define METAL_MAP_CARVED 0x100u

/* ---- shared code, called by the architecture's boot code on CPU 0 ---- */

extern struct metal_boot metal__boot;

/* numa.c. Order: map_add*, affinity_add*, cpu_add*, then map_finish. */
/* One entry of the firmware's map. Unusable ones (wrap, zero length, overlap with RAM seen before) are
 * reported with their index and counted in map_bad. */
void metal__map_add(uint64_t base, uint64_t bytes, uint32_t type);
/* The firmware says that [base, base+bytes) belongs to domain (SRAT type 1; numa-node-id). */
void metal__affinity_add(uint32_t domain, uint64_t base, uint64_t bytes);
/* A CPU the firmware offers. The booting CPU is moved to index 0 by metal__map_finish. Over
 * METAL_MAX_CPUS: counted in cpu_refused and reported. A second entry of one hw_id is ignored. */
void metal__cpu_add(uint64_t hw_id);
void metal__cpu_domain(uint64_t hw_id, uint32_t domain);
int metal__domain_exists(uint32_t domain); /* some affinity or CPU named it */
void metal__distance(uint32_t from_domain, uint32_t to_domain, uint8_t distance);
void metal__reserve(uint64_t base, uint64_t bytes, const char *what);
void metal__module_add(uint64_t base, uint64_t bytes); /* also reserves it */
/* Sorts, cuts by non-RAM entries, splits by affinity, numbers the nodes, fills missing distances, and
 * refuses CPUs beyond the argument "maxcpus": the command line is read before. */
void metal__map_finish(uint64_t boot_hw_id);

/* acpi.c. Reads MADT (CPUs), SRAT, SLIT from the RSDP at this address (XSDT or RSDT; revision 0
 * too); the tables are reserved. Returns METAL_E_INVAL when there is no valid RSDP. */
int metal__acpi(uint64_t rsdp);
/* Local APIC address and GIC addresses as found, 0 = not given. */
extern struct metal__acpi_found {
    uint64_t lapic;
    uint64_t gicd;
    uint64_t gicr;
    uint64_t gicr_bytes;
} metal__acpi_found;

/* args.c */
void metal__cmdline(const char *text); /* copies at most METAL_CMDLINE - 1 characters */

/* main.c: runs the program named by the command line and exits. Caches, traps and interrupts of
 * CPU 0 are ready. */
__attribute__((noreturn)) void metal__main(void);

/* smp.c: call from the IPI's interrupt handler (after end of interrupt). */
void metal__ipi_received(void);
/* smp.c: a CPU that came up calls it last, on its own stack, interrupts off; never returns. */
__attribute__((noreturn)) void metal__secondary(unsigned cpu);

/* ---- asked of the architecture ---- */

void metal__console_putc(char c); /* raw, no lock */
__attribute__((noreturn)) void metal__arch_exit(unsigned code);
void metal__ipi_send(
    unsigned cpu); /* raises the call interrupt there; earlier stores are visible */
/* Starts one CPU, whose entry ends in metal__secondary(cpu); returns 0 when the request was accepted. */
int metal__cpu_start(unsigned cpu);
/* Firmware data at this physical address, NULL when [maddr, maddr + bytes) is not mapped yet. */
const void *metal__firmware(uint64_t maddr, uint64_t bytes);

#endif
