/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * monitor: runs the arm64 back-end at EL1 below the EL2 monitor, which traps every TLBI, DC and IC, and
 * compares what really executed, operands included, with what the recording twin logs for the same
 * calls. Barriers and DC ZVA do not trap: for those the recorder alone speaks. An image at EL1
 * checks that recording is refused.
 */
#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/agree.h"
#include "test/metal/arm64/twin.h"
#include "test/metal/check.h"
#include "test/metal/forms.h"
#include "test/metal/subject.h"

#define LOG_MAX 65536u

/* One call of the contract. */
struct call {
    enum { CALL_TLB, CALL_DCACHE, CALL_ICACHE, CALL_ICACHE_ALL, CALL_DCACHE_ALL, CALL_ZERO } kind;
    hvmem_u32 op; /* HVMEM_DC_*, or the scope */
    hvmem_uptr addr;
    hvmem_size bytes;
    struct hvmem_tlb_flush flush;
    /* Set by the call. */
    struct hvmem_backend *be;
    hvmem_status status;
};

static struct metal_monitor_op log[LOG_MAX];
static struct hvmem_record_event events[LOG_MAX];
static struct hvmem_record record;
static struct hvmem_arm64 state, twin_state;
static struct hvmem_backend backend, twin;
static struct hvmem_arm64_ids ids;
static hvmem_status made;
static uint8_t area[8192] __attribute__((aligned(4096)));
static unsigned compared; /* instructions */

/* ---- the two back-ends ---- */

static void make_at_el1(void *arg)
{
    const struct hvmem_arm64_config config = {.size = sizeof config, .level = HVMEM_ARM64_EL1};

    (void)arg;
    made = hvmem_arm64_init(&state, &backend, &config);
}

static void make_both(void)
{
    struct hvmem_arm64_config config = {.size = sizeof config, .level = HVMEM_ARM64_EL1};
    int64_t count = metal_monitor_record(make_at_el1, NULL, log, LOG_MAX);

    CHECK_EQUAL(count, 0); /* detection issues no maintenance */
    CHECK_EQUAL(made, HVMEM_OK);
    twin_ids(&ids);
    hvmem_record_init(&record, events, LOG_MAX);
    twin_learn(&record);
    config.ids = &ids;
    config.machine = &record;
    made = twin_arm64_init(&twin_state, &twin, &config);
    CHECK_EQUAL(made, HVMEM_OK);
    CHECK_EQUAL(twin.caps.features, backend.caps.features);
    CHECK_EQUAL(twin.caps.quirks, backend.caps.quirks);
    CHECK_EQUAL(twin.caps.dline, backend.caps.dline);
    CHECK_EQUAL(twin.caps.iline, backend.caps.iline);
}

static void make_call(void *arg)
{
    struct call *c = arg;
    struct hvmem_backend *be = c->be;

    switch (c->kind) {
    case CALL_TLB:
        c->status = be->ops->tlb_flush(be, &c->flush);
        break;
    case CALL_DCACHE:
        c->status = be->ops->dcache(be, c->op, c->addr, c->bytes);
        break;
    case CALL_ICACHE:
        c->status = be->ops->icache(be, c->addr, c->bytes);
        break;
    case CALL_ICACHE_ALL:
        c->status = be->ops->icache_all(be, c->op);
        break;
    case CALL_DCACHE_ALL:
        c->status = be->ops->dcache_all(be, c->op);
        break;
    default:
        c->status = be->ops->zero(be, c->addr, c->bytes);
        break;
    }
}

/* ---- the comparison ---- */

static void compare(struct call *c, const char *name)
{
    struct call again = *c;
    int64_t count;
    uint32_t agree;

    c->be = &backend;
    count = metal_monitor_record(make_call, c, log, LOG_MAX);
    hvmem_record_clear(&record);
    again.be = &twin;
    make_call(&again);
    CHECK_EQUAL(c->status, again.status);
    CHECK(count >= 0 && count <= LOG_MAX);
    CHECK_EQUAL(record.lost, 0);
    if (count < 0 || count > LOG_MAX)
        return;
    agree = first_difference(log, (uint32_t)count, &record);
    if (agree != (uint32_t)count)
        metal_printf("%s: instruction %u differs\n", name, agree);
    CHECK_EQUAL(agree, (uint32_t)count);
    compared += agree;
    if (c->status == HVMEM_OK && count > 0) {
        CHECK(comparison_can_fail(log, (uint32_t)count, &record));
        print_agreement("el1", log, (uint32_t)count, name);
    }
}

