/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The EL2 monitor: world switch of EL1 state, decoding of exits (DDI 0487, D17.2.37), and execution of
 * trapped maintenance on the guest's behalf.
 */
#include "monitor.h"

#include "cpu.h"
#include "mmu.h"

#define GUEST_STACK_BYTES 16384u
#define SPSR_EL1H_MASKED  0x3C5ull
#define SCTLR_EL1_RUN     (0x30D00800ull | 0x1005)
#define VTCR_RES1         (1ull << 31)

#define EC_WFX       0x01u
#define EC_HVC64     0x16u
#define EC_SMC64     0x17u
#define EC_SYSREG    0x18u
#define EC_FETCH_LOW 0x20u
#define EC_DATA_LOW  0x24u

#define GUEST_SYNC 8u /* vector numbers of an exit from AArch64 */
#define GUEST_IRQ  9u

_Static_assert(offsetof(struct metal_vcpu, pc) == 248, "monitor.S");
_Static_assert(offsetof(struct metal_vcpu, pstate) == 256, "monitor.S");
_Static_assert(offsetof(struct metal_vcpu, abort) == 400, "monitor.S");

unsigned metal__arm_guest_enter(struct metal_vcpu *v);
int metal__arm_abort(struct metal_vcpu *v); /* called by monitor.S */
uint64_t metal__arm_hvc_call(uint64_t value);
extern char metal__arm_guest_return[];
extern char metal__arm_sysops[];
extern char metal__arm_forward_vectors[];

static char guest_stacks[METAL_MAX_CPUS][GUEST_STACK_BYTES]
    __attribute__((aligned(4096), section(".bss.noinit")));

void *metal_guest_stack(void)
{
    return guest_stacks[metal_cpu_id()] + GUEST_STACK_BYTES;
}

int metal_guest_init(struct metal_vcpu *v, metal_call_fn fn, void *arg, void *stack_top)
{
    static const struct metal_vcpu zero = {.pc = 0};

    if (!is_plain_el2())
        return METAL_E_LACK;
    *v = zero;
    v->x[0] = (uint64_t)(uintptr_t)arg;
    v->x[30] = metal_maddr(metal__arm_guest_return);
    v->pc = (uint64_t)(uintptr_t)fn;
    v->pstate = SPSR_EL1H_MASKED;
    v->sp_el1 = metal_maddr(stack_top);
    v->sctlr_el1 = SCTLR_EL1_RUN;
    v->tcr_el1 = metal__arm_mmu_tcr(1);
    v->mair_el1 = metal__arm_cpu[0].mair;
    v->ttbr0_el1 = metal__arm_mmu_root();
    v->vbar_el1 = metal_maddr(metal__arm_vectors);
    v->tpidr_el1 = read_sysreg(tpidr_el1);
    v->vtcr = VTCR_RES1;
    return METAL_OK;
}

/*
 * Loads the guest's EL1 state. Unchanged registers are left alone: writing them may drop
 * translations, in emulators at least, and tests look for stale ones.
 */
static void state_load(const struct metal_vcpu *v)
{
    const uint64_t hcr = v->hcr | METAL_HCR_RW | METAL_HCR_IMO;

#define LOAD(name)                                                                                 \
    if (read_sysreg(name) != v->name)                                                              \
        write_sysreg(name, v->name);
    METAL_VCPU_REGISTERS(LOAD)
#undef LOAD
    if (read_sysreg(vtcr_el2) != v->vtcr)
        write_sysreg(vtcr_el2, v->vtcr);
    if (read_sysreg(vttbr_el2) != v->vttbr)
        write_sysreg(vttbr_el2, v->vttbr);
    if (read_sysreg(hcr_el2) != hcr)
        write_sysreg(hcr_el2, hcr);
    isb();
}

