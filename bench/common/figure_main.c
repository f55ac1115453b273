/* SPDX-License-Identifier: BSD-2-Clause */
/* main() of a program of figures; see figure.h. */
#include "figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A share close to all of it is not to look like all of it. */
static int decimals(const struct figure *figure, double value)
{
    if (strcmp(figure->unit, "%") == 0)
        return 4;
    return fabs(value) < 10 ? 3 : 1;
}

static void print_figure(const struct figure *figure)
{
    double value = figure->measure();

    if (isnan(value))
        figure_fail("%s: no round counted", figure->name);
    if (value == floor(value) && fabs(value) < 1e15)
        printf("%s %.0f %s\n", figure->name, value, figure->unit);
    else
        printf("%s %.*f %s\n", figure->name, decimals(figure, value), value, figure->unit);
}

static const struct figure *find_figure(const char *name)
{
    const struct figure *figure = figure_first();

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
        for (figure = figure_first(); figure != NULL; figure = figure->next)
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
        for (figure = figure_first(); figure != NULL; figure = figure->next)
            print_figure(figure);
    }
    return 0;
}
