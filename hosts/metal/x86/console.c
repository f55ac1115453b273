/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Console and end on x86-64: the emulators' debug port 0xe9, else the first serial port; exit by
 * isa-debug-exit (QEMU) or by the shutdown port of Bochs.
 */
#include "regs.h"

#define PORT_DEBUG    0xe9
#define PORT_EXIT     0xf4
#define PORT_SHUTDOWN 0x8900
#define PORT_SERIAL   0x3f8

/* Program exit code 0 becomes status 33 of the emulator, n becomes 33 + 2 n: a triple fault (status 0)
 * or an emulator's own error (1, 2) is never taken for a pass. */
#define EXIT_BASE 0x10u

#define SERIAL_TURNS 100000u

static int debug_port, serial_port;

void metal__console_setup(void)
{
    debug_port = inb(PORT_DEBUG) == PORT_DEBUG;
    if (debug_port)
        return;
    outb(PORT_SERIAL + 7, 0x5a); /* scratch register: is there a 16550 at all? */
    serial_port = inb(PORT_SERIAL + 7) == 0x5a;
    if (!serial_port)
        return;
    outb(PORT_SERIAL + 1, 0);    /* no interrupts */
    outb(PORT_SERIAL + 3, 0x80); /* divisor 1: 115200 baud */
    outb(PORT_SERIAL + 0, 1);
    outb(PORT_SERIAL + 1, 0);
    outb(PORT_SERIAL + 3, 3); /* 8 bits, no parity, 1 stop */
    outb(PORT_SERIAL + 2, 7); /* FIFOs on and empty */
}

static void serial_putc(char c)
{
    for (unsigned i = 0; i < SERIAL_TURNS && (inb(PORT_SERIAL + 5) & 0x20) == 0; i++)
        metal_relax();
    outb(PORT_SERIAL, (uint8_t)c);
}

void metal__console_putc(char c)
{
    if (debug_port)
        outb(PORT_DEBUG, (uint8_t)c);
    else if (serial_port)
        serial_putc(c);
}

void metal__arch_exit(unsigned code)
{
    outb(PORT_EXIT, (uint8_t)(EXIT_BASE + code));
    for (const char *p = "Shutdown"; *p != '\0'; p++)
        outb(PORT_SHUTDOWN, (uint8_t)*p);
    for (;;)
        __asm__ volatile("cli; hlt");
}

const char *metal_emulator(void)
{
    static char name[13];
    struct cpuid r = cpuid(1, 0);

    if ((r.c >> 31 & 1) == 0)
        return debug_port ? "an emulator with debug port 0xe9" : NULL;
    r = cpuid(0x40000000, 0);
    for (unsigned i = 0; i < 4; i++) {
        name[i] = (char)(r.b >> (8 * i));
        name[4 + i] = (char)(r.c >> (8 * i));
        name[8 + i] = (char)(r.d >> (8 * i));
    }
    return name[0] == '\0' ? "a hypervisor without a name" : name;
}
