/* SPDX-License-Identifier: BSD-2-Clause */
/* The ELF note that makes an image bootable by PVH: type 18 of owner "Xen", the 32-bit entry point. */
    .section .note.pvh, "a", @note
    .balign 4
    .long   4
    .long   4
    .long   18
    .asciz  "Xen"
    .long   metal__entry_pvh

    .section .note.GNU-stack, "", @progbits
