/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * arm64 TLB batches through the recorder: every request x level x scope x feature set x erratum is
 * judged by the rules of arm64_rules.h, and each event of the logs is proven to be needed.
 */
#include "arm64_rig.h"
#include "test_main.h"

#include <string.h>

static struct arm64_rig rig;

/* What the contract says about a request with good ranges and ids. */
static hvmem_status expected(uint32_t level, uint32_t flags, uint32_t what, uint32_t scope,
                             uint32_t regime)
{
    if (scope == HVMEM_SCOPE_OUTER && !(flags & (F_OUTER | F_RANGE)))
        return HVMEM_E_UNSUPPORTED;
    if (what != HVMEM_FLUSH_ALL && regime >= HVMEM_REGIME_STAGE2 && level == HVMEM_ARM64_EL1)
        return HVMEM_E_LEVEL;
    return HVMEM_OK;
}

/* Without any one of its events the log must be judged wrong: every instruction is needed. */
static void each_event_is_needed(struct arm64_rig *r)
{
    static struct hvmem_record_event whole[ARM64_RIG_EVENTS];
    uint32_t count = r->log.count, i;

    if (count > 48) /* the same operation many times over */
        return;
    memcpy(whole, r->events, count * sizeof(whole[0]));
    for (i = 0; i < count; i++) {
        memcpy(r->events, whole, i * sizeof(whole[0]));
        memcpy(r->events + i, whole + i + 1, (count - i - 1) * sizeof(whole[0]));
        r->log.count = count - 1;
        if (!CHECK(arm64_rules_tlb(&r->judged) != NULL || !rig_all_gone(r)))
            test_note("event %u of %u (%08x) can be left out", i, count, whole[i].code);
    }
    memcpy(r->events, whole, count * sizeof(whole[0]));
    r->log.count = count;
}

static void describe(const struct arm64_rig *r, uint32_t flags)
{
    test_note("level %u flags %#x shift %u what %u scope %u regime %u", r->config.level, flags,
              r->config.page_shift, r->flush.what, r->flush.scope, r->flush.space.regime);
}

/* One request in the given rig; ranges are set. */
static void try_request(struct arm64_rig *r, uint32_t flags, uint32_t what, uint32_t scope,
                        uint32_t regime)
{
    hvmem_status want = expected(r->config.level, flags, what, scope, regime), got;

    rig_ask(r, what, scope, regime);
    got = rig_go(r);
    if (!CHECK_EQ(got, want)) {
        describe(r, flags);
        return;
    }
    if (want != HVMEM_OK) {
        CHECK_EQ(r->log.count, 0);
        return;
    }
    if (!rig_judge(r)) {
        describe(r, flags);
        return;
    }
    each_event_is_needed(r);
}

static void all_requests(struct arm64_rig *r, uint32_t level, uint32_t flags, uint32_t page_shift)
{
    uint32_t scope, regime, what;

    rig_setup(r, level, flags, page_shift);
    r->ranges[0] = (struct hvmem_tlb_range){
        .start = 5ull << page_shift, .pages = 21, .level = 3, .flags = HVMEM_RANGE_LEAF};
    r->ranges[1] =
        (struct hvmem_tlb_range){.start = 1ull << 32, .pages = 1, .level = HVMEM_LEVEL_UNKNOWN};
    for (scope = 0; scope <= 2; scope++)
        for (regime = 0; regime <= HVMEM_REGIME_GUEST; regime++)
            for (what = 0; what <= HVMEM_FLUSH_REGIME; what++) {
                r->flush.count = what == HVMEM_FLUSH_RANGES ? 2 : 0;
                try_request(r, flags, what, scope, regime);
            }
}

TEST(every_request_obeys_the_rules)
{
    uint32_t level, flags;

    for (level = HVMEM_ARM64_EL1; level <= HVMEM_ARM64_VHE; level++)
        for (flags = 0; flags < F_ALL; flags++)
            all_requests(&rig, level, flags, 12);
}

TEST(every_request_obeys_the_rules_at_every_granule)
{
    uint32_t level, i;
    static const uint32_t sets[] = {0, F_RANGE, F_RANGE | F_TTL,
                                    F_RANGE | F_TTL | F_LPA2 | F_REPEAT};

    for (level = HVMEM_ARM64_EL1; level <= HVMEM_ARM64_VHE; level++)
        for (i = 0; i < 4; i++) {
            all_requests(&rig, level, sets[i], 14);
            all_requests(&rig, level, sets[i], 16);
        }
}

/* The judge itself: logs that are wrong in one way each must not pass. */
TEST(the_judge_catches_wrong_logs)
{
    uint32_t i;

    rig_setup(&rig, HVMEM_ARM64_EL2, F_REPEAT, 12);
    rig.flush.count = 1;
    rig.ranges[0] = (struct hvmem_tlb_range){.start = 0x5000, .pages = 1, .level = 3};
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_STAGE2);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK(arm64_rules_tlb(&rig.judged) == NULL);
    for (i = 0; i < rig.log.count; i++) {
        struct hvmem_record_event keep = rig.events[i];

        if (keep.code == 0xd5033b9f) { /* DSB ISH: too narrow */
            rig.events[i].code = 0xd503379f;
            CHECK(arm64_rules_tlb(&rig.judged) != NULL);
            if (i != 0) { /* waits for stores alone */
                rig.events[i].code = 0xd5033a9f;
                CHECK(arm64_rules_tlb(&rig.judged) != NULL);
            }
        }
        if (keep.code == 0xd50c8020) { /* IPAS2E1IS: local form, next page */
            rig.events[i].code = 0xd50c8420;
            CHECK(arm64_rules_tlb(&rig.judged) != NULL);
            rig.events[i] = keep;
            rig.events[i].operand[0]++;
            CHECK(!rig_all_gone(&rig));
        }
        if (keep.code == 0xd51c2100) { /* VTTBR_EL2: another VMID */
            rig.events[i].operand[0] ^= 1ull << 48;
            CHECK(arm64_rules_tlb(&rig.judged) != NULL);
        }
        rig.events[i] = keep;
    }
}
