/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The arm64 back-end's EL0 half, run under an emulator of arm64 user space: detection, DC, IC, DC ZVA
 * with whatever block the CPU has, code made executable. Exit 0: all held.
 */
#define _GNU_SOURCE
#include <hvmem/arm64.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 8192 };

static _Alignas(4096) unsigned char memory[BYTES];
static struct hvmem_arm64 m;
static struct hvmem_backend be;
static int failures;

static void check(int holds, const char *words)
{
    if (holds)
        return;
    printf("failed: %s\n", words);
    failures++;
}

static void start(uint32_t flags)
{
    struct hvmem_arm64_config config = {.size = sizeof(config), .level = HVMEM_ARM64_EL0};

    config.flags = flags;
    check(hvmem_arm64_init(&m, &be, &config) == HVMEM_OK, "init");
}

static void zeroes_exactly_the_range(void)
{
    size_t from, bytes, i, wrong = 0;
    uint32_t flags;

    for (flags = 0; flags <= HVMEM_ARM64_NO_ZVA; flags += HVMEM_ARM64_NO_ZVA)
        for (from = 0; from <= 1024; from += 64)
            for (bytes = 64; bytes <= 4096; bytes += 192) {
                start(flags);
                memset(memory, 0xa5, BYTES);
                check(be.ops->zero(&be, (uintptr_t)memory + from, bytes) == HVMEM_OK, "zero");
                for (i = 0; i < BYTES; i++)
                    wrong += memory[i] != (i >= from && i < from + bytes ? 0 : 0xa5);
            }
    check(wrong == 0, "zeroed bytes are exactly those asked for");
    check((be.caps.zero_block == 0) == 1, "NO_ZVA hides DC ZVA");
}

static void cache_operations_keep_data(void)
{
    size_t i, wrong = 0;
    uint32_t op;

    start(0);
    check(be.caps.dline >= 16 && be.caps.zero_block >= 16, "line and block sizes");
    for (i = 0; i < BYTES; i++)
        memory[i] = (unsigned char)(i * 7);
    for (op = HVMEM_DC_CLEAN; op <= HVMEM_DC_CLEAN_POU; op++)
        check(be.ops->dcache(&be, op, (uintptr_t)memory + 13, BYTES - 40) == HVMEM_OK, "dcache");
    for (i = 0; i < BYTES; i++)
        wrong += memory[i] != (unsigned char)(i * 7);
    check(wrong == 0, "cache operations keep data");
}

/* New code at one address, many times: each call must run what was written last. */
static void code_becomes_visible(void)
{
    uint32_t *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int (*call)(void);
    uint32_t i, wrong = 0;

    if (code == MAP_FAILED) {
        check(0, "mmap");
        return;
    }
    memcpy(&call, &code, sizeof(call));
    for (i = 0; i < 1000; i++) {
        code[0] = 0x52800000 | i << 5; /* mov w0, #i */
        code[1] = 0xd65f03c0;          /* ret */
        wrong += be.ops->icache(&be, (uintptr_t)code, 8) != HVMEM_OK;
        wrong += call() != (int)i;
    }
    check(wrong == 0, "new code runs");
}

int main(void)
{
    struct hvmem_tlb_flush flush = {.size = sizeof(flush), .what = HVMEM_FLUSH_ALL};

    zeroes_exactly_the_range();
    cache_operations_keep_data();
    code_becomes_visible();
    check(be.ops->tlb_flush(&be, &flush) == HVMEM_E_LEVEL, "TLB work is refused at EL0");
    check(be.ops->dcache_all(&be, HVMEM_DC_CLEAN) == HVMEM_E_LEVEL, "set and way is refused");
    return failures != 0;
}
