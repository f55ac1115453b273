/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guest_ids: spaces, ids and vCPUs of the library drive real guests (AMD SVM). Each entry takes its ASID
 * and TLB_CONTROL from hvmem_vcpu_enter() and is reported by hvmem_space_entered(). More guests than
 * ASIDs on two CPUs: none sees another's page, and no ASID passes to another guest without a flush of
 * all. A page moved under a running guest stays stale until the library's targets were kicked and is
 * fresh after. Emulators forget everything at an entry, so that what an entry owes is judged by the
 * TLB_CONTROL it is given.
 */
#include "backends/x86/insn.h"
#include "hosts/metal/common/host.h"
#include "hosts/metal/x86/svm_guest.h"
#include "test/metal/check.h"

#include <hvmem/vcpu.h>

#define GUESTS  5u
#define IDS     3u
#define WATCHER 1u
#define MOVER   2u

#define ROUNDS        1000u /* where the old page must be seen */
#define FEW           100u  /* the same with the other kind of ASID */
#define TURNS         200u  /* reads of the watching guest before its page is believed */
#define PATIENT       400000000u
#define LOOPS         40u
#define FLUSH_BY_ASID (1u << 6) /* 8000_000A:EDX */

struct guest {
    struct metal_svm_guest svm;
    struct hvmem_space *space;
    struct hvmem_vcpu *vcpu[2]; /* one a CPU */
    uint64_t *page[2];
    struct metal_spin lock;
    uint64_t seen, turns; /* written by the guest itself */
    uint32_t stop;
};

/* What a CPU's ASIDs may hold: whose translations since everything was flushed, 0 = nobody's. */
struct account {
    uint64_t entries, flushes_all, mixed;
    unsigned owner[IDS + 1];
};

static struct guest guests[GUESTS];
static struct account account[2];
static struct hvmem_entry last[2]; /* of each CPU */
static uintptr_t va;               /* what every guest reads */
static uint64_t target;            /* its guest-physical address */

static struct hvmem_x86 x86;
static struct hvmem_backend backend;
static struct metal_host host;
static struct hvmem_host_ops ops;
static struct hvmem_ident *ident;
static struct hvmem_vcpus *vcpus;
static uint8_t ident_memory[4096] __attribute__((aligned(64)));
static uint8_t vcpus_memory[1024] __attribute__((aligned(64)));
static uint8_t space_memory[GUESTS][1024] __attribute__((aligned(64)));
static uint8_t vcpu_memory[GUESTS][2][256] __attribute__((aligned(64)));

/* ---- what guests do ---- */

static void look(void *arg)
{
    struct guest *g = arg;

    g->seen = *(volatile uint64_t *)va;
    g->turns++;
}

static void watch(void *arg)
{
    struct guest *g = arg;

    while (__atomic_load_n(&g->stop, __ATOMIC_RELAXED) == 0)
        look(g);
}

/* Guest `index` finds its page number `which` at the address that all read. */
static void place(unsigned index, unsigned which)
{
    CHECK_EQUAL(
        metal_svm_guest_place(&guests[index].svm, target, metal_maddr(guests[index].page[which])),
        METAL_OK);
}

static uint64_t signature(unsigned index, unsigned which)
{
    return (uint64_t)(index + 1) << 8 | which;
}

/* ---- one entry ---- */

/* Enters the guest's vCPU of this CPU once, as the library says; returns how the run ended. */
static int enter(struct guest *g, struct hvmem_entry *entry)
{
    const unsigned cpu = metal_cpu_id();
    struct hvmem_vcpu *vcpu = g->vcpu[cpu];
    const uint64_t irq = metal_irq_save(); /* a kick waits for the guest */
    hvmem_status status = hvmem_vcpu_enter(vcpu, cpu, entry);
    int how = METAL_E_INVAL;

    CHECK_EQUAL(status, HVMEM_OK);
    if (status == HVMEM_OK) {
        how = metal_svm_guest_run(&g->svm, entry->id, (uint8_t)entry->value);
        status = hvmem_space_entered(ident, cpu);
        CHECK_EQUAL(status, HVMEM_OK);
        status = hvmem_vcpu_exit(vcpu, cpu);
        CHECK_EQUAL(status, HVMEM_OK);
    }
    metal_irq_restore(irq);
    return how;
}

