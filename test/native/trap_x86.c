/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints the trapping instructions of x86 TLB and whole-cache calls; see trap_common.h. */
#define _GNU_SOURCE
#include "trap_common.h"

#include <hvmem/x86.h>

static int trap_is_privileged(const struct hvmem_record_event *event)
{
    return event->code <= HVMEM_X86_INSN_INVVPID || event->code == HVMEM_X86_INSN_WBINVD ||
           event->code == HVMEM_X86_INSN_WBNOINVD || event->code == HVMEM_X86_INSN_CLI ||
           event->code == HVMEM_X86_INSN_POPF;
}

#ifdef TRAP_REAL
static uint64_t reg(ucontext_t *user, int name)
{
    return (uint64_t)user->uc_mcontext.gregs[name];
}

/* The general register a MOV to or from a control register names. */
static greg_t *named(ucontext_t *user, int rex_b, unsigned char modrm)
{
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};

    return &user->uc_mcontext.gregs[order[(modrm & 7) | (rex_b ? 8 : 0)]];
}

/* 0F 20 and 0F 22: MOV from and to CR3 and CR4. */
static int control_register(ucontext_t *user, const unsigned char *at, int rex_b)
{
    int cr = at[2] >> 3 & 7;
    uint32_t key = cr == 3 ? HVMEM_X86_REG_CR3 : HVMEM_X86_REG_CR4;
    greg_t *target = named(user, rex_b, at[2]);

    if (at[1] == 0x20) {
        *target = (greg_t)hvmem_record_get(&trap_log, key, 0);
    } else {
        hvmem_record_insn(&trap_log, cr == 3 ? HVMEM_X86_INSN_CR3 : HVMEM_X86_INSN_CR4,
                          (uint64_t)*target, 0);
        hvmem_record_set(&trap_log, key, 0, (uint64_t)*target & ~(1ull << 63));
    }
    return 3 + rex_b;
}

/* 66 0F 38 80/81/82 08: descriptor at RAX, type in RCX. */
static int descriptor(ucontext_t *user, const unsigned char *at)
{
    const uint64_t *d = (const uint64_t *)reg(user, REG_RAX);
    uint64_t type = reg(user, REG_RCX);

    if (at[3] == 0x80)
        hvmem_record_insn(&trap_log, HVMEM_X86_INSN_INVEPT, type, d[0]);
    else
        hvmem_record_insn(&trap_log,
                          at[3] == 0x81 ? HVMEM_X86_INSN_INVVPID : HVMEM_X86_INSN_INVPCID,
                          type << 16 | d[0], d[1]);
    user->uc_mcontext.gregs[REG_EFL] &= ~0x41ll; /* VMsucceed */
    return 5;
}

static int group_0f01(ucontext_t *user, const unsigned char *at)
{
    uint64_t ax = reg(user, REG_RAX), cx = reg(user, REG_RCX) & 0xffffffff;

    switch (at[2]) {
    case 0x38:
        hvmem_record_insn(&trap_log, HVMEM_X86_INSN_INVLPG, ax, 0);
        return 3;
    case 0xdf:
        hvmem_record_insn(&trap_log, HVMEM_X86_INSN_INVLPGA, ax, cx);
        return 3;
    case 0xfe:
        hvmem_record_insn(&trap_log, HVMEM_X86_INSN_INVLPGB, ax,
                          cx << 32 | (reg(user, REG_RDX) & 0xffffffff));
        return 3;
    case 0xff:
        hvmem_record_insn(&trap_log, HVMEM_X86_INSN_TLBSYNC, 0, 0);
        return 3;
    default:
        return 0;
    }
}

static int decode(ucontext_t *user, const unsigned char *at)
{
    if (at[0] == 0x41 && at[1] == 0x0f)
        return control_register(user, at + 1, 1);
    if (at[0] == 0x0f && (at[1] == 0x20 || at[1] == 0x22))
        return control_register(user, at, 0);
    if (at[0] == 0x66 && at[1] == 0x0f && at[2] == 0x38)
        return descriptor(user, at);
    if (at[0] == 0x0f && at[1] == 0x01)
        return group_0f01(user, at);
    if (at[0] == 0xfa || at[0] == 0xfb) {
        hvmem_record_insn(&trap_log, at[0] == 0xfa ? HVMEM_X86_INSN_CLI : HVMEM_X86_INSN_POPF, 0,
                          0);
        return 1;
    }
    if (at[0] == 0x0f && at[1] == 0x09) {
        hvmem_record_insn(&trap_log, HVMEM_X86_INSN_WBINVD, 0, 0);
        return 2;
    }
    if (at[0] == 0xf3 && at[1] == 0x0f && at[2] == 0x09) {
        hvmem_record_insn(&trap_log, HVMEM_X86_INSN_WBNOINVD, 0, 0);
        return 3;
    }
    return 0;
}

