/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures: named numbers that a program measures on demand. A file of bench/measure/ defines each in
 * one place and is found by the build:
 *
 *     FIGURE(pair0_ns, "pair0.ns", "ns", "order-0 alloc + free pair, hot")
 *     {
 *         figure_comment("two CPUs online");
 *         return measured;
 *     }
 *
 * The program's main() is in figure_main.c: `--list` prints NAME, UNIT and meaning between tabs; names as
 * arguments print `NAME VALUE UNIT`, a line each; without arguments it prints all. That is the
 * protocol of every program or script that bench/figures asks.
 */
#ifndef BENCH_FIGURE_H
#define BENCH_FIGURE_H

struct figure {
    const char *name;
    const char *unit;
    const char *meaning;
    double (*measure)(void);
    struct figure *next;
};

void figure_register(struct figure *figure);
/* All figures of the program, sorted by name. */
const struct figure *figure_first(void);

#define FIGURE(identifier, name, unit, meaning)                                                    \
    static double identifier(void);                                                                \
    __attribute__((constructor)) static void figure_register_##identifier(void)                    \
    {                                                                                              \
        static struct figure figure = {name, unit, meaning, identifier, 0};                        \
        figure_register(&figure);                                                                  \
    }                                                                                              \
    static double identifier(void)

/* A line `# text` before the figure being measured (printf form): what it compares, parts. */
void figure_comment(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the program with a message: the measurement cannot be made, or an oracle did not hold. */
void figure_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Fails unless the condition holds. */
#define FIGURE_REQUIRE(condition)                                                                  \
    ((condition) ? (void)0 : figure_fail("%s:%d: %s", __FILE__, __LINE__, #condition))

#endif
