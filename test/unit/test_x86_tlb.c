/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * x86 TLB batches through the recorder: every request x feature set x control registers x erratum is
 * judged by the rules of x86_rules.h, and each event of the logs is proven to be needed.
 */
#include "coverage.h"
#include "x86_rig.h"
#include "test_main.h"

#include <string.h>

static struct x86_rig rig;

/* What the contract and hvmem/x86.h say about a request with good ranges and ids. */
static hvmem_status expected(const struct x86_rig *r, uint32_t what, uint32_t scope,
                             uint32_t regime)
{
    uint32_t f = r->flags;
    int broadcast = (f & F_INVLPGB) != 0;

    if (scope == HVMEM_SCOPE_OUTER || (scope == HVMEM_SCOPE_INNER && !broadcast))
        return HVMEM_E_UNSUPPORTED;
    if (what == HVMEM_FLUSH_ALL)
        return scope == HVMEM_SCOPE_INNER && (f & F_VMX) ? HVMEM_E_UNSUPPORTED
               : (f & F_SVM) && !broadcast               ? HVMEM_E_UNSUPPORTED
                                                         : HVMEM_OK;
    if (regime < HVMEM_REGIME_STAGE2)
        return HVMEM_OK;
    if (f & F_SVM)
        return broadcast || (regime == HVMEM_REGIME_GUEST && what == HVMEM_FLUSH_RANGES)
                   ? HVMEM_OK
                   : HVMEM_E_UNSUPPORTED;
    return (f & F_VMX) && scope == HVMEM_SCOPE_LOCAL ? HVMEM_OK : HVMEM_E_UNSUPPORTED;
}

/* Without any one of its events the log must be judged wrong: every instruction is needed. */
static void each_event_is_needed(struct x86_rig *r)
{
    static struct hvmem_record_event whole[X86_RIG_EVENTS];
    uint32_t count = r->log.count, i;

    memcpy(whole, r->events, count * sizeof(whole[0]));
    for (i = 0; i < count; i++) {
        memcpy(r->events, whole, i * sizeof(whole[0]));
        memcpy(r->events + i, whole + i + 1, (count - i - 1) * sizeof(whole[0]));
        r->log.count = count - 1;
        if (!CHECK(x86_rules_tlb(&r->judged) != NULL || !x86_rig_all_gone(r)))
            test_note("event %u of %u (%u) can be left out", i, count, whole[i].code);
    }
    memcpy(r->events, whole, count * sizeof(whole[0]));
    r->log.count = count;
}

static void try_request(struct x86_rig *r, uint32_t what, uint32_t scope, uint32_t regime)
{
    hvmem_status want = expected(r, what, scope, regime), got;
    const char *broken;
    int gone;

    x86_rig_ask(r, what, scope, regime);
    got = x86_rig_go(r);
    if (!CHECK_EQ(got, want)) {
        test_note("flags %#x what %u scope %u regime %u", r->flags, what, scope, regime);
        return;
    }
    if (want != HVMEM_OK) {
        CHECK_EQ(r->log.count, 0);
        return;
    }
    broken = x86_rules_tlb(&r->judged);
    gone = x86_rig_all_gone(r);
    if (!CHECK(broken == NULL) || !CHECK(gone)) {
        test_note("%s; flags %#x what %u scope %u regime %u", broken ? broken : "something is left",
                  r->flags, what, scope, regime);
        return;
    }
    coverage_judged_x86(&r->log);
    /* Globals that are announced, but cannot exist, cost instructions that nothing needs. */
    if ((r->flags & F_PGE) || !(r->ranges[0].flags & HVMEM_RANGE_GLOBAL))
        each_event_is_needed(r);
}

static void all_requests(struct x86_rig *r, uint32_t flags, uint32_t range_flags)
{
    uint32_t scope, regime, what;

    x86_rig_setup(r, flags);
    r->ranges[0] = (struct hvmem_tlb_range){
        .start = 0x7000, .pages = 9, .level = HVMEM_LEVEL_UNKNOWN, .flags = (uint16_t)range_flags};
    r->ranges[1] = (struct hvmem_tlb_range){.start = 0xffff800040000000,
                                            .pages = 1024,
                                            .stride_shift = 21,
                                            .level = 2,
                                            .flags = (uint16_t)range_flags};
    for (scope = 0; scope <= 2; scope++)
        for (regime = 0; regime <= HVMEM_REGIME_GUEST; regime++)
            for (what = 0; what <= HVMEM_FLUSH_REGIME; what++) {
                r->flush.count = what == HVMEM_FLUSH_RANGES ? 2 : 0;
                if (regime == HVMEM_REGIME_STAGE2)
                    r->ranges[1].start = 0x40000000;
                try_request(r, what, scope, regime);
                r->ranges[1].start = 0xffff800040000000;
            }
}

