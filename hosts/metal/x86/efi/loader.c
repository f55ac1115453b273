/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UEFI application that starts an image of this tree: reads \image.elf and \cmdline.txt from the
 * medium it was started from, makes a PVH start_info of UEFI's memory map and ACPI pointer, leaves boot
 * services and enters the image as a PVH loader does. So UEFI is one more loader, and the image has
 * no second way to boot.
 */
#include "efi.h"

#define PAGE          4096ull
#define FILE_MAX      (16ull << 20)
#define MAP_BYTES     (64ull << 10)
#define ENTRIES_MAX   168u /* of struct map_entry in a page */
#define CMDLINE_MAX   1024u
#define PVH_MAGIC     0x336ec578u
#define PVH_FROM_UEFI 0x49464555u /* "UEFI" in the reserved word: protocol.c names it */

struct start_info {
    uint32_t magic, version, flags, module_count;
    uint64_t modules, cmdline, rsdp, map;
    uint32_t map_entries, reserved;
};

struct map_entry {
    uint64_t base, bytes;
    uint32_t type, reserved;
};

/* What the image is handed, in one allocation below 4 GiB. */
struct handoff {
    uint8_t code[PAGE];
    struct map_entry map[ENTRIES_MAX];
    struct start_info info;
    char cmdline[CMDLINE_MAX];
};

struct elf_header {
    uint8_t ident[16];
    uint16_t type, machine;
    uint32_t version;
    uint64_t entry, phoff, shoff;
    uint32_t flags;
    uint16_t ehsize, phentsize, phnum;
};

struct elf_segment {
    uint32_t type, flags;
    uint64_t offset, vaddr, paddr, filesz, memsz, align;
};

static struct efi_system_table *st;

/* From 64-bit code to a PVH entry: 32-bit protected mode, paging off. RCX = start_info, RDX = entry. */
extern const uint8_t enter_start[], enter_end[];
__asm__(".text\n"
        ".globl enter_start, enter_end\n"
        "enter_start:\n"
        "    cli\n"
        "    movl %ecx, %ebx\n"
        "    movl %edx, %esi\n"
        "    leaq 3f(%rip), %rax\n"
        "    movq %rax, 4f+2(%rip)\n"
        "    lgdt 4f(%rip)\n"
        "    leaq 1f(%rip), %rax\n"
        "    pushq $0x08\n"
        "    pushq %rax\n"
        "    lretq\n"
        ".code32\n"
        "1:  movl $0x10, %eax\n"
        "    movw %ax, %ds\n"
        "    movw %ax, %es\n"
        "    movw %ax, %ss\n"
        "    movw %ax, %fs\n"
        "    movw %ax, %gs\n"
        "    movl %cr0, %eax\n"
        "    andl $0x7fffffff, %eax\n"
        "    movl %eax, %cr0\n"
        "    movl $0xc0000080, %ecx\n"
        "    rdmsr\n"
        "    andl $0xfffffeff, %eax\n"
        "    wrmsr\n"
        "    xorl %eax, %eax\n"
        "    movl %eax, %cr4\n"
        "    movl $0x11, %eax\n"
        "    movl %eax, %cr0\n"
        "    jmpl *%esi\n"
        ".code64\n"
        ".balign 8\n"
        "3:  .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff\n"
        "4:  .word 23\n"
        "    .quad 0\n"
        "enter_end:\n");

static efi_status fail(const uint16_t *what, efi_status status)
{
    st->console->output(st->console, L"metal loader: ");
    st->console->output(st->console, what);
    st->console->output(st->console, L"\r\n");
    return status == EFI_OK ? EFI_LOAD_ERROR : status;
}

/* The compiler calls these for structure copies. */
void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);

void *memcpy(void *to, const void *from, size_t bytes)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return (uint8_t *)to;
}

void *memset(void *to, int value, size_t bytes)
{
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(value) : "memory");
    return (uint8_t *)to;
}

