/* SPDX-License-Identifier: BSD-2-Clause */
/* Resident, dirty memory from mmap; see pages.h. */
#define _GNU_SOURCE
#include "pages.h"
#include "rounds.h"

#include <string.h>
#include <sys/mman.h>

#define LARGE ((size_t)1 << 30) /* from here on by 2 MiB pages, where the kernel has them */

void *bench_pages_get(size_t bytes, double *touch_ms)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double start = bench_now();

    if (pages == MAP_FAILED)
        return NULL;
    if (bytes >= LARGE)
        (void)madvise(pages, bytes, MADV_HUGEPAGE);
    memset(pages, 0xa5, bytes);
    if (touch_ms != NULL)
        *touch_ms = (bench_now() - start) / 1e6;
    return pages;
}

void bench_pages_put(void *pages, size_t bytes)
{
    if (pages != NULL)
        munmap(pages, bytes);
}
