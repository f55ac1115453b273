/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of figures of a program and what they print beside their values; see figure.h. */
#include "figure.h"

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

const struct figure *figure_first(void)
{
    return first_figure;
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