/* What this CPU's ASIDs may hold after an entry. */
static void account_for(unsigned index, const struct hvmem_entry *entry)
{
    struct account *a = &account[metal_cpu_id()];

    CHECK(entry->id >= 1 && entry->id <= IDS);
    if (entry->id > IDS)
        return;
    if (entry->value == 1) {
        a->flushes_all++;
        for (unsigned i = 0; i <= IDS; i++)
            a->owner[i] = 0;
    }
    CHECK(a->owner[entry->id] == 0 || a->owner[entry->id] == index + 1);
    a->mixed += a->owner[entry->id] != 0 && a->owner[entry->id] != index + 1;
    a->owner[entry->id] = index + 1;
}

/*
 * Enters until the guest's function has returned: an interrupt that was still on its way may make it
 * leave before.
 */
static void enter_judged(unsigned index, uint64_t expected)
{
    struct guest *g = &guests[index];
    struct hvmem_entry entry;
    int how = METAL_SVM_KICKED;

    g->seen = 0;
    for (unsigned tries = 0; tries < 100 && how == METAL_SVM_KICKED; tries++) {
        how = enter(g, &entry);
        account_for(index, &entry);
        if (tries == 0)
            last[metal_cpu_id()] = entry; /* what was owed, it asked for */
    }
    CHECK_EQUAL(how, METAL_SVM_RETURNED);
    CHECK_EQUAL(g->seen, expected);
    account[metal_cpu_id()].entries++;
}

/* ---- more guests than ids ---- */

static void take_turns(void *arg)
{
    const unsigned cpu = metal_cpu_id();

    (void)arg;
    for (unsigned i = 0; i < LOOPS * GUESTS; i++) {
        const unsigned index = cpu == 0 ? i % GUESTS : GUESTS - 1 - i % GUESTS;

        /* One set of nested tables and one control block a guest: one CPU at a time. */
        metal_spin_lock(&guests[index].lock);
        enter_judged(index, signature(index, 0));
        metal_spin_unlock(&guests[index].lock);
    }
}

static void check_turns(const char *variant)
{
    struct hvmem_ident_stats stats;
    unsigned differ = 0;
    uint64_t flushes = 0, entries = 0;

    CHECK_EQUAL(metal_run_cpus(3, take_turns, NULL), METAL_OK);
    CHECK_EQUAL(hvmem_ident_get_stats(ident, &stats), HVMEM_OK);
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        flushes += account[cpu].flushes_all;
        entries += account[cpu].entries;
        CHECK_EQUAL(account[cpu].mixed, 0);
    }
    for (unsigned id = 1; id <= IDS; id++)
        differ += account[0].owner[id] != account[1].owner[id];
    metal_printf("guests take turns, %s: %u guests, %u ids, %llu entries, "
                 "%llu rollovers\n",
                 variant, GUESTS, IDS, (unsigned long long)entries, (unsigned long long)flushes);
    CHECK_EQUAL(stats.rollovers, flushes);
    CHECK(flushes >= 2 * LOOPS);
    CHECK(differ > 0); /* each CPU numbers for itself */
    CHECK_EQUAL(stats.refused, 0);
}

/* ---- a change, an entry ---- */

