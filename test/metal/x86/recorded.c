/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recorded: the x86 back-end runs as an SVM guest in which INVLPG, CR3 and CR4 writes, WBINVD and
 * INVLPGA are intercepted; what really executed, operands included, must be what its recording twin
 * logs for the same call. Fences, CLFLUSH and zeroing are not intercepted: for those the recorder alone
 * speaks. Each line "recorded ..." names the instructions that agreed.
 */
#include "hosts/metal/x86/svm.h"
#include "test/metal/check.h"
#include "test/metal/forms.h"
#include "test/metal/x86/pair.h"

#define LOG_MAX 8192u
#define AT      0x200000155000ull

/* One call of the contract. */
struct call {
    enum { CALL_TLB, CALL_DCACHE_ALL } kind;
    hvmem_u32 op;
    const struct hvmem_tlb_flush *flush;
    struct hvmem_backend *be;
    hvmem_status status;
};

static struct x86_pair pair;
static struct metal_svm_op log[LOG_MAX];

static void make_call(void *arg)
{
    struct call *c = arg;

    if (c->kind == CALL_TLB)
        c->status = c->be->ops->tlb_flush(c->be, c->flush);
    else
        c->status = c->be->ops->dcache_all(c->be, c->op);
}

/* What the recorder of the machine calls a twin's event; 0 = it does not see it. */
static struct metal_svm_op expected_op(const struct hvmem_record_event *e)
{
    switch (e->code) {
    case HVMEM_X86_INSN_INVLPG:
        return (struct metal_svm_op){METAL_SVM_INVLPG, 0, e->operand[0]};
    case HVMEM_X86_INSN_CR3:
        return (struct metal_svm_op){METAL_SVM_CR3, 0, e->operand[0]};
    case HVMEM_X86_INSN_CR4:
        return (struct metal_svm_op){METAL_SVM_CR4, 0, e->operand[0]};
    case HVMEM_X86_INSN_INVLPGA:
        return (struct metal_svm_op){METAL_SVM_INVLPGA, (uint32_t)e->operand[1], e->operand[0]};
    case HVMEM_X86_INSN_WBINVD:
        return (struct metal_svm_op){METAL_SVM_WBINVD, 0, 0};
    case HVMEM_X86_INSN_WBNOINVD:
        return (struct metal_svm_op){METAL_SVM_WBINVD, 1, 0};
    default:
        return (struct metal_svm_op){0, 0, 0};
    }
}

/* Do the first `count` logged instructions, and no other, agree with the twin's log? */
static int agrees(unsigned count)
{
    unsigned at = 0;

    for (hvmem_u32 i = 0; i < pair.record.count; i++) {
        const struct metal_svm_op op = expected_op(&pair.events[i]);

        if (op.what == 0)
            continue;
        if (at == count || op.what != log[at].what || op.extra != log[at].extra ||
            op.operand != log[at].operand)
            return 0;
        at++;
    }
    return at == count;
}

/* A comparison that cannot fail proves nothing: every kind of wrong log must be seen. */
static void check_comparison(unsigned count)
{
    const struct metal_svm_op right = log[count - 1];

    log[count - 1].operand ^= 0x1000;
    CHECK(!agrees(count));
    log[count - 1] = right;
    log[count - 1].what ^= 7;
    CHECK(!agrees(count));
    log[count - 1] = right;
    CHECK(!agrees(count - 1));
    log[count] = right;
    CHECK(!agrees(count + 1));
    CHECK(agrees(count));
}

static void print_agreement(const char *name, unsigned count)
{
    const char *last = NULL;

    metal_printf("recorded x86-64:");
    for (hvmem_u32 i = 0; i < pair.record.count; i++) {
        const char *insn = x86_pair_insn_name(&pair.events[i]);

        if (expected_op(&pair.events[i]).what == 0 || insn == last)
            continue;
        metal_printf(" %s", insn);
        last = insn;
    }
    metal_printf(": %s: %u instructions\n", name, count);
}

