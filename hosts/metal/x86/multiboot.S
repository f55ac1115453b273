/* SPDX-License-Identifier: BSD-2-Clause */
/* Multiboot 1 header with address fields (flag bit 16): loaders refuse an ELF64 image without them. */
#define MAGIC 0x1badb002
#define FLAGS 0x00010003
    .section .header.multiboot, "a"
    .balign 4
header:
    .long   MAGIC
    .long   FLAGS
    .long   -(MAGIC + FLAGS)
    .long   header
    .long   metal__image_start
    .long   metal__image_load_end
    .long   metal__image_end
    .long   metal__entry_multiboot

    .section .note.GNU-stack, "", @progbits
