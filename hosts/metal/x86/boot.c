/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the first C instruction on x86-64 to the program: boot data is read and reserved, then traps,
 * paging and the local APIC are set up.
 */
#include "regs.h"

#define MAGIC_PVH       0x336ec578u
#define MAGIC_MULTIBOOT 0x2badb002u

extern uint8_t metal__image_start[], metal__image_end[];

void metal__x86_boot(uint32_t loader_magic, uint32_t info);
void metal__x86_secondary(uint32_t cpu);

/* RSDP on a 16-byte step of [from, to), 0 when it is not there. */
static uint64_t rsdp_scan(uint64_t from, uint64_t to)
{
    static const char name[8] = {'R', 'S', 'D', ' ', 'P', 'T', 'R', ' '};

    for (uint64_t at = (from + 15) & ~15ull; at + 20 <= to; at += 16) {
        const volatile char *p = metal_frame(at);
        unsigned i = 0;

        while (i < sizeof name && p[i] == name[i])
            i++;
        if (i == sizeof name)
            return at;
    }
    return 0;
}

static int acpi_by_scan(void)
{
    const uint64_t ebda = (uint64_t) * (const volatile uint16_t *)metal_frame(0x40e) << 4;
    uint64_t rsdp = 0;

    if (ebda >= 0x80000 && ebda < 0xa0000)
        rsdp = rsdp_scan(ebda, ebda + 1024);
    if (rsdp == 0)
        rsdp = rsdp_scan(0xe0000, 0x100000);
    return rsdp == 0 ? METAL_E_INVAL : metal__acpi(rsdp);
}

static void read_boot_data(uint32_t loader_magic, uint32_t info)
{
    uint64_t rsdp = 0;

    metal__reserve(0, METAL_PAGE_BYTES, "real-mode vectors");
    metal__reserve((uintptr_t)metal__image_start,
                   (uintptr_t)metal__image_end - (uintptr_t)metal__image_start, "image");
    /* A PVH loader may leave multiboot's number in EAX: the magic in memory decides. */
    if (*(const volatile uint32_t *)metal_frame(info) == MAGIC_PVH)
        rsdp = metal__pvh(info);
    else if (loader_magic == MAGIC_MULTIBOOT)
        metal__multiboot(info);
    else
        metal_panic("started by neither PVH nor multiboot");
    if ((rsdp == 0 || metal__acpi(rsdp) != METAL_OK) && acpi_by_scan() != METAL_OK)
        metal_printf("metal: no ACPI tables: one CPU, one node\n");
}

void metal__x86_boot(uint32_t loader_magic, uint32_t info)
{
    metal__percpu_setup(0);
    metal__console_setup();
    metal__traps_setup();
    read_boot_data(loader_magic, info);
    metal__apic_setup();
    metal__map_finish(metal__apic_id());
    metal__paging_finish();
    if (metal__boot.mem_count == 0)
        metal_panic("the firmware's map has no usable RAM");
    metal__start_page_choose();
    metal__clock_calibrate();
    metal_irq_enable();
    metal__main();
}

void metal__x86_secondary(uint32_t cpu)
{
    metal__percpu_setup(cpu);
    metal__apic_setup();
    metal__secondary(cpu);
}