/* Takes the guest's EL1 state over into v and gives the host its per-CPU pointer back. */
static void state_save(struct metal_vcpu *v, uint64_t host_pointer)
{
#define SAVE(name) v->name = read_sysreg(name);
    METAL_VCPU_REGISTERS(SAVE)
#undef SAVE
    write_sysreg(tpidr_el1, host_pointer);
}

static void decode_sysreg(struct metal_guest_exit *e)
{
    const uint32_t iss = (uint32_t)e->esr & 0x1FFFFFF;

    e->kind = METAL_EXIT_SYSREG;
    e->op.op0 = iss >> 20 & 3;
    e->op.op2 = iss >> 17 & 7;
    e->op.op1 = iss >> 14 & 7;
    e->op.crn = iss >> 10 & 15;
    e->op.crm = iss >> 1 & 15;
    e->rt = iss >> 5 & 31;
    e->is_read = iss & 1;
}

static void decode_abort(struct metal_guest_exit *e, enum metal_exit_kind kind)
{
    e->kind = kind;
    e->status = e->esr & 0x3F;
    e->is_write = kind == METAL_EXIT_DATA && (e->esr >> 6 & 1) && !(e->esr >> 8 & 1);
    e->on_walk = e->esr >> 7 & 1;
    e->ipa = (read_sysreg(hpfar_el2) & 0xFFFFFFFFFF0ull) << 8 | (e->far & 0xFFF);
}

static void decode(struct metal_guest_exit *e)
{
    switch (e->esr >> 26 & 0x3F) {
    case EC_WFX:
        e->kind = METAL_EXIT_WFI;
        break;
    case EC_HVC64:
        e->kind = METAL_EXIT_HVC;
        e->imm = e->esr & 0xFFFF;
        break;
    case EC_SMC64:
        e->kind = METAL_EXIT_SMC;
        e->imm = e->esr & 0xFFFF;
        break;
    case EC_SYSREG:
        decode_sysreg(e);
        break;
    case EC_FETCH_LOW:
        decode_abort(e, METAL_EXIT_FETCH);
        break;
    case EC_DATA_LOW:
        decode_abort(e, METAL_EXIT_DATA);
        break;
    default:
        e->kind = METAL_EXIT_OTHER;
        break;
    }
}

/*
 * From the vector of a guest's abort that its vCPU wants to handle, on the guest's own callee-saved
 * registers: 1 if it was resolved. A walk that faulted on its way names the table as address and is
 * a read, whatever the guest wanted.
 */
int metal__arm_abort(struct metal_vcpu *v)
{
    const uint64_t esr = read_sysreg(esr_el2);
    const uint64_t guest_tpidr = read_sysreg(tpidr_el1);
    uint64_t ipa = (read_sysreg(hpfar_el2) & 0xFFFFFFFFFF0ull) << 8;
    unsigned access = METAL_ACCESS_READ;
    int resolved;

    if (!(esr >> 7 & 1)) {
        ipa |= read_sysreg(far_el2) & 0xFFF;
        if ((esr >> 26 & 0x3F) == EC_FETCH_LOW)
            access = METAL_ACCESS_FETCH;
        else if ((esr & (1u << 6 | 1u << 8)) == 1u << 6)
            access = METAL_ACCESS_WRITE;
    }
    if (guest_tpidr == v->host_tpidr)
        return v->abort(v->abort_context, ipa, access) == 0;
    write_sysreg(tpidr_el1, v->host_tpidr);
    resolved = v->abort(v->abort_context, ipa, access) == 0;
    write_sysreg(tpidr_el1, guest_tpidr);
    return resolved;
}

