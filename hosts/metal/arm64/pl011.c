/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Console on a PL011 UART (DDI 0183) and the end of the image: semihosting's exit with a code, PSCI's
 * power-off where no debugger or emulator answers.
 */
#include "cpu.h"

#define PL011_DATA     0x00u
#define PL011_FLAGS    0x18u
#define PL011_FULL     (1u << 5)
#define PL011_PATIENCE 1000000u /* reads of the flags before a character is given up */

#define SEMI_WRITE0        0x04u
#define SEMI_EXIT_EXTENDED 0x20u
#define SEMI_APPLICATION   0x20026u /* "the application ended": the code follows */

static uint64_t uart;

void metal__arm_console_at(uint64_t pl011)
{
    uart = pl011;
}

static uint32_t register_read(uint64_t at)
{
    return *(volatile uint32_t *)(uintptr_t)at;
}

void metal__console_putc(char c)
{
    unsigned turns = 0;

    if (uart == 0)
        return;
    while ((register_read(uart + PL011_FLAGS) & PL011_FULL) != 0 && ++turns < PL011_PATIENCE)
        metal_relax();
    *(volatile uint32_t *)(uintptr_t)(uart + PL011_DATA) = (uint8_t)c;
}

/* Semihosting for A64 (ARM semihosting 2.0): the trap is HLT 0xF000; arguments by address. */
static void semihosting(uint32_t operation, const void *argument)
{
    register uint64_t x0 __asm__("x0") = operation;
    register const void *x1 __asm__("x1") = argument;

    __asm__ volatile("hlt #0xf000" : "+r"(x0) : "r"(x1) : "memory");
}

void metal__arch_exit(unsigned code)
{
    /* Code n leaves as 33 + 2 n, as on x86: no other way to end an emulator gives one of these. */
    const uint64_t block[2] = {SEMI_APPLICATION, 33u + 2u * code};

    semihosting(SEMI_EXIT_EXTENDED, block);
    (void)metal__arm_psci(PSCI_SYSTEM_OFF, 0, 0, 0);
    for (;;)
        __asm__ volatile("wfi");
}

void metal__arm_early_panic(const char *reason)
{
    semihosting(SEMI_WRITE0, reason);
    metal__arch_exit(46);
}
