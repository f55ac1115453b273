/* SPDX-License-Identifier: BSD-2-Clause */
/* status.c: words for codes. A switch, not a table: tables of pointers need relocation under PIC. */
#include <hvmem/status.h>

/* Frames, and the state of the library. */
static const char *about_frames(hvmem_status status)
{
    switch (status) {
    case HVMEM_E_FOREIGN:
        return "frame outside every bank";
    case HVMEM_E_FREE:
        return "frame is free already";
    case HVMEM_E_INTERIOR:
        return "frame is inside a block";
    case HVMEM_E_WRONG_ORDER:
        return "block has another order";
    case HVMEM_E_RESERVED:
        return "frame is reserved";
    case HVMEM_E_OWNER:
        return "frame belongs to another owner";
    case HVMEM_E_OFFLINE:
        return "frame is offline";
    case HVMEM_E_QUARANTINE:
        return "frame is in quarantine";
    case HVMEM_E_GATHERED:
        return "frame is held by a gather";
    case HVMEM_E_OWED:
        return "maintenance is still owed";
    case HVMEM_E_CORRUPT:
        return "frame table is corrupt";
    case HVMEM_E_GEOMETRY:
        return "table of another geometry";
    case HVMEM_E_HOST:
        return "host operation failed";
    case HVMEM_E_TIMEOUT:
        return "wait ran out";
    default:
        return "unknown status";
    }
}

/* Arguments. */
static const char *about_arguments(hvmem_status status)
{
    switch (status) {
    case HVMEM_E_NOID:
        return "no identifier is free";
    case HVMEM_E_ARG:
        return "invalid argument";
    case HVMEM_E_VERSION:
        return "unknown structure size";
    case HVMEM_E_ORDER:
        return "order too large";
    case HVMEM_E_COUNT:
        return "count out of range";
    case HVMEM_E_ALIGN:
        return "invalid alignment";
    case HVMEM_E_RANGE:
        return "range empty, wrapping or too large";
    case HVMEM_E_NODE:
        return "no such node, or no memory on it";
    case HVMEM_E_CPU:
        return "no such CPU, or in that state already";
    case HVMEM_E_BUFFER:
        return "buffer too small or misaligned";
    case HVMEM_E_OVERLAP:
        return "overlaps a known bank";
    case HVMEM_E_DOMAIN:
        return "unknown or dying domain, or id in use";
    case HVMEM_E_PHASE:
        return "not allowed in this phase";
    case HVMEM_E_UNSUPPORTED:
        return "not offered by host or back-end";
    case HVMEM_E_STALE:
        return "cursor of another operation";
    case HVMEM_E_SPACE:
        return "unknown or dead space";
    case HVMEM_E_LEVEL:
        return "above the current exception level";
    default:
        return about_frames(status);
    }
}

const char *hvmem_status_words(hvmem_status status)
{
    switch (status) {
    case HVMEM_OK:
        return "success";
    case HVMEM_AGAIN:
        return "not finished, call again";
    case HVMEM_E_NOMEM:
        return "no free block satisfies the request";
    case HVMEM_E_LIMIT:
        return "page limit of the domain";
    case HVMEM_E_CLAIM:
        return "free memory is claimed by others";
    case HVMEM_E_WOULD_FLUSH:
        return "only frames owing a flush are left";
    case HVMEM_E_BUSY:
        return "in use, or changing";
    default:
        return about_arguments(status);
    }
}