static void trap_handler(int number, siginfo_t *info, void *context)
{
    ucontext_t *user = context;
    const unsigned char *at = (const unsigned char *)reg(user, REG_RIP);
    int length = decode(user, at);

    (void)number;
    (void)info;
    if (length == 0)
        trap_unknown(at);
    user->uc_mcontext.gregs[REG_RIP] += length;
}
#endif

/* bits: 1 INVPCID, 2 PGE, 4 PCIDE, 8 INVLPGB, 16 VMX, 32 SVM */
static void start(struct hvmem_x86 *m, struct hvmem_backend *be, uint32_t bits)
{
    static struct hvmem_x86_ids ids;
    struct hvmem_x86_config config;

    hvmem_record_init(&trap_log, trap_events, TRAP_EVENTS);
    hvmem_record_set(&trap_log, HVMEM_X86_REG_CR3, 0, 0x123000 | (bits & 4 ? 6 : 0));
    hvmem_record_set(&trap_log, HVMEM_X86_REG_CR4, 0,
                     0x20 | (bits & 2 ? 1 << 7 : 0) | (bits & 4 ? 1 << 17 : 0));
    memset(&ids, 0, sizeof(ids));
    ids.leaf1_ebx = 8 << 8;
    ids.leaf1_ecx = 1u << 17 | 1u << 5;
    ids.leaf1_edx = 1u << 13 | 1u << 19;
    ids.leaf7_ebx = bits & 1 ? 1u << 10 : 0;
    ids.ext8_ebx = (bits & 8 ? 1u << 3 | 1u << 21 : 0) | (bits & 1 ? 1u << 9 : 0);
    ids.ext8_edx = 7;
    ids.exta_ebx = 4096;
    ids.ept_vpid_cap = 1ull << 20 | 3ull << 25 | 0x70100000000;
    memset(&config, 0, sizeof(config));
    config.size = sizeof(config);
    config.flags = (bits & 16 ? HVMEM_X86_VMX : 0) | (bits & 32 ? HVMEM_X86_SVM : 0);
    config.va_bits = 48;
    config.ids = &ids;
    config.machine = &trap_log;
    if (hvmem_x86_init(m, be, &config) != HVMEM_OK)
        printf("init failed\n");
}

static void requests(struct hvmem_backend *be, uint32_t bits)
{
    struct hvmem_tlb_range ranges[2] = {
        {.start = 0x5000, .pages = 9, .level = 3, .flags = 3},
        {.start = 0x40000000, .pages = 1024, .level = 255, .stride_shift = 21}};
    struct hvmem_tlb_flush flush = {.size = sizeof(flush), .ranges = ranges};
    char what[64];
    uint32_t i;

    for (i = 0; i < 4 * 4 * 2 * 2; i++) {
        flush.what = (uint16_t)(i & 3);
        flush.space.regime = i >> 2 & 3;
        flush.scope = (uint16_t)(i >> 4 & 1);
        flush.count = 1 + (i >> 5);
        flush.space.id = flush.space.regime == HVMEM_REGIME_USER && !(bits & 4) ? 0 : 6 - (i >> 5);
        flush.space.root = 0x5501e;
        hvmem_record_clear(&trap_log);
        snprintf(what, sizeof(what), "bits %u what %u regime %u scope %u count %u", bits,
                 flush.what, flush.space.regime, flush.scope, flush.count);
        trap_print(what, be->ops->tlb_flush(be, &flush));
    }
}

int main(void)
{
    static struct hvmem_x86 m;
    static struct hvmem_backend be;
    uint32_t bits;

    trap_install();
    for (bits = 0; bits < 48; bits++) {
        start(&m, &be, bits);
        requests(&be, bits);
        hvmem_record_clear(&trap_log);
        trap_print("dcache_all", be.ops->dcache_all(&be, HVMEM_DC_CLEAN));
        hvmem_record_clear(&trap_log);
        trap_print("dcache_all", be.ops->dcache_all(&be, HVMEM_DC_CLEAN_INVALIDATE));
    }
    return 0;
}
