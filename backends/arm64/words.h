/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Instruction words of arm64 system instructions and registers, with Rt = x0, or 31 where there is
 * no operand. The same token becomes the logged code and, through .inst, the issued instruction, so
 * that any assembler for base Armv8-A takes it. Layout: Arm ARM C4.1.93, C5.
 */
#ifndef HVMEM_ARM64_WORDS_H
#define HVMEM_ARM64_WORDS_H

/* Barriers and interrupt mask. */
#define A64_DSB_OSHST  0xd503329f
#define A64_DSB_OSH    0xd503339f
#define A64_DSB_NSHST  0xd503369f
#define A64_DSB_NSH    0xd503379f
#define A64_DSB_ISHST  0xd5033a9f
#define A64_DSB_ISH    0xd5033b9f
#define A64_DSB_SY     0xd5033f9f
#define A64_ISB        0xd5033fdf
#define A64_DAIFSET_IF 0xd50343df

/* Registers: MRS form. The MSR form is the same word without A64_READ. */
#define A64_READ         0x00200000
#define A64_MIDR_EL1     0xd5380000
#define A64_ISAR0_EL1    0xd5380600
#define A64_ISAR1_EL1    0xd5380620
#define A64_MMFR0_EL1    0xd5380700
#define A64_MMFR1_EL1    0xd5380720
#define A64_MMFR2_EL1    0xd5380740
#define A64_CCSIDR_EL1   0xd5390000
#define A64_CLIDR_EL1    0xd5390020
#define A64_CSSELR_EL1   0xd53a0000
#define A64_CTR_EL0      0xd53b0020
#define A64_DCZID_EL0    0xd53b00e0
#define A64_DAIF         0xd53b4220
#define A64_HCR_EL2      0xd53c1100
#define A64_VTTBR_EL2    0xd53c2100
#define A64_SCTLR_EL1    0xd5381000
#define A64_TCR_EL1      0xd5382040
#define A64_SCTLR_EL12   0xd53d1000
#define A64_TCR_EL12     0xd53d2040
#define A64_W_CSSELR_EL1 0xd51a0000
#define A64_W_DAIF       0xd51b4220
#define A64_W_HCR_EL2    0xd51c1100
#define A64_W_VTTBR_EL2  0xd51c2100
#define A64_W_SCTLR_EL1  0xd5181000
#define A64_W_TCR_EL1    0xd5182040
#define A64_W_SCTLR_EL12 0xd51d1000
#define A64_W_TCR_EL12   0xd51d2040

/* Cache instructions. */
#define A64_DC_IVAC    0xd5087620
#define A64_DC_CSW     0xd5087a40
#define A64_DC_CISW    0xd5087e40
#define A64_DC_ZVA     0xd50b7420
#define A64_DC_CVAC    0xd50b7a20
#define A64_DC_CVAU    0xd50b7b20
#define A64_DC_CIVAC   0xd50b7e20
#define A64_IC_IALLUIS 0xd508711f
#define A64_IC_IALLU   0xd508751f
#define A64_IC_IVAU    0xd50b7520

/*
 * TLBI operations the sequences use: X(word with x0 or 31), local, inner and outer shareable. The
 * words are composed by hvmem__arm64_tlbi_word(); this list exists because an instruction must be
 * a literal, and a test holds the two together.
 */
/* clang-format off */
#define A64_TLBI_WORDS(X)                                                                          \
    X(0xd508871f) X(0xd508831f) X(0xd508811f) /* VMALLE1 */                                        \
    X(0xd5088720) X(0xd5088320) X(0xd5088120) /* VAE1 */                                           \
    X(0xd5088740) X(0xd5088340) X(0xd5088140) /* ASIDE1 */                                         \
    X(0xd5088760) X(0xd5088360) X(0xd5088160) /* VAAE1 */                                          \
    X(0xd50887a0) X(0xd50883a0) X(0xd50881a0) /* VALE1 */                                          \
    X(0xd50887e0) X(0xd50883e0) X(0xd50881e0) /* VAALE1 */                                         \
    X(0xd5088620) X(0xd5088220) X(0xd5088520) /* RVAE1 */                                          \
    X(0xd5088660) X(0xd5088260) X(0xd5088560) /* RVAAE1 */                                         \
    X(0xd50886a0) X(0xd50882a0) X(0xd50885a0) /* RVALE1 */                                         \
    X(0xd50886e0) X(0xd50882e0) X(0xd50885e0) /* RVAALE1 */                                        \
    X(0xd50c871f) X(0xd50c831f) X(0xd50c811f) /* ALLE2 */                                          \
    X(0xd50c8720) X(0xd50c8320) X(0xd50c8120) /* VAE2 */                                           \
    X(0xd50c87a0) X(0xd50c83a0) X(0xd50c81a0) /* VALE2 */                                          \
    X(0xd50c8620) X(0xd50c8220) X(0xd50c8520) /* RVAE2 */                                          \
    X(0xd50c86a0) X(0xd50c82a0) X(0xd50c85a0) /* RVALE2 */                                         \
    X(0xd50c879f) X(0xd50c839f) X(0xd50c819f) /* ALLE1 */                                          \
    X(0xd50c87df) X(0xd50c83df) X(0xd50c81df) /* VMALLS12E1 */                                     \
    X(0xd50c8420) X(0xd50c8020) X(0xd50c8400) /* IPAS2E1 */                                        \
    X(0xd50c84a0) X(0xd50c80a0) X(0xd50c8480) /* IPAS2LE1 */                                       \
    X(0xd50c8440) X(0xd50c8040) X(0xd50c8460) /* RIPAS2E1 */                                       \
    X(0xd50c84c0) X(0xd50c80c0) X(0xd50c84e0) /* RIPAS2LE1 */
/* clang-format on */

#endif
