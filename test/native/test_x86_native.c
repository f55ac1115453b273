/* SPDX-License-Identifier: BSD-2-Clause */
/* The x86 back-end's user-space half on this CPU: detection, cache lines, zeroing, refusals. */
#include <hvmem/x86.h>

#include "test_main.h"

#include <string.h>
#include <unistd.h>

enum { BYTES = 8192 };

static _Alignas(4096) unsigned char memory[BYTES];
static struct hvmem_x86 m;
static struct hvmem_backend be;

static void start(uint32_t zero)
{
    struct hvmem_x86_config config = {.size = sizeof(config), .flags = HVMEM_X86_USER};

    config.zero = zero;
    REQUIRE_EQ(hvmem_x86_init(&m, &be, &config), HVMEM_OK);
}

TEST(detects_this_cpu)
{
    long line = sysconf(_SC_LEVEL1_DCACHE_LINESIZE);

    start(0);
    if (line > 0)
        CHECK_EQ(be.caps.dline, line);
    CHECK(be.caps.features & HVMEM_CAP_ICOHERENT);
    CHECK(!(be.caps.features & HVMEM_CAP_BROADCAST));
    CHECK_EQ(hvmem_x86_check_cpu(&m, &be, NULL), HVMEM_OK);
}

TEST(zeroes_exactly_the_range)
{
    uint32_t method;
    size_t from, bytes, i;

    for (method = 0; method <= HVMEM_X86_ZERO_STORES; method++)
        for (from = 0; from <= 256; from += 64)
            for (bytes = 64; bytes <= 4096; bytes *= 2) {
                size_t wrong = 0;

                start(method);
                memset(memory, 0xa5, BYTES);
                CHECK_EQ(be.ops->zero(&be, (uintptr_t)memory + from, bytes), HVMEM_OK);
                for (i = 0; i < BYTES; i++)
                    wrong += memory[i] != (i >= from && i < from + bytes ? 0 : 0xa5);
                CHECK_EQ(wrong, 0);
            }
}

/* No form of maintenance changes what memory holds. */
TEST(cache_operations_keep_data)
{
    uint32_t op;
    size_t i, wrong = 0;

    start(0);
    for (i = 0; i < BYTES; i++)
        memory[i] = (unsigned char)(i * 7);
    for (op = HVMEM_DC_CLEAN; op <= HVMEM_DC_CLEAN_POU; op++)
        CHECK_EQ(be.ops->dcache(&be, op, (uintptr_t)memory + 13, BYTES - 40), HVMEM_OK);
    CHECK_EQ(be.ops->icache(&be, (uintptr_t)memory, BYTES), HVMEM_OK);
    for (i = 0; i < BYTES; i++)
        wrong += memory[i] != (unsigned char)(i * 7);
    CHECK_EQ(wrong, 0);
}

TEST(privileged_operations_are_refused)
{
    struct hvmem_tlb_flush flush = {.size = sizeof(flush), .what = HVMEM_FLUSH_ALL};

    start(0);
    CHECK_EQ(be.ops->tlb_flush(&be, &flush), HVMEM_E_LEVEL);
    CHECK_EQ(be.ops->dcache_all(&be, HVMEM_DC_CLEAN), HVMEM_E_LEVEL);
}
