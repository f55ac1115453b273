/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * costs: what each maintenance operation of the contract costs on this machine, as a table: TLB requests of
 * every regime, scope and form, calls to other CPUs by their number, caches by line and whole, zeroing.
 * Times are the least of several rounds, in ticks of the CPU's counter and in nanoseconds.
 */
#include "bench/bodies/cost_body.h"

#include "test/metal/forms.h"
#include "test/metal/subject.h"

#define CALLS  16u
#define ROUNDS 12u
#define BYTES  (64u << 10)
#define AT_ID  3u

static const char *const regimes[] = {"host", "user", "stage 2", "guest"};

/* ticks of `count` operations: those of one, with a tenth, and its nanoseconds */
static void print_row(const char *name, const char *insns, uint64_t ticks, uint64_t count)
{
    const uint64_t tenths = ticks * 10 / count;
    const uint64_t ns = ticks * 10000000 / metal_cycles_per_ms() / count; /* tenths too */

    metal_printf("  %-38s %8llu.%llu %8llu.%llu  %s\n", name, (unsigned long long)(tenths / 10),
                 (unsigned long long)(tenths % 10), (unsigned long long)(ns / 10),
                 (unsigned long long)(ns % 10), insns);
}

static void print_head(const char *title)
{
    metal_printf("\n  %-38s %10s %10s  %s\n", title, "ticks", "ns", "instructions");
}

static void join(char *text, size_t room, const char *const *words, unsigned count)
{
    size_t at = 0;

    for (unsigned i = 0; i < count; i++) {
        for (const char *w = words[i]; *w != '\0' && at + 2 < room; w++)
            text[at++] = *w;
        if (i + 1 < count && at + 3 < room) {
            text[at++] = ',';
            text[at++] = ' ';
        }
    }
    text[at] = '\0';
}

/* 0: this machine refuses the request. */
static int tlb_row(unsigned regime, unsigned scope, const struct form *form)
{
    const char *const words[] = {regimes[regime], scope_name(scope), form->name};
    struct hvmem_backend *be = subject_backend();
    struct hvmem_tlb_range range;
    uint64_t least = ~0ull;
    char name[64], insns[96];
    struct hvmem_tlb_flush flush =
        request(form, scope, regime, regime >= HVMEM_REGIME_STAGE2 ? AT_ID : 0, &range,
                metal_window() + (1ull << 30));

    if (be->ops->tlb_flush(be, &flush) != HVMEM_OK)
        return 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const uint64_t begin = metal_cycles();
        uint64_t passed;

        for (unsigned i = 0; i < CALLS; i++)
            (void)be->ops->tlb_flush(be, &flush);
        passed = metal_cycles() - begin;
        least = passed < least ? passed : least;
    }
    join(name, sizeof name, words, 3);
    subject_name(&flush, insns, sizeof insns);
    print_row(name, insns, least, CALLS);
    return 1;
}

static void tlb_rows(void)
{
    print_head("TLB, one request");
    for (unsigned regime = HVMEM_REGIME_HOST; regime <= HVMEM_REGIME_GUEST; regime++)
        for (unsigned scope = HVMEM_SCOPE_LOCAL; scope <= HVMEM_SCOPE_OUTER; scope++) {
            unsigned made = 0, asked = 0;

            for (unsigned i = 0; i < FORM_COUNT; i++) {
                if (forms[i].what == HVMEM_FLUSH_ALL && regime != HVMEM_REGIME_HOST)
                    continue; /* the same in every regime */
                asked++;
                made += (unsigned)tlb_row(regime, scope, &forms[i]);
            }
            if (made < asked)
                metal_printf("  (%s, %s: this machine refuses %u of %u forms)\n", regimes[regime],
                             scope_name(scope), asked - made, asked);
        }
}

static void nothing(void *arg)
{
    (void)arg;
}

static void flush_here(void *arg)
{
    (void)subject_backend()->ops->tlb_flush(subject_backend(), arg);
}