int metal_guest_run(struct metal_vcpu *v, struct metal_guest_exit *exit)
{
    static const struct metal_guest_exit zero = {.imm = 0};
    const uint64_t pointer = read_sysreg(tpidr_el1);
    unsigned vector;

    if (!is_plain_el2())
        return METAL_E_LACK;
    v->host_tpidr = pointer;
    do {
        const uint64_t irq = metal_irq_save();

        state_load(v);
        vector = metal__arm_guest_enter(v);
        *exit = zero;
        exit->esr = read_sysreg(esr_el2);
        exit->far = read_sysreg(far_el2);
        if (vector == GUEST_SYNC)
            decode(exit);
        else
            exit->kind = METAL_EXIT_OTHER;
        state_save(v, pointer);
        if (vector == GUEST_IRQ) {
            metal_irq_enable(); /* taken here, at the host's own vector */
            isb();
        }
        metal_irq_restore(irq);
    } while (vector == GUEST_IRQ);
    return METAL_OK;
}

static void print_exit(const struct metal_vcpu *v, const struct metal_guest_exit *e)
{
    metal_printf("monitor: guest on CPU %u left unexpectedly: kind %u esr 0x%lx pc 0x%lx far 0x%lx "
                 "ipa 0x%lx\n",
                 metal_cpu_id(), (unsigned)e->kind, (unsigned long)e->esr, (unsigned long)v->pc,
                 (unsigned long)e->far, (unsigned long)e->ipa);
}

int metal_guest_call(struct metal_vcpu *v, metal_exit_fn handler, void *context)
{
    struct metal_guest_exit e;

    for (;;) {
        int rc = metal_guest_run(v, &e);

        if (rc != METAL_OK)
            return rc;
        if (e.kind == METAL_EXIT_HVC && e.imm == METAL_HVC_RETURN)
            return METAL_OK;
        rc = handler == NULL ? METAL_GUEST_UNHANDLED : handler(context, v, &e);
        if (rc == METAL_GUEST_UNHANDLED) {
            print_exit(v, &e);
            return METAL_E_INVAL;
        }
        if (rc != 0)
            return rc;
    }
}

uint64_t metal_guest_hvc(uint16_t number, uint64_t value)
{
    return number == METAL_HVC_CALL ? metal__arm_hvc_call(value) : 0;
}

/* ---- recording ---- */

/* TLBI (CRn 8, 9), IC and DC (CRn 7 without the address translations of CRm 8 and 9). */
static int is_maintenance(const struct metal_sysop *op)
{
    return op->op0 == 1 && op->crn >= 7 && op->crn <= 9 &&
           !(op->crn == 7 && (op->crm == 8 || op->crm == 9));
}

int metal_monitor_execute(const struct metal_sysop *op, int has_operand, uint64_t operand)
{
    unsigned index;

    if (!is_plain_el2())
        return METAL_E_LACK;
    if (!is_maintenance(op))
        return METAL_E_INVAL;
    index = (((op->crn - 7u) * 16u + op->crm) * 8u + op->op1) * 8u + op->op2;
    ((void (*)(uint64_t))(uintptr_t)(metal__arm_sysops + index * 16u + (has_operand ? 0u : 8u)))(
        operand);
    return METAL_OK;
}

struct recording {
    struct metal_monitor_op *log;
    uint32_t max;
    uint32_t count;
    struct metal_monitor_el2 *el2; /* NULL: what EL1 does not have is an error */
};

static void note(struct recording *r, const struct metal_sysop *op, int has_operand,
                 uint64_t operand, uint64_t pc)
{
    if (r->count < r->max)
        r->log[r->count] = (struct metal_monitor_op){*op, (uint8_t)has_operand,
                                                     (uint16_t)metal_cpu_id(), operand, pc};
    r->count++;
}

/* Registers of EL2 that code under the monitor may use. */
static uint64_t *el2_register(struct metal_monitor_el2 *el2, const struct metal_sysop *op)
{
    if (op->op0 != 3 || op->op1 != 4 || op->crm != 1 || op->op2 != 0)
        return NULL;
    return op->crn == 2 ? &el2->vttbr : op->crn == 1 ? &el2->hcr : NULL;
}

/*
 * From the vectors of a guest that is written for EL2: an instruction that EL1 does not have, at the
 * guest's ELR_EL1; its tables are the image's, so the word can be read there.
 */