/* ---- the calls ---- */

static void compare_tlb(uint32_t regime, uint32_t id, const struct form *f, uint32_t scope,
                        uint64_t at)
{
    struct hvmem_tlb_range range;
    struct call c = {.kind = CALL_TLB, .flush = request(f, scope, regime, id, &range, at)};

    compare(&c, f->name);
}

static void compare_all_tlb(void)
{
    static const struct form more[] = {
        {"large range", HVMEM_FLUSH_RANGES, 0, 0x12345},
        {"larger than a batch", HVMEM_FLUSH_RANGES, HVMEM_RANGE_LEAF, 1ull << 22},
    };

    for (uint32_t scope = HVMEM_SCOPE_LOCAL; scope <= HVMEM_SCOPE_OUTER; scope++) {
        for (uint32_t i = 0; i < FORM_COUNT; i++) {
            compare_tlb(HVMEM_REGIME_HOST, 0, &forms[i], scope, 0x123456000);
            compare_tlb(HVMEM_REGIME_USER, 0x5A, &forms[i], scope, 0x7FFFFFFFF000 - 34 * 4096);
            compare_tlb(HVMEM_REGIME_STAGE2, 5, &forms[i], scope, 0x40000000); /* refused */
        }
        for (uint32_t i = 0; i < sizeof more / sizeof more[0]; i++)
            compare_tlb(HVMEM_REGIME_USER, 0xFF, &more[i], scope, 1ull << 40);
    }
}

static void compare_all_cache(void)
{
    static const char *const dc_names[] = {"clean", "clean and invalidate", "invalidate",
                                           "clean to unification"};
    struct call c = {.kind = CALL_DCACHE};

    for (c.op = HVMEM_DC_CLEAN; c.op <= HVMEM_DC_CLEAN_POU; c.op++) {
        c.addr = (hvmem_uptr)area + 64;
        c.bytes = 1024;
        compare(&c, dc_names[c.op]);
        c.addr += 3; /* partial lines at both ends */
        c.bytes = 201;
        compare(&c, dc_names[c.op]);
    }
    c.kind = CALL_ICACHE;
    compare(&c, "code");
    c.kind = CALL_ICACHE_ALL;
    for (c.op = HVMEM_SCOPE_LOCAL; c.op <= HVMEM_SCOPE_INNER; c.op++)
        compare(&c, "all code");
    c.kind = CALL_DCACHE_ALL;
    c.op = HVMEM_DC_CLEAN;
    compare(&c, "whole clean");
    c.op = HVMEM_DC_CLEAN_INVALIDATE;
    compare(&c, "whole clean and invalidate");
    c.kind = CALL_ZERO;
    c.addr = (hvmem_uptr)area;
    c.bytes = sizeof area;
    for (unsigned i = 0; i < sizeof area; i++)
        area[i] = 0xA5;
    compare(&c, "zero");
    for (unsigned i = 0; i < sizeof area; i++)
        if (area[i] != 0) {
            CHECK(area[i] == 0);
            break;
        }
}

static void compare_elsewhere(void *arg)
{
    (void)arg;
    compare_tlb(HVMEM_REGIME_HOST, 0, &forms[0], HVMEM_SCOPE_LOCAL, 0x123456000);
    CHECK_EQUAL(log[0].cpu, 1);
}

static void nothing(void *arg)
{
    (void)arg;
}

static int monitor(void)
{
    struct metal_sysop at = {1, 0, 7, 8, 0}; /* AT S1E1R is no maintenance */
    int64_t count;

    if (current_el() != 2) {
        count = metal_monitor_record(nothing, NULL, log, LOG_MAX);
        CHECK_EQUAL(count, METAL_E_LACK);
        CHECK_EQUAL(metal_monitor_execute(&at, 0, 0), METAL_E_LACK);
        return check_result();
    }
    CHECK_EQUAL(metal_monitor_execute(&at, 1, 0), METAL_E_INVAL);
    make_both();
    compare_all_tlb();
    compare_all_cache();
    if (metal_start_cpus(NULL) > 1)
        CHECK_EQUAL(metal_run_cpus(2, compare_elsewhere, NULL), METAL_OK);
    metal_printf("%u instructions executed as recorded\n", compared);
    CHECK(compared > 1000);
    return check_result();
}

METAL_PROGRAM(monitor, monitor);