static void check_change(int by_asid)
{
    hvmem_u64 change;
    hvmem_u32 before;

    enter_judged(0, signature(0, 0));
    before = last[0].id;
    enter_judged(0, signature(0, 0));
    CHECK_EQUAL(last[0].owed, HVMEM_ENTRY_NOTHING);
    CHECK_EQUAL(last[0].value, 0);
    CHECK_EQUAL(last[0].id, before);
    place(0, 1);
    CHECK_EQUAL(hvmem_space_changed(guests[0].space, &change), HVMEM_OK);
    enter_judged(0, signature(0, 1));
    if (by_asid) {
        CHECK_EQUAL(last[0].owed, HVMEM_ENTRY_FLUSH_GUEST);
        CHECK_EQUAL(last[0].value, 3);
        CHECK_EQUAL(last[0].id, before);
    } else { /* the old number is not used again before everything is flushed */
        CHECK(last[0].id != before || last[0].value == 1);
    }
    enter_judged(0, signature(0, 1));
    CHECK_EQUAL(last[0].value, 0);
    place(0, 0);
    CHECK_EQUAL(hvmem_space_changed(guests[0].space, &change), HVMEM_OK);
}

/* A vCPU that ran elsewhere meanwhile finds nothing of its own on the CPU that it comes back to. */
static void enter_moved(void *arg)
{
    struct hvmem_entry entry;

    (void)arg;
    guests[MOVER].vcpu[metal_cpu_id()] = guests[MOVER].vcpu[0];
    CHECK_EQUAL(enter(&guests[MOVER], &entry), METAL_SVM_RETURNED);
    last[metal_cpu_id()] = entry;
}

static void check_move(int by_asid)
{
    struct hvmem_vcpu *const spare = guests[MOVER].vcpu[1];
    struct hvmem_vcpu *const vcpu = guests[MOVER].vcpu[0];
    hvmem_u32 before;

    enter_moved(NULL);
    enter_moved(NULL);
    CHECK_EQUAL(last[0].owed, HVMEM_ENTRY_NOTHING);
    before = last[0].id;
    CHECK_EQUAL(hvmem_vcpu_migrate(vcpu, 1), HVMEM_OK);
    CHECK_EQUAL(metal_run_cpus(2, enter_moved, NULL), METAL_OK);
    CHECK_EQUAL(hvmem_vcpu_migrate(vcpu, 0), HVMEM_OK);
    enter_moved(NULL);
    if (by_asid)
        CHECK_EQUAL(last[0].value, 3);
    else
        CHECK(last[0].id != before || last[0].value == 1);
    guests[MOVER].vcpu[1] = spare;
}

/* ---- a change under a running guest ---- */

static struct watching {
    uint64_t entries, flushed;
    unsigned rounds;
    int by_asid;
} watching;

/* CPU 1: runs the watching guest; after each kick it passes through the library's entry again. */
static void run_watcher(void)
{
    struct guest *g = &guests[WATCHER];
    struct hvmem_entry entry;
    hvmem_u32 before = 0;
    int how;

    do {
        how = enter(g, &entry);
        watching.flushed +=
            watching.by_asid ? entry.value == 3 : entry.id != before || entry.value == 1;
        before = entry.id;
        __atomic_fetch_add(&watching.entries, 1, __ATOMIC_RELEASE);
    } while (how == METAL_SVM_KICKED);
    CHECK_EQUAL(how, METAL_SVM_RETURNED);
}

/* What the guest reads, after it has read often enough; 0 if it does not. */
static uint64_t read_by_watcher(void)
{
    const uint64_t from = __atomic_load_n(&guests[WATCHER].turns, __ATOMIC_RELAXED);

    for (unsigned i = 0; i < PATIENT; i++) {
        if (__atomic_load_n(&guests[WATCHER].turns, __ATOMIC_ACQUIRE) - from > TURNS)
            return __atomic_load_n(&guests[WATCHER].seen, __ATOMIC_RELAXED);
        metal_relax();
    }
    return 0;
}

static void nothing(void *arg)
{
    (void)arg;
}

