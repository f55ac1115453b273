/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints the trapping instructions of arm64 TLB and whole-cache calls; see trap_common.h. */
#define _GNU_SOURCE
#include "trap_common.h"

#include <hvmem/arm64.h>

/* Barriers and operations that EL0 may execute leave no trap. */
static int trap_is_privileged(const struct hvmem_record_event *event)
{
    uint32_t code = event->code;

    if ((code & 0xfffff01f) == 0xd503301f) /* DSB, DMB, ISB */
        return 0;
    return (code >> 16 & 7) != 3 || (code >> 19 & 3) != 1;
}

#ifdef TRAP_REAL
static void trap_handler(int number, siginfo_t *info, void *context)
{
    ucontext_t *user = context;
    const unsigned char *at = (const unsigned char *)user->uc_mcontext.pc;
    uint32_t word;

    (void)number;
    (void)info;
    memcpy(&word, at, 4);
    if ((word & 0xffe00000) == 0xd5200000) /* MRS, SYSL */
        user->uc_mcontext.regs[word & 31] = hvmem_record_get(
            &trap_log, word & ~31u,
            word == 0xd5390000 ? (uint32_t)hvmem_record_get(&trap_log, 0xd53a0000, 0) : 0);
    else if ((word & 0xffe00000) == 0xd5000000) {
        uint64_t operand = (word & 31) == 31 ? 0 : user->uc_mcontext.regs[word & 31];

        hvmem_record_insn(&trap_log, word, operand, 0);
        if ((word & 0xfff00000) == 0xd5100000)
            hvmem_record_set(&trap_log, word | 0x200000, 0, operand);
    } else {
        trap_unknown(at);
    }
    user->uc_mcontext.pc += 4;
}
#endif

static struct hvmem_arm64_ids ids;

static void start(struct hvmem_arm64 *m, struct hvmem_backend *be, uint32_t level, uint32_t set)
{
    struct hvmem_arm64_config config;

    hvmem_record_init(&trap_log, trap_events, TRAP_EVENTS);
    hvmem_record_set(&trap_log, 0xd53c2100, 0, 0x11ull << 48 | 0x1000);
    hvmem_record_set(&trap_log, 0xd53c1100, 0, level == HVMEM_ARM64_VHE ? 0x408000000 : 0);
    hvmem_record_set(&trap_log, 0xd53b4220, 0, 0x80);
    hvmem_record_set(&trap_log, 0xd5390000, 0, 3 << 13 | 1 << 3 | 2);
    hvmem_record_set(&trap_log, 0xd5390020, 0, 1u << 24 | 3);
    ids.midr = 0x410fd0a0;
    ids.ctr = 3u << 14 | 4u << 16 | 4;
    ids.isar0 = set & 1 ? 2ull << 56 : 1ull << 56;
    ids.mmfr0 = ids.mmfr1 = 2 << 4;
    ids.mmfr2 = set & 1 ? 1ull << 48 : 0;
    memset(&config, 0, sizeof(config));
    config.size = sizeof(config);
    config.level = level;
    config.quirks_set = set & 2 ? HVMEM_QUIRK_SPECULATIVE_AT | HVMEM_QUIRK_REPEAT_TLBI : 0;
    config.ids = &ids;
    config.machine = &trap_log;
    if (hvmem_arm64_init(m, be, &config) != HVMEM_OK)
        printf("init failed\n");
}

static void requests(struct hvmem_backend *be, uint32_t level, uint32_t set)
{
    struct hvmem_tlb_range ranges[2] = {{.start = 0x5000, .pages = 37, .level = 3, .flags = 1},
                                        {.start = 0x40000000, .pages = 3, .level = 255}};
    struct hvmem_tlb_flush flush = {.size = sizeof(flush), .ranges = ranges, .count = 2};
    char what[64];
    uint32_t i;

    for (i = 0; i < 4 * 4 * 3; i++) {
        flush.what = (uint16_t)(i & 3);
        flush.space.regime = i >> 2 & 3;
        flush.scope = (uint16_t)(i >> 4);
        flush.space.id = 0x55;
        flush.space.root = 0x2000;
        hvmem_record_clear(&trap_log);
        snprintf(what, sizeof(what), "level %u set %u what %u regime %u scope %u", level, set,
                 flush.what, flush.space.regime, flush.scope);
        trap_print(what, be->ops->tlb_flush(be, &flush));
    }
}

int main(void)
{
    static struct hvmem_arm64 m;
    static struct hvmem_backend be;
    uint32_t level, set;

    trap_install();
    for (level = HVMEM_ARM64_EL1; level <= HVMEM_ARM64_VHE; level++)
        for (set = 0; set < 4; set++) {
            start(&m, &be, level, set);
            requests(&be, level, set);
            hvmem_record_clear(&trap_log);
            trap_print("icache_all inner", be.ops->icache_all(&be, HVMEM_SCOPE_INNER));
            hvmem_record_clear(&trap_log);
            trap_print("icache_all local", be.ops->icache_all(&be, HVMEM_SCOPE_LOCAL));
            hvmem_record_clear(&trap_log);
            trap_print("dcache_all", be.ops->dcache_all(&be, HVMEM_DC_CLEAN));
            hvmem_record_clear(&trap_log);
            trap_print("dcache_all", be.ops->dcache_all(&be, HVMEM_DC_CLEAN_INVALIDATE));
            hvmem_record_clear(&trap_log);
            trap_print("dcache invalidate", be.ops->dcache(&be, HVMEM_DC_INVALIDATE, 0x1000, 256));
        }
    return 0;
}
