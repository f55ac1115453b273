/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the entry code to the program: finds the device tree, turns the MMU on, reads the machine,
 * reserves boot data, maps RAM and devices and starts the interrupt controller.
 */
#include "cpu.h"
#include "machine.h"
#include "mmu.h"

#define DTB_LIMIT (2ull << 20) /* the boot protocol of arm64 allows no larger tree */

static struct arm_machine machine;

__attribute__((noreturn)) void metal__arm_main(uint64_t dtb);

const char *metal_emulator(void)
{
    return machine.is_virtual ? "QEMU virt" : NULL;
}

/* The tree the boot loader names, else the one at the start of RAM (ELF images get no argument). */
static bool find_tree(uint64_t dtb, struct metal_fdt *tree)
{
    if (dtb != 0 && (dtb & 7) == 0 &&
        metal_fdt_open(tree, (const void *)(uintptr_t)dtb, DTB_LIMIT) == METAL_FDT_OK)
        return true;
    return metal_fdt_open(tree, metal__ram_start, DTB_LIMIT) == METAL_FDT_OK;
}

/* ACPI tables are not read here: the device tree tells everything. */
const void *metal__firmware(uint64_t maddr, uint64_t bytes)
{
    (void)maddr;
    (void)bytes;
    return NULL;
}

/*
 * "vhe=1" on the command line: EL2 hosts EL1's kind of regime (HCR_EL2.{E2H,TGE}), if this CPU can. The
 * MMU is off.
 */
static void choose_vhe(const char *bootargs)
{
    if (bootargs != NULL)
        metal__cmdline(bootargs);
    if (!metal_arg_is("vhe", "1") || current_el() != 2 ||
        (read_sysreg(id_aa64mmfr1_el1) >> 8 & 0xF) == 0)
        return;
    write_sysreg(hcr_el2, read_sysreg(hcr_el2) | HCR_E2H | HCR_TGE);
    isb();
}

static void mmu_start(const struct metal_fdt *tree)
{
    struct arm_cpu *cpu = &metal__arm_cpu[0];

    cpu->mpidr = read_sysreg(mpidr_el1) & 0xFF00FFFFFFull;
    metal__arm_mmu_init();
    if (!metal__arm_mmu_map(metal_maddr(tree->blob), tree->bytes, ARM_ATTR_RODATA))
        metal__arm_early_panic("device tree does not fit the table pool\n");
    metal__arm_cpu_prepare(0);
    metal__arm_invalidate(metal__data_start, (uint64_t)(metal__image_end - metal__data_start));
    metal__arm_mmu_on(cpu);
}

static void map_device(uint64_t base, uint64_t bytes, const char *what)
{
    if (!metal__arm_mmu_map(base, bytes, ARM_ATTR_DEVICE))
        metal_printf("metal: %s at 0x%lx cannot be mapped\n", what, (unsigned long)base);
}

static void console_start(uint64_t uart)
{
    if (uart == 0)
        return;
    map_device(uart, METAL_PAGE_BYTES, "console");
    metal__arm_console_at(uart);
    if (metal_arg_is("vhe", "1") && (current_el() != 2 || is_plain_el2()))
        metal_printf("metal: this CPU or level has no VHE\n");
}

static void gic_start(void)
{
    map_device(machine.gicd, machine.gicd_bytes, "interrupt distributor");
    for (unsigned i = 0; i < machine.gicr_count; i++)
        map_device(machine.gicr[i][0], machine.gicr[i][1], "redistributors");
    metal__arm_gic_at(machine.gicd, machine.gicr, machine.gicr_count);
    if (metal__arm_gic_start() != METAL_OK || metal__arm_gic_cpu_start() != METAL_OK)
        metal_panic("no usable GICv3");
}

/* RAM that the tables cannot hold is not used: its pieces leave the boot map. */
static void map_memory(void)
{
    struct metal_boot *boot = &metal__boot;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < boot->mem_count; i++) {
        if (metal__arm_mmu_map(boot->mem[i].base, boot->mem[i].bytes, ARM_ATTR_DATA)) {
            boot->mem[kept++] = boot->mem[i];
            continue;
        }
        boot->map_bad++;
        metal_printf("metal: RAM at 0x%lx (0x%lx bytes): no tables to map it, not used\n",
                     (unsigned long)boot->mem[i].base, (unsigned long)boot->mem[i].bytes);
    }
    boot->mem_count = kept;
}

void metal__arm_main(uint64_t dtb)
{
    struct metal_fdt tree;

    if (!find_tree(dtb, &tree))
        metal__arm_early_panic("no device tree\n");
    metal__arm_machine_early(&tree, &machine);
    choose_vhe(machine.bootargs);
    mmu_start(&tree);
    console_start(machine.uart);

    metal__boot.protocol = "fdt";
    metal__reserve(metal_maddr(metal__image_start),
                   (uint64_t)(metal__image_end - metal__image_start), "image");
    metal__reserve(metal_maddr(tree.blob), tree.bytes, "device tree");
    metal__arm_machine_read(&tree, &machine);
    if (machine.conduit != 0)
        metal__arm_psci_use(machine.conduit == 's' ? ARM_PSCI_SMC : ARM_PSCI_HVC);
    metal__map_finish(metal__arm_cpu[0].mpidr);
    map_memory();
    gic_start();
    metal_irq_enable();
    metal__main();
}
