/* SPDX-License-Identifier: BSD-2-Clause */
/* What the subjects of both architectures share: names of the instructions behind a request. */
#include "test/metal/subject.h"

static size_t append(char *text, size_t at, size_t bytes, const char *word)
{
    for (; *word != '\0' && at + 1 < bytes; word++)
        text[at++] = *word;
    text[at] = '\0';
    return at;
}

void subject_name(const struct hvmem_tlb_flush *flush, char *text, size_t bytes)
{
    struct hvmem_record *log;
    struct hvmem_backend *twin = subject_twin(&log);
    const char *last = NULL;
    size_t at = 0;

    hvmem_record_clear(log);
    text[0] = '\0';
    if (twin->ops->tlb_flush(twin, flush) != HVMEM_OK)
        return;
    for (uint32_t i = 0; i < log->count; i++) {
        const char *name = subject_insn_name(log->events[i].code);

        if (name == NULL || name == last)
            continue;
        at = append(text, at, bytes, at == 0 ? "" : " ");
        at = append(text, at, bytes, name);
        last = name;
    }
}
