/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a trace in text form from a file, gzip'ed or plain, line by line into the converter. */
#include "trace_text.h"

#include <string.h>
#include <zlib.h>

#define LINE_BYTES 512

int trace_text_file(struct trace_text *text, const char *path, unsigned long *line)
{
    char buffer[LINE_BYTES];
    gzFile file = gzopen(path, "rb");
    int result = TRACE_OK;
    int error = Z_OK;

    *line = 0;
    if (file == NULL)
        return TRACE_E_SYNTAX;
    gzbuffer(file, 1u << 17);
    while (result == TRACE_OK && gzgets(file, buffer, sizeof buffer) != NULL) {
        ++*line;
        if (strlen(buffer) == sizeof buffer - 1)
            result = TRACE_E_SYNTAX;
        else
            result = trace_text_line(text, buffer);
    }
    gzerror(file, &error);
    if (gzclose_r(file) != Z_OK || (error != Z_OK && error != Z_STREAM_END))
        result = result == TRACE_OK ? TRACE_E_SYNTAX : result;
    if (result == TRACE_OK)
        *line = 0;
    return result;
}
