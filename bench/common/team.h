/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two threads that work at the same time: the calling one, standing for CPU 0, and a helper, CPU 1.
 * The helper sleeps between rounds and never spins while only one thread is measured.
 */
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

struct bench_team;

/* Starts the helper; it enters CPU 1. Ends the program if the machine has only one CPU. */
struct bench_team *bench_team_start(void);
void bench_team_stop(struct bench_team *team);

/*
 * Runs work(arg, 0) here and work(arg, 1) in the helper, begun together. Returns the mean of the two
 * durations in nanoseconds; NaN if either thread lost its CPU meanwhile.
 */
double bench_team_run(struct bench_team *team, void (*work)(void *arg, unsigned cpu), void *arg);

#endif