TEST(every_request_obeys_the_rules)
{
    uint32_t flags, range_flags;

    for (flags = 0; flags < F_ALL; flags++) {
        if ((flags & F_VMX) && (flags & F_SVM))
            continue;
        for (range_flags = 0; range_flags <= 3; range_flags++)
            all_requests(&rig, flags, range_flags);
    }
}

/* Neighbours keep their entries as long as no documented wider form is used. */
TEST(neighbours_keep_their_entries)
{
    struct x86_entry e = {.kind = X86_HOST, .pcid = 5, .bytes = 4096};

    x86_rig_setup(&rig, F_INVPCID | F_PCIDE | F_INVLPGB);
    rig.ranges[0] = (struct hvmem_tlb_range){.start = 0x7000, .pages = 9, .level = 3};
    rig.flush.count = 1;
    x86_rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_USER);
    do {
        CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
        e.pcid = 5;
        for (e.base = 0x7000; e.base < 0x10000; e.base += 4096)
            CHECK(x86_removes(&rig.judged, &e));
        CHECK(!x86_removes(&rig.judged, &e));
        e.base = 0x6000;
        CHECK(!x86_removes(&rig.judged, &e));
        e.base = 0x7000;
        e.pcid = 6;
        CHECK(!x86_removes(&rig.judged, &e));
        rig.flush.scope++;
    } while (rig.flush.scope == HVMEM_SCOPE_INNER);
}

/* INVLPGB takes 8 pages here: 9 pages are two instructions, 2 MiB steps one each 8 blocks. */
TEST(invlpgb_splits_by_the_count)
{
    x86_rig_setup(&rig, F_INVLPGB | F_PCIDE);
    rig.flush.count = 1;
    rig.ranges[0] = (struct hvmem_tlb_range){.start = 0x7000, .pages = 9, .level = 3};
    x86_rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_USER);
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    REQUIRE_EQ(rig.log.count, 3);
    CHECK_EQ(rig.events[0].operand[0], 0x7007);
    CHECK_EQ(rig.events[0].operand[1], 7ull << 32 | 5 << 16);
    CHECK_EQ(rig.events[1].operand[0], 0xf007);
    CHECK_EQ(rig.events[1].operand[1], 5 << 16);
    rig.ranges[0] = (struct hvmem_tlb_range){.start = 0x40000000,
                                             .pages = 9 << 9,
                                             .level = 2,
                                             .stride_shift = 21,
                                             .flags = HVMEM_RANGE_LEAF};
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    REQUIRE_EQ(rig.log.count, 3);
    CHECK_EQ(rig.events[0].operand[0], 0x40000017);
    CHECK_EQ(rig.events[0].operand[1], 1ull << 63 | 7ull << 32 | 5 << 16);
}

/* INVEPT 1 refused by the CPU: INVEPT 2; both refused: an error. INVVPID 0, 1, 2 likewise. */
TEST(invept_and_invvpid_escalate)
{
    x86_rig_setup(&rig, F_VMX);
    x86_rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_STAGE2);
    rig.log.fail_code = HVMEM_X86_INSN_INVEPT;
    rig.log.fail_operand = 1;
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    REQUIRE_EQ(rig.log.count, 2);
    CHECK_EQ(rig.events[1].operand[0], 2);
    x86_rig_ask(&rig, HVMEM_FLUSH_REGIME, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_STAGE2);
    rig.log.fail_operand = 2;
    CHECK_EQ(x86_rig_go(&rig), HVMEM_E_HOST);
    rig.flush.count = 1;
    rig.ranges[0] = (struct hvmem_tlb_range){.start = 0x7000, .pages = 9, .level = 3};
    x86_rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_GUEST);
    rig.log.fail_code = HVMEM_X86_INSN_INVVPID;
    rig.log.fail_operand = 5; /* type 0 of VPID 5 */
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    REQUIRE_EQ(rig.log.count, 2);
    CHECK_EQ(rig.events[1].operand[0], 1 << 16 | 5);
    rig.log.fail_code = 0;
    rig.ids.ept_vpid_cap = 1ull << 20 | 1ull << 26 | 1ull << 32 | 1ull << 42; /* all-forms only */
    REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.events[0].operand[0], 2 << 16);
    x86_rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_STAGE2);
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.events[0].operand[0], 2);
}