/* CPU 0: moves the page, looks, asks those whom the library names, looks again. */
static void move_its_page(void)
{
    const unsigned rounds = watching.rounds;
    unsigned stale = 0, fresh = 0, named = 0;
    uint64_t words[1];
    hvmem_u32 targets;
    hvmem_u64 change;

    CHECK_EQUAL(read_by_watcher(), signature(WATCHER, 0));
    for (unsigned i = 1; i <= rounds; i++) {
        place(WATCHER, i & 1);
        stale += read_by_watcher() == signature(WATCHER, (i & 1) ^ 1);
        CHECK_EQUAL(hvmem_space_changed(guests[WATCHER].space, &change), HVMEM_OK);
        CHECK_EQUAL(hvmem_space_targets(guests[WATCHER].space, 0, words, 1, &targets), HVMEM_OK);
        named += targets == 1 && words[0] == 2;
        CHECK_EQUAL(metal_call_cpus(words[0], nothing, NULL), METAL_OK);
        fresh += read_by_watcher() == signature(WATCHER, i & 1);
    }
    __atomic_store_n(&guests[WATCHER].stop, 1, __ATOMIC_RELAXED);
    metal_printf("guest not kicked: stale %u of %u\n", stale, rounds);
    metal_printf("guest kicked after a change, TLB_CONTROL %s: fresh %u of %u\n",
                 watching.by_asid ? "3" : "0, new ASID", fresh, rounds);
    CHECK(stale >= rounds - rounds / 1000);
    CHECK_EQUAL(fresh, rounds);
    CHECK_EQUAL(named, rounds);
}

static void watch_and_move(void *arg)
{
    (void)arg;
    if (metal_cpu_id() == 0)
        move_its_page();
    else
        run_watcher();
}

static void check_watching(int by_asid)
{
    struct guest *g = &guests[WATCHER];
    metal_call_fn fn = g->svm.fn;

    watching = (struct watching){.by_asid = by_asid, .rounds = by_asid ? ROUNDS : FEW};
    g->stop = 0;
    metal_svm_guest_call(&g->svm, watch, g);
    CHECK_EQUAL(metal_run_cpus(3, watch_and_move, NULL), METAL_OK);
    metal_svm_guest_call(&g->svm, fn, g);
    place(WATCHER, 0);
    CHECK_EQUAL(watching.entries,
                watching.rounds + 1); /* one entry a kick, and each was made to flush */
    CHECK(watching.flushed >= watching.rounds);
}

/* ---- set-up ---- */

static int make_guests(void)
{
    for (unsigned i = 0; i < GUESTS; i++) {
        struct guest *g = &guests[i];

        for (unsigned which = 0; which < 2; which++) {
            g->page[which] = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
            if (g->page[which] == NULL)
                return METAL_E_FULL;
            *g->page[which] = signature(i, which);
        }
        if (metal_svm_guest_make(&g->svm, look, g) != METAL_OK)
            return METAL_E_LACK;
        place(i, 0);
    }
    return METAL_OK;
}

/* The back-end as CPUID describes it, but for the claim to flush by ASID. */
static void make_backend(int by_asid)
{
    struct hvmem_x86_config config = {.size = sizeof config, .flags = HVMEM_X86_SVM};
    struct hvmem_x86_ids ids;

    CHECK_EQUAL(hvmem_x86_init(&x86, &backend, &config), HVMEM_OK);
    hvmem__x86_read_ids(&x86, &ids);
    ids.exta_edx = (ids.exta_edx & ~FLUSH_BY_ASID) | (by_asid ? FLUSH_BY_ASID : 0);
    config.ids = &ids;
    CHECK_EQUAL(hvmem_x86_init(&x86, &backend, &config), HVMEM_OK);
}