/* The call in the guest and at the twin; returns how many instructions were seen. */
static unsigned compare(struct call *c, const char *name)
{
    unsigned count = 0;
    hvmem_status claimed;

    x86_pair_learn(&pair);
    c->be = &pair.backend;
    CHECK_EQUAL(metal_svm_record(make_call, c, log, LOG_MAX, &count), METAL_OK);
    claimed = c->status;
    c->be = &pair.twin;
    make_call(c);
    CHECK_EQUAL(c->status, claimed);
    CHECK_EQUAL(pair.record.lost, 0);
    if (count >= LOG_MAX || !CHECK(agrees(count)))
        return 0;
    if (claimed != HVMEM_OK) {
        CHECK_EQUAL(count, 0); /* refused: no instruction was issued */
        return 0;
    }
    if (count > 0) {
        check_comparison(count);
        print_agreement(name, count);
    }
    return count;
}

static unsigned compare_flush(const struct hvmem_tlb_flush *flush, const char *name)
{
    struct call c = {.kind = CALL_TLB, .flush = flush};

    return compare(&c, name);
}

static void compare_forms(void)
{
    struct hvmem_tlb_range range;

    for (uint32_t regime = HVMEM_REGIME_HOST; regime <= HVMEM_REGIME_GUEST; regime++)
        for (uint32_t scope = HVMEM_SCOPE_LOCAL; scope <= HVMEM_SCOPE_OUTER; scope++)
            for (unsigned i = 0; i < FORM_COUNT; i++) {
                const uint32_t id = regime >= HVMEM_REGIME_STAGE2 ? 3 : 0;
                const struct hvmem_tlb_flush flush =
                    request(&forms[i], scope, regime, id, &range, AT);

                (void)compare_flush(&flush, forms[i].name);
            }
}

/* Widths, strides, several ranges, and the fall-back of a range that is too long for single pages. */
static void compare_ranges(void)
{
    static const uint64_t pages[] = {1, 2, 33, 512, 4096, 4097};
    struct hvmem_tlb_range many[3];
    struct hvmem_tlb_flush flush;

    for (unsigned i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        flush = request(&forms[0], HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST, 0, &many[0], AT);
        many[0].pages = pages[i];
        CHECK_EQUAL(compare_flush(&flush, "pages"), pages[i] <= HVMEM_X86_BATCH_OPS ? pages[i] : 2);
    }
    many[0].pages = 1024;
    many[0].stride_shift = 21;
    many[0].start = AT & ~0x1fffffull;
    CHECK_EQUAL(compare_flush(&flush, "2 MiB strides"), 2);
    many[1] = many[2] = many[0];
    many[1].start = 0xffff800000000000ull; /* the other canonical half, and its last page */
    many[1].stride_shift = 12;
    many[1].pages = 3;
    many[2].start = 0xfffffffffffff000ull;
    many[2].stride_shift = 12;
    many[2].pages = 1;
    flush.count = 3;
    CHECK_EQUAL(compare_flush(&flush, "three ranges"), 2 + 3 + 1);
    many[2].pages = 2; /* wraps: the whole batch is refused, its good ranges too */
    CHECK_EQUAL(compare_flush(&flush, "wrap"), 0);
    flush.count = 0;
    CHECK_EQUAL(compare_flush(&flush, "empty"), 0);
}

static void compare_cache(void)
{
    struct call c = {.kind = CALL_DCACHE_ALL, .op = HVMEM_DC_CLEAN_INVALIDATE};

    CHECK_EQUAL(compare(&c, "whole cache"), 1);
    c.op = HVMEM_DC_CLEAN;
    CHECK_EQUAL(compare(&c, "whole cache, clean"), 1);
    c.op = 99;
    CHECK_EQUAL(compare(&c, "unknown"), 0);
}

static void compare_all(uint32_t flags)
{
    const struct hvmem_x86_config config = {.size = sizeof config, .flags = flags};

    x86_pair_make(&pair, &config);
    CHECK_EQUAL(pair.twin.caps.features, pair.backend.caps.features);
    CHECK_EQUAL(pair.twin.caps.quirks, pair.backend.caps.quirks);
    compare_forms();
    compare_ranges();
    compare_cache();
}

static void nothing(void *arg)
{
    (void)arg;
}

static int recorded(void)
{
    unsigned count;

    if (metal_svm_record(nothing, NULL, log, 0, &count) == METAL_E_LACK) {
        metal_printf("no SVM with nested paging here\n");
        return 1;
    }
    compare_all(0);
    /* As the host of SVM guests: INVLPGA by address, and the promise that entries flush. */
    compare_all(HVMEM_X86_SVM | HVMEM_X86_SVM_ENTRY_FLUSH);
    return check_result();
}

METAL_PROGRAM(recorded, recorded);
