/* SPDX-License-Identifier: BSD-2-Clause */
/* Recorded arm64 instructions as what happens to model TLBs; see sim_arm64.h. */
#include "sim_arm64.h"

#include "test_main.h"

#include <string.h>

#define MSR_VTTBR 0xd51c2100u
#define MRS_VTTBR 0xd53c2100u

void sim_arm64_begin(struct sim_arm64 *s, int repeat)
{
    struct hvmem_arm64_config config = {.size = sizeof config, .level = HVMEM_ARM64_EL2};

    memset(s, 0, sizeof *s);
    hvmem_record_init(&s->log, s->events, SIM_ARM64_EVENTS);
    hvmem_record_set(&s->log, MRS_VTTBR, 0, 0x80001000);
    hvmem_record_set(&s->log, 0xd53c1100, 0, 1ull << 31); /* HCR_EL2 */
    s->ids.midr = 0x410fd0a0;                             /* a part without errata */
    s->ids.ctr = 3u << 14 | 4u << 16 | 4;
    s->ids.isar0 = 2ull << 56; /* range operations */
    s->ids.mmfr0 = 2 << 4;
    s->ids.mmfr1 = 2 << 4;
    s->ids.mmfr2 = 1ull << 48; /* level hints */
    config.quirks_set = repeat ? HVMEM_QUIRK_REPEAT_TLBI : 0;
    config.ids = &s->ids;
    config.machine = &s->log;
    REQUIRE_EQ(hvmem_arm64_init(&s->arm64, &s->be, &config), HVMEM_OK);
}

/* By IPA (Arm ARM C5.5): op2 1, 5 single, 2, 6 range; 5 and 6 leaves alone. */
static void by_ipa(struct hvmem_tlb_range *range, unsigned op2, uint64_t x)
{
    unsigned ttl;

    range->stride_shift = 12;
    range->flags = op2 == 5 || op2 == 6 ? HVMEM_RANGE_LEAF : 0;
    if (op2 == 2 || op2 == 6) {
        range->start = (x & 0x1fffffffffu) << 12;
        range->pages = ((x >> 39 & 31) + 1) << (5 * (x >> 44 & 3) + 1);
        ttl = x >> 37 & 3;
    } else {
        range->start = (x & 0xffffffffffu) << 12;
        range->pages = 1;
        ttl = x >> 46 & 3 ? x >> 44 & 3 : 0;
    }
    range->level = (hvmem_u8)(ttl ? ttl : HVMEM_LEVEL_UNKNOWN);
}

/* One TLBI under the VMID in force. CRm: 0, 3 broadcast; 4, 7 local. */
static void tlbi(struct sim_arm64 *s, struct hvmem_sim_machine *m,
                 const struct hvmem_record_event *event, uint32_t vmid)
{
    unsigned op1 = event->code >> 16 & 7, crm = event->code >> 8 & 15, op2 = event->code >> 5 & 7;
    struct hvmem_tlb_flush flush = {.size = sizeof flush};
    struct hvmem_tlb_range range = {0};

    flush.scope = crm == 0 || crm == 3 ? HVMEM_SCOPE_INNER : HVMEM_SCOPE_LOCAL;
    flush.space.regime = HVMEM_REGIME_STAGE2;
    flush.space.id = vmid;
    if (op1 == 4 && (crm == 0 || crm == 4)) {
        by_ipa(&range, op2, event->operand[0]);
        flush.what = HVMEM_FLUSH_RANGES;
        flush.ranges = &range;
        flush.count = 1;
    } else if (op1 == 4 && op2 == 6) { /* VMALLS12E1 */
        flush.what = HVMEM_FLUSH_SPACE;
    } else if (op1 == 4 && op2 == 4) { /* ALLE1 */
        flush.what = HVMEM_FLUSH_REGIME;
    } else if ((op1 == 4 && (op2 == 0 || op2 == 1 || op2 == 5)) || (op1 == 0 && op2 == 0)) {
        return; /* EL2, or combined entries of a guest's first stage: the model has none */
    } else {
        s->unknown = "TLBI";
        return;
    }
    hvmem_sim_tlb_issue(&m->tlb, m->current, &flush);
}

static void replay(struct sim_arm64 *s, struct hvmem_sim_machine *m)
{
    uint32_t vmid = 0, i;
    int issued = 0;

    for (i = 0; i < s->log.count; i++) {
        const struct hvmem_record_event *event = &s->events[i];

        if (event->code == MSR_VTTBR) {
            vmid = (uint32_t)(event->operand[0] >> 48);
        } else if ((event->code & 0xfff8f000u) == 0xd5088000u) {
            tlbi(s, m, event, vmid);
            issued = 1;
        } else if ((event->code & 0xfffff3ffu) == 0xd503339fu && issued) {
            hvmem_sim_tlb_wait(&m->tlb); /* DSB for loads and stores; ST forms wait for no TLBI */
            issued = 0;
        }
    }
    if (issued || s->log.lost)
        s->unknown = "a batch without its last DSB";
}

hvmem_status sim_arm64_flush(struct sim_arm64 *s, struct hvmem_sim_machine *m,
                             const struct hvmem_tlb_flush *flush)
{
    struct hvmem_tlb_flush batch = *flush;
    hvmem_status status;

    batch.space.root &= (1ull << 48) - 1; /* of the machine's own making: fits VTTBR_EL2 then */
    hvmem_record_clear(&s->log);
    status = s->be.ops->tlb_flush(&s->be, &batch);
    if (status == HVMEM_OK)
        replay(s, m);
    return status;
}
