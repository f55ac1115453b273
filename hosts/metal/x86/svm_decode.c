/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decoder of the few instructions that the recorder intercepts. Emulators (and CPUs without decode
 * assists) give no operand with the exit, so it is read from the instruction (APM vol. 3, 1.2).
 */
#include "svm.h"

/* REX bits. */
#define REX_B 1u
#define REX_X 2u
#define REX_R 4u

static uint64_t displacement(const uint8_t *p, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    if (bytes == 1 && p[0] >= 0x80)
        value |= ~0xffull;
    if (bytes == 4 && p[3] >= 0x80)
        value |= ~0xffffffffull;
    return value;
}

/*
 * Address of a memory operand whose ModRM byte is at code[at]; returns the offset after it. `ip` is
 * where the instruction begins.
 */
static unsigned memory_operand(const uint8_t *code, unsigned at, unsigned rex,
                               const uint64_t regs[16], uint64_t ip, uint64_t *address)
{
    const unsigned mod = code[at] >> 6;
    const unsigned rm = code[at] & 7;
    unsigned shift_bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    uint64_t base = 0;

    at++;
    if (rm == 4) {
        const uint8_t sib = code[at++];
        const unsigned index = (sib >> 3 & 7u) | ((rex & REX_X) != 0 ? 8 : 0);

        if ((sib & 7) == 5 && mod == 0)
            shift_bytes = 4;
        else
            base = regs[(sib & 7u) | ((rex & REX_B) != 0 ? 8 : 0)];
        if (index != 4)
            base += regs[index] << (sib >> 6);
    } else if (rm == 5 && mod == 0) {
        base = ip + at + 4;
        shift_bytes = 4;
    } else {
        base = regs[rm | ((rex & REX_B) != 0 ? 8 : 0)];
    }
    *address = base + displacement(code + at, shift_bytes);
    return at + shift_bytes;
}

static unsigned decode_cr_write(const uint8_t *code, unsigned at, unsigned rex,
                                const uint64_t regs[16], struct metal_svm_op *op)
{
    const unsigned cr = (code[at] >> 3 & 7u) | ((rex & REX_R) != 0 ? 8 : 0);

    if (cr != 3 && cr != 4)
        return 0;
    op->what = cr == 3 ? METAL_SVM_CR3 : METAL_SVM_CR4;
    op->operand = regs[(code[at] & 7u) | ((rex & REX_B) != 0 ? 8 : 0)];
    return at + 1; /* MOV to a control register ignores mod: always a register */
}

unsigned metal_svm_decode(const uint8_t *code, const uint64_t regs[16], uint64_t ip,
                          struct metal_svm_op *op)
{
    unsigned at = 0, rex = 0;
    int repeat = 0;

    *op = (struct metal_svm_op){0, 0, 0};
    if (code[at] == 0xf3) {
        repeat = 1;
        at++;
    }
    if ((code[at] & 0xf0) == 0x40)
        rex = code[at++];
    if (code[at++] != 0x0f)
        return 0;
    switch (code[at++]) {
    case 0x01:
        if (code[at] == 0xdf) {
            *op = (struct metal_svm_op){METAL_SVM_INVLPGA, (uint32_t)regs[1], regs[0]};
            return at + 1;
        }
        if ((code[at] >> 3 & 7) != 7 || code[at] >> 6 == 3)
            return 0;
        op->what = METAL_SVM_INVLPG;
        return memory_operand(code, at, rex, regs, ip, &op->operand);
    case 0x09:
        *op = (struct metal_svm_op){METAL_SVM_WBINVD, (uint32_t)repeat, 0};
        return at;
    case 0x22:
        return decode_cr_write(code, at, rex, regs, op);
    default:
        return 0;
    }
}
