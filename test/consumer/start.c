/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The consumer without any C library: entry point, the two functions the library may leave
 * undefined, and the Linux system call that ends the process.
 */
#include "consumer.h"

#include <hvmem/types.h>

void *memset(void *to, int byte, hvmem_size bytes);
void *memcpy(void *to, const void *from, hvmem_size bytes);
void consumer_start(void);

/* volatile: the loops must not be turned into calls of the functions they are in. */
void *memset(void *to, int byte, hvmem_size bytes)
{
    volatile unsigned char *at = to;

    while (bytes--)
        *at++ = (unsigned char)byte;
    return to;
}

void *memcpy(void *to, const void *from, hvmem_size bytes)
{
    volatile unsigned char *at = to;
    const unsigned char *source = from;

    while (bytes--)
        *at++ = *source++;
    return to;
}

/* The stack is aligned by the entry code below as a call would. */
void consumer_start(void)
{
    long step = consumer_run();

#if defined(__x86_64__)
    __asm__ volatile("syscall" : : "a"(231L), "D"(step) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = 94;
    register long code __asm__("x0") = step;
    __asm__ volatile("svc #0" : : "r"(number), "r"(code) : "memory");
#endif
    for (;;) {
    }
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: and $-16, %rsp\n call consumer_start\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start: bl consumer_start\n");
#endif
