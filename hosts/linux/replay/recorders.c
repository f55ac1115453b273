/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recorders, by CPU and by depth: a call from another CPU may interrupt a flush under way, so each
 * level of interruption writes to a log of its own.
 */
#include "recorders.h"

#include "hvmem_host_linux.h"

#include <hvmem/record.h>
#include <hvmem/x86.h>

#include <stdatomic.h>
#include <stdlib.h>

#define CPUS     8u
#define DEPTHS   2u
#define CAPACITY (HVMEM_X86_BATCH_OPS + 64u)

#define VENDOR_INTEL 0x756e6547u /* "Genu" */
#define CR4_PGE      (1u << 7)

struct one {
    struct hvmem_x86 x86;
    struct hvmem_backend backend;
    struct hvmem_record record;
    struct hvmem_record_event events[CAPACITY];
};

struct recorders {
    _Atomic uint64_t counts[RECORD_KINDS];
    struct one one[CPUS][DEPTHS];
};

static __thread unsigned depth;

struct recorders *recorders_new(int broadcast)
{
    struct hvmem_x86_ids ids = {.vendor = VENDOR_INTEL};
    struct hvmem_x86_config config = {.size = sizeof config, .va_bits = 48, .ids = &ids};
    struct recorders *recorders = calloc(1, sizeof *recorders);
    unsigned cpu, level;

    ids.leaf1_ecx = 1u << 17;               /* PCID, which CR4 leaves off */
    ids.leaf1_edx = 1u << 13 | 1u << 19;    /* PGE, CLFLUSH */
    ids.leaf7_ebx = 1u << 10;               /* INVPCID */
    ids.ext8_ebx = broadcast ? 1u << 3 : 0; /* INVLPGB */
    for (cpu = 0; recorders != NULL && cpu < CPUS; cpu++) {
        for (level = 0; level < DEPTHS; level++) {
            struct one *one = &recorders->one[cpu][level];

            hvmem_record_init(&one->record, one->events, CAPACITY);
            hvmem_record_set(&one->record, HVMEM_X86_REG_CR4, 0, CR4_PGE);
            one->record.cpu = cpu;
            config.machine = &one->record;
            if (hvmem_x86_init(&one->x86, &one->backend, &config) != HVMEM_OK) {
                free(recorders);
                return NULL;
            }
        }
    }
    return recorders;
}

void recorders_delete(struct recorders *recorders)
{
    free(recorders);
}

hvmem_status recorders_flush(struct recorders *recorders, const struct hvmem_tlb_flush *flush)
{
    hvmem_cpu cpu = hvmem_linux__this_cpu;
    unsigned level = depth;
    hvmem_status status;
    struct one *one;
    uint32_t i;

    if (cpu >= CPUS || level >= DEPTHS)
        return HVMEM_E_CPU;
    one = &recorders->one[cpu][level];
    depth = level + 1;
    atomic_signal_fence(memory_order_seq_cst);
    status = one->backend.ops->tlb_flush(&one->backend, flush);
    for (i = 0; i < one->record.count; i++)
        if (one->events[i].code < RECORD_KINDS)
            atomic_fetch_add_explicit(&recorders->counts[one->events[i].code], 1,
                                      memory_order_relaxed);
    if (one->record.lost != 0)
        status = HVMEM_E_BUFFER;
    hvmem_record_clear(&one->record);
    atomic_signal_fence(memory_order_seq_cst);
    depth = level;
    return status;
}

void recorders_counts(const struct recorders *recorders, uint64_t counts[RECORD_KINDS])
{
    unsigned i;

    for (i = 0; i < RECORD_KINDS; i++)
        counts[i] = atomic_load(&recorders->counts[i]);
}

void recorders_clear(struct recorders *recorders)
{
    unsigned i;

    for (i = 0; i < RECORD_KINDS; i++)
        atomic_store(&recorders->counts[i], 0);
}

const char *recorders_word(unsigned kind)
{
    switch (kind) {
    case HVMEM_X86_INSN_INVLPG:
        return "INVLPG";
    case HVMEM_X86_INSN_INVPCID:
        return "INVPCID";
    case HVMEM_X86_INSN_CR3:
        return "CR3 write";
    case HVMEM_X86_INSN_CR4:
        return "CR4 write";
    case HVMEM_X86_INSN_INVLPGB:
        return "INVLPGB";
    case HVMEM_X86_INSN_TLBSYNC:
        return "TLBSYNC";
    default:
        return NULL; /* barriers and interrupt flags are not shown */
    }
}