/* The shootdown of machines without broadcast: others 1 to 4 are called. */
static int call_rows(void)
{
    struct hvmem_tlb_range range;
    struct hvmem_tlb_flush page = request(&forms[0], HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST, 0,
                                          &range, metal_window() + (1ull << 30));
    char insns[96];

    print_head("calls to other CPUs by IPI");
    subject_name(&page, insns, sizeof insns);
    for (unsigned others = 1; others <= 4; others++) {
        const uint64_t mask = (2ull << others) - 2; /* CPUs 1 to `others` */
        const char *const what[] = {"an empty function", "a page flush"};

        if ((metal_online() & mask) != mask)
            break;
        for (unsigned kind = 0; kind < 2; kind++) {
            const char number[] = {(char)('0' + others), '\0'};
            const char *const words[] = {what[kind], number};
            uint64_t least = ~0ull;
            char name[64];

            for (unsigned round = 0; round < ROUNDS; round++) {
                const uint64_t begin = metal_cycles();
                uint64_t passed;

                if (metal_call_cpus(mask, kind == 0 ? nothing : flush_here, &page) != METAL_OK)
                    return 1;
                passed = metal_cycles() - begin;
                least = passed < least ? passed : least;
            }
            join(name, sizeof name, words, 2);
            print_row(name, kind == 0 ? "-" : insns, least, 1);
        }
    }
    return 0;
}

static hvmem_u64 now(void)
{
    return metal_cycles();
}

static void address_rows(void)
{
    struct hvmem_backend *be = subject_backend();
    void *memory = metal_pages(BYTES, METAL_PAGE_BYTES);
    hvmem_u64 least;

    print_head("caches, per line of 64 KiB");
    if (memory == NULL)
        return;
    for (int kind = COST_CLEAN; kind <= COST_ICACHE; kind++) {
        const uint64_t line = kind == COST_ICACHE ? be->caps.iline : be->caps.dline;

        if (line != 0 &&
            cost_measure(be, (enum cost_kind)kind, memory, BYTES, now, &least) == HVMEM_OK)
            print_row(cost_words((enum cost_kind)kind), "-", least, BYTES / line);
        else
            metal_printf("  (%s: this machine has none)\n", cost_words((enum cost_kind)kind));
    }
    print_head("zeroing, per page of 4 KiB");
    for (int kind = COST_ZERO; kind <= COST_STORES; kind++)
        if (cost_measure(be, (enum cost_kind)kind, memory, BYTES, now, &least) == HVMEM_OK)
            print_row(cost_words((enum cost_kind)kind), "-", least, BYTES / METAL_PAGE_BYTES);
}

static void whole_row(const char *name, unsigned kind)
{
    struct hvmem_backend *be = subject_backend();
    uint64_t least = ~0ull;
    hvmem_status status = HVMEM_OK;

    for (unsigned round = 0; round < ROUNDS / 3 && status == HVMEM_OK; round++) {
        const uint64_t begin = metal_cycles();
        uint64_t passed;

        status = kind < 2
                     ? be->ops->dcache_all(be, kind)
                     : be->ops->icache_all(be, kind == 2 ? HVMEM_SCOPE_LOCAL : HVMEM_SCOPE_INNER);
        passed = metal_cycles() - begin;
        least = passed < least ? passed : least;
    }
    if (status == HVMEM_OK)
        print_row(name, "-", least, 1);
    else
        metal_printf("  (%s: %s)\n", name, hvmem_status_words(status));
}

static int costs(void)
{
    const char *emulator = metal_emulator();
    const unsigned cpus = metal_start_cpus(NULL);

    metal_printf("costs: %s, %u CPUs, %llu counter ticks a ms, ", subject_level(), cpus,
                 (unsigned long long)metal_cycles_per_ms());
    if (emulator != NULL)
        metal_printf("under emulation (%s): they compare with each other, not with hardware\n",
                     emulator);
    else
        metal_printf("no hypervisor or emulator detected\n");
    tlb_rows();
    if (call_rows() != 0)
        return 1;
    address_rows();
    print_head("caches, whole");
    whole_row("D-cache, clean", HVMEM_DC_CLEAN);
    whole_row("D-cache, clean and invalidate", HVMEM_DC_CLEAN_INVALIDATE);
    whole_row("I-cache, this CPU", 2);
    whole_row("I-cache, all CPUs", 3);
    return 0;
}

METAL_PROGRAM(costs, costs);