/* Reads at most *bytes of a file; *bytes = what there was. */
static efi_status file_read(efi_handle image, const uint16_t *name, void *buffer, uint64_t *bytes)
{
    static const struct efi_guid loaded = {
        0x5b1b31a1, 0x9562, 0x11d2, {0x8e, 0x3f, 0x00, 0xa0, 0xc9, 0x69, 0x72, 0x3b}};
    static const struct efi_guid system = {
        0x964e5b22, 0x6459, 0x11d2, {0x8e, 0x39, 0x00, 0xa0, 0xc9, 0x69, 0x72, 0x3b}};
    struct efi_loaded_image *self;
    struct efi_file_system *fs;
    struct efi_file *root, *file;
    efi_status status;

    status = st->boot->handle_protocol(image, &loaded, (void **)&self);
    if (status == EFI_OK)
        status = st->boot->handle_protocol(self->device, &system, (void **)&fs);
    if (status == EFI_OK)
        status = fs->open_volume(fs, &root);
    if (status == EFI_OK)
        status = root->open(root, &file, name, 1, 0);
    if (status == EFI_OK)
        status = file->read(file, bytes, buffer);
    return status;
}

/* As loader code: firmware may forbid execution from loader data. */
static efi_status pages_below_4g(uint64_t bytes, uint64_t *address)
{
    *address = 0xffffffffull;
    return st->boot->allocate_pages(EFI_ALLOCATE_MAX, EFI_LOADER_CODE, (bytes + PAGE - 1) / PAGE,
                                    address);
}

/* Puts the loadable segments of the ELF file in place; *entry = where the image begins. */
static efi_status image_place(const uint8_t *file, uint64_t bytes, uint32_t *entry)
{
    const struct elf_header *h = (const struct elf_header *)file;

    if (bytes < sizeof *h || h->ident[0] != 0x7f || h->ident[1] != 'E' || h->machine != 62 ||
        h->phentsize != sizeof(struct elf_segment) || h->phoff > bytes ||
        h->phnum * sizeof(struct elf_segment) > bytes - h->phoff)
        return fail(L"image.elf is no x86-64 ELF file", EFI_LOAD_ERROR);
    for (unsigned i = 0; i < h->phnum; i++) {
        const struct elf_segment *s = (const struct elf_segment *)(file + h->phoff) + i;
        uint64_t at = s->paddr & ~(PAGE - 1);
        const uint64_t pages = (s->paddr - at + s->memsz + PAGE - 1) / PAGE;

        if (s->type != 1)
            continue;
        if (s->offset > bytes || s->filesz > bytes - s->offset || s->filesz > s->memsz)
            return fail(L"image.elf is cut off", EFI_LOAD_ERROR);
        if (st->boot->allocate_pages(EFI_ALLOCATE_EXACT, EFI_LOADER_CODE, pages, &at) != EFI_OK)
            return fail(L"the image's place in memory is taken", EFI_LOAD_ERROR);
        memcpy((void *)s->paddr, file + s->offset, s->filesz);
        memset((void *)(s->paddr + s->filesz), 0, s->memsz - s->filesz);
    }
    *entry = (uint32_t)h->entry;
    return EFI_OK;
}

static uint64_t rsdp_find(void)
{
    static const struct efi_guid acpi = {
        0x8868e871, 0xe4f1, 0x11d3, {0xbc, 0x22, 0x00, 0x80, 0xc7, 0x3c, 0x88, 0x81}};
    const uint64_t *want = (const uint64_t *)&acpi;

    for (uint64_t i = 0; i < st->table_count; i++) {
        const uint64_t *id = (const uint64_t *)&st->tables[i].id;

        if (id[0] == want[0] && id[1] == want[1])
            return st->tables[i].address;
    }
    return 0;
}

