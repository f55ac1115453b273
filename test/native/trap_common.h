/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that print the instructions of many contract calls, one a line. Built twice from one
 * source: with the recording back-end, and (TRAP_REAL) with the real one in user space, where each
 * privileged instruction traps and the signal handler logs what it finds at the program counter.
 * Equal output shows that the recorder's words are the words that execute.
 */
#ifndef TRAP_COMMON_H
#define TRAP_COMMON_H

#include <hvmem/record.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TRAP_EVENTS = 65536 };
static struct hvmem_record_event trap_events[TRAP_EVENTS];
static struct hvmem_record trap_log;

/* Is the event one that traps in user space? */
static int trap_is_privileged(const struct hvmem_record_event *event);

static void trap_print(const char *what, int status)
{
    uint32_t i;

    printf("%s: status %d\n", what, status);
    for (i = 0; i < trap_log.count; i++)
        if (trap_is_privileged(&trap_events[i]))
            printf("  %08x %016llx %016llx\n", trap_events[i].code,
                   (unsigned long long)trap_events[i].operand[0],
                   (unsigned long long)trap_events[i].operand[1]);
}

#ifdef TRAP_REAL
#    include <signal.h>
#    include <stdlib.h>
#    include <ucontext.h>

static void trap_handler(int number, siginfo_t *info, void *context);

static void trap_install(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_sigaction = trap_handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
}

static void trap_unknown(const unsigned char *at)
{
    fprintf(stderr, "trap: unknown instruction %02x %02x %02x %02x %02x\n", at[0], at[1], at[2],
            at[3], at[4]);
    _Exit(2);
}
#else
static void trap_install(void)
{
}
#endif

#endif