static int forwarded(struct recording *r, struct metal_vcpu *v)
{
    const uint32_t word = *(const uint32_t *)(uintptr_t)v->elr_el1;
    const struct metal_sysop op = {(uint8_t)(word >> 19 & 3), (uint8_t)(word >> 16 & 7),
                                   (uint8_t)(word >> 12 & 15), (uint8_t)(word >> 8 & 15),
                                   (uint8_t)(word >> 5 & 7)};
    const unsigned rt = word & 31;
    const uint64_t operand = rt != 31 ? v->x[rt] : 0;
    uint64_t *kept = el2_register(r->el2, &op);

    if (v->esr_el1 >> 26 != 0 || word >> 22 != 0xD5000000 >> 22)
        return METAL_GUEST_UNHANDLED;
    if (kept != NULL && (word >> 21 & 1) != 0 && rt != 31) {
        v->x[rt] = *kept;
    } else if (kept != NULL) {
        *kept = operand;
        note(r, &op, 1, operand, v->elr_el1);
    } else if ((word >> 21 & 1) == 0 && metal_monitor_execute(&op, rt != 31, operand) == METAL_OK) {
        note(r, &op, rt != 31, operand, v->elr_el1);
    } else {
        return METAL_GUEST_UNHANDLED;
    }
    v->pc = v->elr_el1 + 4;
    v->pstate = v->spsr_el1;
    return 0;
}

/* SCTLR_EL1, TCR_EL1. */
static int is_own_register(const struct metal_sysop *op)
{
    return op->op0 == 3 && op->op1 == 0 && op->crm == 0 &&
           ((op->crn == 1 && op->op2 == 0) || (op->crn == 2 && op->op2 == 2));
}

static int record_exit(void *context, struct metal_vcpu *v, const struct metal_guest_exit *e)
{
    struct recording *r = context;
    const int has_operand = e->rt != 31;
    const uint64_t operand = has_operand ? v->x[e->rt] : 0;

    if (e->kind == METAL_EXIT_HVC && e->imm == METAL_HVC_FORWARD && r->el2 != NULL)
        return forwarded(r, v);
    if (e->kind != METAL_EXIT_SYSREG || e->is_read ||
        (!(r->el2 != NULL && is_own_register(&e->op)) &&
         metal_monitor_execute(&e->op, has_operand, operand) != METAL_OK))
        return METAL_GUEST_UNHANDLED;
    note(r, &e->op, has_operand, operand, v->pc);
    v->pc += 4;
    return 0;
}

static int64_t record(struct metal_vcpu *v, struct recording *r)
{
    int rc;

    v->hcr |= METAL_HCR_RECORD;
    rc = metal_guest_call(v, record_exit, r);
    return rc == METAL_OK ? (int64_t)r->count : rc;
}

int64_t metal_monitor_record_vcpu(struct metal_vcpu *v, struct metal_monitor_op *log, uint32_t max)
{
    struct recording r = {log, max, 0, NULL};

    return record(v, &r);
}

int64_t metal_monitor_record(metal_call_fn fn, void *arg, struct metal_monitor_op *log,
                             uint32_t max)
{
    struct metal_vcpu v;
    const int rc = metal_guest_init(&v, fn, arg, metal_guest_stack());

    return rc == METAL_OK ? metal_monitor_record_vcpu(&v, log, max) : rc;
}

int64_t metal_monitor_record_el2(metal_call_fn fn, void *arg, struct metal_monitor_el2 *el2,
                                 struct metal_monitor_op *log, uint32_t max)
{
    struct recording r = {log, max, 0, el2};
    struct metal_vcpu v;
    const int rc = metal_guest_init(&v, fn, arg, metal_guest_stack());

    if (rc != METAL_OK)
        return rc;
    v.vbar_el1 = metal_maddr(metal__arm_forward_vectors);
    v.hcr = METAL_HCR_TVM;
    return record(&v, &r);
}