/* Numbers of the PVH map: RAM is what is free after boot services; all else that is not ACPI's is kept. */
static uint32_t map_type(uint32_t efi_type)
{
    switch (efi_type) {
    case 1: /* loader code and data: what must be kept of it the image reserves */
    case 2:
    case 3: /* boot services */
    case 4:
    case 7: /* conventional */
        return 1;
    case 9:
        return 3;
    case 10:
        return 4;
    case 8:
        return 5;
    default:
        return 2;
    }
}

/* UEFI's map, sorted and disjoint, with neighbours of one type joined. 0: more entries than fit. */
static uint32_t map_convert(struct map_entry *out, const uint8_t *map, uint64_t bytes,
                            uint64_t stride)
{
    uint32_t count = 0;

    for (uint64_t at = 0; at + sizeof(struct efi_memory) <= bytes; at += stride) {
        const struct efi_memory *m = (const struct efi_memory *)(map + at);
        const uint32_t type = map_type(m->type);
        struct map_entry *last = count > 0 ? &out[count - 1] : NULL;

        if (last != NULL && last->type == type && last->base + last->bytes == m->physical) {
            last->bytes += m->pages * PAGE;
            continue;
        }
        if (count == ENTRIES_MAX)
            return 0;
        out[count++] = (struct map_entry){m->physical, m->pages * PAGE, type, 0};
    }
    return count;
}

/* Leaves boot services with the map in the handoff. A call in between may change the map: once more. */
static efi_status leave(efi_handle image, struct handoff *h, void *buffer)
{
    efi_status status = EFI_BAD_PARAMETER;

    for (unsigned turn = 0; turn < 2 && status == EFI_BAD_PARAMETER; turn++) {
        uint64_t bytes = MAP_BYTES, key, stride;
        uint32_t version;

        status = st->boot->memory_map(&bytes, buffer, &key, &stride, &version);
        if (status != EFI_OK)
            return fail(L"no memory map", status);
        h->info.map_entries = map_convert(h->map, buffer, bytes, stride);
        if (h->info.map_entries == 0)
            return fail(L"the memory map has too many entries", EFI_LOAD_ERROR);
        status = st->boot->exit_boot_services(image, key);
    }
    return status == EFI_OK ? EFI_OK : fail(L"boot services do not end", status);
}

efi_status efi_main(efi_handle image, struct efi_system_table *system);

efi_status efi_main(efi_handle image, struct efi_system_table *system)
{
    uint64_t file, buffer, at, bytes = FILE_MAX, line = CMDLINE_MAX - 1;
    struct handoff *h;
    uint32_t entry;
    efi_status status;

    st = system;
    st->boot->set_watchdog(0, 0, 0, NULL);
    if (pages_below_4g(FILE_MAX, &file) != EFI_OK || pages_below_4g(MAP_BYTES, &buffer) != EFI_OK ||
        pages_below_4g(sizeof *h, &at) != EFI_OK)
        return fail(L"no memory", EFI_LOAD_ERROR);
    h = (struct handoff *)at;
    memset(h, 0, sizeof *h);
    status = file_read(image, L"\\image.elf", (void *)file, &bytes);
    if (status != EFI_OK)
        return fail(L"cannot read image.elf", status);
    status = file_read(image, L"\\cmdline.txt", h->cmdline, &line);
    if (status != EFI_OK)
        return fail(L"cannot read cmdline.txt", status);
    status = image_place((const uint8_t *)file, bytes, &entry);
    if (status != EFI_OK)
        return status;
    h->info = (struct start_info){.magic = PVH_MAGIC,
                                  .version = 1,
                                  .cmdline = (uint64_t)h->cmdline,
                                  .rsdp = rsdp_find(),
                                  .map = (uint64_t)h->map,
                                  .reserved = PVH_FROM_UEFI};
    memcpy(h->code, enter_start, (size_t)(enter_end - enter_start));
    status = leave(image, h, (void *)buffer);
    if (status != EFI_OK)
        return status;
    ((void (*)(uint64_t, uint64_t))h->code)((uint64_t)&h->info, entry);
    for (;;) /* not reached */
        __asm__ volatile("hlt");
}
