/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of figures of a program, and its main(); see figure.h. */
#include "figure.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct figure *first_figure;

/* Kept sorted by name: the order of constructors is the linker's business. */
void figure_register(struct figure *figure)
{
    struct figure **link = &first_figure;

    while (*link != NULL && strcmp((*link)->name, figure->name) < 0)
        link = &(*link)->next;
    figure->next = *link;
    *link = figure;
}

void figure_comment(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    printf("# ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

void figure_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "figure not measured: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static void print_figure(const struct figure *figure)
{
    double value = figure->measure();

    if (isnan(value))
        figure_fail("%s: no round counted", figure->name);
    if (value == floor(value) && fabs(value) < 1e15)
        printf("%s %.0f %s\n", figure->name, value, figure->unit);
    else
        printf("%s %.*f %s\n", figure->name, fabs(value) < 10 ? 3 : 1, value, figure->unit);
}

static const struct figure *find_figure(const char *name)
{
    const struct figure *figure = first_figure;

    while (figure != NULL && strcmp(figure->name, name) != 0)
        figure = figure->next;
    return figure;
}

int main(int argc, char **argv)
{
    const struct figure *figure;
    int i;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (figure = first_figure; figure != NULL; figure = figure->next)
            printf("%s\t%s\t%s\n", figure->name, figure->unit, figure->meaning);
        return 0;
    }
    for (i = 1; i < argc; i++) {
        figure = find_figure(argv[i]);
        if (figure == NULL)
            figure_fail("%s: no such name; --list prints them", argv[i]);
        print_figure(figure);
    }
    if (argc == 1) {
        for (figure = first_figure; figure != NULL; figure = figure->next)
            print_figure(figure);
    }
    return 0;
}
