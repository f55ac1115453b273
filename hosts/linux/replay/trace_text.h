/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the text form of a recorded trace (test/data/README.md) to the compact form of
 * hosts/common/player.h: finds which allocation each free ends, and the peak.
 */
#ifndef TRACE_TEXT_H
#define TRACE_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct trace_text;

/* Results of the functions below; a refused line changes nothing. */
#define TRACE_OK       0
#define TRACE_E_SYNTAX 1 /* not an event of a known form, or a number out of range */
#define TRACE_E_ORDER  2 /* earlier than the line before */
#define TRACE_E_CPU    3 /* CPU beyond REPLAY_MAX_CPUS */
#define TRACE_E_FULL   4 /* more events than the compact form can hold */
#define TRACE_E_MEMORY 5

/* What the text held. */
struct trace_text_stats {
    uint64_t events; /* lines taken */
    uint64_t allocs;
    uint64_t frees;       /* that end an allocation of the trace */
    uint64_t foreign;     /* of blocks allocated before the trace */
    uint64_t odd;         /* of these, frees inside a block, or of another order than it has */
    uint64_t freed_first; /* blocks allocated again, whole or in part, without a free */
    uint64_t flushes;
    uint64_t live; /* pages live now */
    uint64_t peak; /* most pages live at once */
    uint32_t cpus; /* highest CPU seen, plus 1 */
};

/* NULL: no memory. */
struct trace_text *trace_text_new(void);
void trace_text_delete(struct trace_text *text);

/* Take one line, without or with its newline. Empty lines and lines that begin with # are skipped. */
int trace_text_line(struct trace_text *text, const char *line);

/* The compact form of all lines so far, in memory that the caller frees with free(). */
int trace_text_finish(const struct trace_text *text, void **bytes, size_t *size);

void trace_text_stats(const struct trace_text *text, struct trace_text_stats *stats);

/* Short words for a result. */
const char *trace_text_words(int result);

/* Convert a file in text form, gzip'ed or not. On failure *line names the line (0: the file). */
int trace_text_file(struct trace_text *text, const char *path, unsigned long *line);

#endif