TEST(large_batches_become_the_space)
{
    x86_rig_setup(&rig, F_INVPCID | F_PCIDE);
    rig.flush.count = 1;
    rig.ranges[0] =
        (struct hvmem_tlb_range){.start = 0, .pages = HVMEM_X86_BATCH_OPS + 1, .level = 3};
    x86_rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_USER);
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    REQUIRE_EQ(rig.log.count, 1);
    CHECK_EQ(rig.events[0].operand[0], 1 << 16 | 5);
    rig.ranges[0].pages--;
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.log.count, HVMEM_X86_BATCH_OPS);
}

static void refused(hvmem_status want)
{
    CHECK_EQ(x86_rig_go(&rig), want);
    CHECK_EQ(rig.log.count, 0);
}

TEST(bad_input_is_refused_without_an_instruction)
{
    struct hvmem_tlb_range good = {.start = 0x1000, .pages = 1, .level = 3};

    x86_rig_setup(&rig, F_INVPCID | F_VMX);
    rig.flush.count = 1;
    rig.ranges[0] = good;
    x86_rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST);
    rig.ranges[0].start++;
    refused(HVMEM_E_ALIGN);
    rig.ranges[0] = good;
    rig.ranges[0].pages = 0;
    refused(HVMEM_E_RANGE);
    rig.ranges[0].pages = ~0ull;
    refused(HVMEM_E_RANGE);
    rig.ranges[0].pages = 1ull << 40; /* across the canonical hole */
    refused(HVMEM_E_RANGE);
    rig.ranges[0] = good;
    rig.ranges[0].flags = 8;
    refused(HVMEM_E_ARG);
    rig.ranges[0] = good;
    x86_rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_USER);
    rig.flush.space.id = 5;
    refused(HVMEM_E_SPACE); /* a PCID while PCIDE is 0 */
    x86_rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_GUEST);
    rig.flush.space.id = 0;
    refused(HVMEM_E_SPACE);
    rig.flush.space.id = 0x10000;
    refused(HVMEM_E_SPACE);
    x86_rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_STAGE2);
    rig.flush.space.root = 0x5000; /* no walk length */
    refused(HVMEM_E_SPACE);
    x86_rig_ask(&rig, 9, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST);
    refused(HVMEM_E_ARG);
    x86_rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_LOCAL, 9);
    refused(HVMEM_E_ARG);
    x86_rig_setup(&rig, F_USER);
    x86_rig_ask(&rig, HVMEM_FLUSH_ALL, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST);
    refused(HVMEM_E_LEVEL);
}

TEST(guest_entry_gives_tlb_control)
{
    uint32_t value = 99;

    x86_rig_setup(&rig, F_VMX);
    CHECK_EQ(rig.be.ops->guest_entry(&rig.be, HVMEM_ENTRY_FLUSH_ALL, &value), HVMEM_E_UNSUPPORTED);
    x86_rig_setup(&rig, F_SVM); /* with flush by ASID */
    CHECK_EQ(rig.be.ops->guest_entry(&rig.be, 3, &value), HVMEM_E_ARG);
    CHECK_EQ(value, 99);
    CHECK_EQ(rig.be.ops->guest_entry(&rig.be, HVMEM_ENTRY_NOTHING, &value), HVMEM_OK);
    CHECK_EQ(value, 0);
    CHECK_EQ(rig.be.ops->guest_entry(&rig.be, HVMEM_ENTRY_FLUSH_GUEST, &value), HVMEM_OK);
    CHECK_EQ(value, 3);
    CHECK_EQ(rig.be.ops->guest_entry(&rig.be, HVMEM_ENTRY_FLUSH_ALL, &value), HVMEM_OK);
    CHECK_EQ(value, 1);
    rig.ids.exta_edx = 0;
    REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK_EQ(rig.be.ops->guest_entry(&rig.be, HVMEM_ENTRY_FLUSH_GUEST, &value), HVMEM_OK);
    CHECK_EQ(value, 1);
    /* With the host's promise ALL is legal without INVLPGB. */
    rig.config.flags |= HVMEM_X86_SVM_ENTRY_FLUSH;
    REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    x86_rig_ask(&rig, HVMEM_FLUSH_ALL, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST);
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    CHECK(rig.log.count != 0);
}
