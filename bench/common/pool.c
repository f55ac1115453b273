/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocators over prepared memory, and the one Linux host of the process; see pool.h. */
#include "pool.h"
#include "figure.h"
#include "pages.h"

#include "hvmem_linux.h"

static struct hvmem_linux_host *host;

void bench_start_host(void)
{
    struct hvmem_linux_host_config config = {.cpus = BENCH_CPUS};

    if (host != NULL)
        return;
    FIGURE_REQUIRE(hvmem_linux_host_create(&config, &host) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_linux_enter(host, 0) == HVMEM_OK);
}

void bench_enter(hvmem_cpu cpu)
{
    FIGURE_REQUIRE(hvmem_linux_enter(host, cpu) == HVMEM_OK);
}

void bench_leave(void)
{
    hvmem_linux_leave();
}

void bench_open(struct bench_opened *opened, const struct bench_body *body, hvmem_u64 frames,
                hvmem_u32 flags)
{
    struct bench_setup setup = {.frames = frames, .cpus = BENCH_CPUS, .flags = flags};

    bench_start_host();
    setup.host = hvmem_linux_ops(host);
    setup.host_ctx = host;
    opened->bytes = body->bytes(&setup);
    opened->memory = NULL;
    if (opened->bytes > 0) {
        opened->memory = bench_pages_get(opened->bytes, NULL);
        FIGURE_REQUIRE(opened->memory != NULL);
    }
    if (body->open(&opened->pool, &setup, opened->memory, opened->bytes) != 0)
        figure_fail("%s did not open over %zu bytes", body->name, opened->bytes);
}

void bench_close(struct bench_opened *opened)
{
    opened->pool.body->close(&opened->pool);
    bench_pages_put(opened->memory, opened->bytes);
    opened->memory = NULL;
}
