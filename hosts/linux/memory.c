/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of the Linux host: anonymous mappings, placed by libnuma, and the window behind frames. */
#define _GNU_SOURCE
#include "host_internal.h"

#include <numa.h>
#include <string.h>
#include <sys/mman.h>

void *hvmem_linux_pages(size_t bytes, hvmem_node node, int prefault)
{
    void *start;

    if (bytes == 0)
        return NULL;
    start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    if (node != HVMEM_NODE_ANY && numa_available() >= 0 && (int)node <= numa_max_node() &&
        numa_bitmask_isbitset(numa_all_nodes_ptr, node))
        numa_tonode_memory(start, bytes, (int)node);
    if (prefault)
        memset(start, 0, bytes);
    return start;
}

hvmem_status hvmem_linux_window(struct hvmem_linux_host *host, hvmem_mfn base, hvmem_u64 frames,
                                hvmem_u32 page_shift)
{
    size_t bytes;

    if (page_shift < 12 || page_shift > 16 || frames > (SIZE_MAX >> page_shift >> 1) ||
        base + frames < base)
        return HVMEM_E_RANGE;
    if (host->window != NULL)
        munmap(host->window, host->window_bytes);
    host->window = NULL;
    host->window_frames = 0;
    if (frames == 0)
        return HVMEM_OK;
    bytes = (size_t)frames << page_shift;
    host->window = hvmem_linux_pages(bytes, HVMEM_NODE_ANY, 0);
    if (host->window == NULL)
        return HVMEM_E_NOMEM;
    host->window_bytes = bytes;
    host->window_base = base;
    host->window_frames = frames;
    host->window_shift = page_shift;
    return HVMEM_OK;
}

void *linux__frame_map(void *context, hvmem_mfn mfn, hvmem_order order)
{
    struct hvmem_linux_host *host = context;
    hvmem_u64 offset = mfn - host->window_base;

    if (mfn < host->window_base || order > HVMEM_ORDER_LIMIT || offset >= host->window_frames ||
        (hvmem_u64)1 << order > host->window_frames - offset)
        return NULL;
    atomic_fetch_add_explicit(&host->maps, 1, memory_order_relaxed);
    return host->window + (offset << host->window_shift);
}

void linux__frame_unmap(void *host, void *map, hvmem_order order)
{
    (void)host;
    (void)map;
    (void)order; /* the window stays mapped */
}