static void make_objects(void)
{
    struct hvmem_ident_config ids = {.size = sizeof ids};
    struct hvmem_vcpus_config lists = {.size = sizeof lists, .max_cpus = 2};

    metal_host_ops(&ops);
    ids.flags = HVMEM_IDENT_PER_CPU | HVMEM_IDENT_ENTRY;
    ids.regime = HVMEM_REGIME_STAGE2;
    ids.first = 1;
    ids.ids = IDS;
    ids.max_cpus = 2;
    ids.lock_regime = lists.lock_regime = HVMEM_LOCK_IRQSAVE;
    ids.host = lists.host = &ops;
    ids.host_ctx = lists.host_ctx = &host;
    ids.backend = &backend;
    CHECK_EQUAL(hvmem_ident_init(ident_memory, sizeof ident_memory, &ids, &ident), HVMEM_OK);
    CHECK_EQUAL(hvmem_vcpus_init(vcpus_memory, sizeof vcpus_memory, &lists, &vcpus), HVMEM_OK);
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        CHECK_EQUAL(hvmem_ident_cpu_online(ident, cpu, 0xffff), HVMEM_OK);
        CHECK_EQUAL(hvmem_vcpus_cpu_online(vcpus, cpu), HVMEM_OK);
    }
}

static void make_spaces(void)
{
    for (unsigned i = 0; i < GUESTS; i++) {
        struct hvmem_space_config config = {.size = sizeof config};
        struct guest *g = &guests[i];

        config.regime = HVMEM_REGIME_STAGE2;
        config.flags = i == MOVER ? HVMEM_SPACE_PRIVATE_STAGE1 : 0;
        CHECK_EQUAL(
            hvmem_space_create(ident, space_memory[i], sizeof space_memory[i], &config, &g->space),
            HVMEM_OK);
        for (unsigned cpu = 0; cpu < 2; cpu++)
            CHECK_EQUAL(hvmem_vcpu_attach(vcpus, g->space, vcpu_memory[i][cpu],
                                          sizeof vcpu_memory[i][cpu], cpu, &g->vcpu[cpu]),
                        HVMEM_OK);
    }
}

/* Everything goes, and in the order that the library demands. */
static void end_objects(void)
{
    for (unsigned i = 0; i < GUESTS; i++) {
        CHECK_EQUAL(hvmem_space_destroy(guests[i].space, 0), HVMEM_E_BUSY);
        for (unsigned cpu = 0; cpu < 2; cpu++)
            CHECK_EQUAL(hvmem_vcpu_detach(guests[i].vcpu[cpu]), HVMEM_OK);
    }
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        CHECK_EQUAL(hvmem_space_deactivate(ident, cpu), HVMEM_OK);
        CHECK_EQUAL(hvmem_space_entered(ident, cpu), HVMEM_OK);
        CHECK_EQUAL(hvmem_ident_cpu_offline(ident, cpu), HVMEM_OK);
    }
    for (unsigned i = 0; i < GUESTS; i++)
        CHECK_EQUAL(hvmem_space_destroy(guests[i].space, 0), HVMEM_OK);
}

static void svm_on(void *arg)
{
    (void)arg;
    metal_svm_guests_begin();
}

static void check_variant(int by_asid)
{
    for (unsigned cpu = 0; cpu < 2; cpu++)
        account[cpu] = (struct account){0};
    make_backend(by_asid);
    make_objects();
    make_spaces();
    check_turns(by_asid ? "flush by ASID" : "no flush by ASID");
    check_change(by_asid);
    check_move(by_asid);
    check_watching(by_asid);
    end_objects();
}

static int guest_ids(void)
{
    target = metal_maddr(metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES));
    va = metal_window() + 0x155000;
    CHECK_EQUAL(metal_map(va, target, METAL_4K, METAL_P | METAL_W), METAL_OK);
    if (make_guests() != METAL_OK) {
        metal_printf("no SVM with nested paging here, or no memory\n");
        return 1;
    }
    if (metal_start_cpus(NULL) < 2) {
        metal_printf("needs two CPUs\n");
        return 1;
    }
    CHECK_EQUAL(metal_call_cpus(3, svm_on, NULL), METAL_OK);
    check_variant(1);
    check_variant(0);
    metal_window_clear();
    return check_result();
}

METAL_PROGRAM(guest_ids, guest_ids, slow);
