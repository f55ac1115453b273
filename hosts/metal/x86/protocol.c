/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Boot data of PVH (start_info) and of multiboot 1: memory map, modules, command line. All of it lies
 * in RAM that the map calls free, so each piece is reserved.
 */
#include "regs.h"

#define ENTRIES_MAX 256u /* of a map; the rest is ignored and reported */
#define MODULES_MAX 64u
#define FROM_UEFI   0x49464555u /* start_info.reserved: made by efi/loader.c */

/* start_info, version 1 (Xen public/arch-x86/hvm/start_info.h). */
struct start_info {
    uint32_t magic, version, flags, module_count;
    uint64_t modules, cmdline, rsdp, map;
    uint32_t map_entries, reserved;
};

struct pvh_entry {
    uint64_t base, bytes;
    uint32_t type, reserved;
};

struct pvh_module {
    uint64_t base, bytes, cmdline, reserved;
};

/* Multiboot specification 0.6.96, 3.3. */
struct multiboot_info {
    uint32_t flags, mem_lower, mem_upper, boot_device, cmdline, module_count, modules, syms[4],
        map_bytes, map;
};

struct multiboot_entry {
    uint32_t size; /* of what follows */
    uint64_t base, bytes;
    uint32_t type;
} __attribute__((packed));

struct multiboot_module {
    uint32_t start, end, string, reserved;
};

static void reserve_text(uint64_t maddr)
{
    const char *text = metal__firmware(maddr, 1);
    uint64_t length = 0;

    while (text != NULL && length < METAL_CMDLINE && text[length] != '\0')
        length++;
    metal__reserve(maddr, length + 1, "boot data");
}

static void cmdline_at(uint64_t maddr)
{
    if (maddr == 0 || metal__firmware(maddr, METAL_CMDLINE) == NULL)
        return;
    reserve_text(maddr);
    metal__cmdline(metal_frame(maddr));
}

static uint32_t at_most(uint32_t count, uint32_t limit, const char *what)
{
    if (count <= limit)
        return count;
    metal_printf("metal: %u %s, %u used\n", count, what, limit);
    return limit;
}

uint64_t metal__pvh(uint64_t maddr)
{
    const struct start_info *info = metal_frame(maddr);
    const struct pvh_module *module;
    const struct pvh_entry *map;
    uint32_t count;

    metal__boot.protocol = info->reserved == FROM_UEFI ? "uefi" : "pvh";
    metal__reserve(maddr, sizeof *info, "boot data");
    cmdline_at(info->cmdline);
    count = at_most(info->module_count, MODULES_MAX, "modules");
    module = metal__firmware(info->modules, count * sizeof *module);
    if (count > 0 && module != NULL) {
        metal__reserve(info->modules, count * sizeof *module, "boot data");
        for (uint32_t i = 0; i < count; i++)
            metal__module_add(module[i].base, module[i].bytes);
    }
    count = info->version >= 1 ? at_most(info->map_entries, ENTRIES_MAX, "map entries") : 0;
    map = metal__firmware(info->map, count * sizeof *map);
    if (count > 0 && map != NULL) {
        metal__reserve(info->map, count * sizeof *map, "boot data");
        for (uint32_t i = 0; i < count; i++)
            metal__map_add(map[i].base, map[i].bytes, map[i].type);
    }
    return info->rsdp;
}

/* Entries lie `size` + 4 bytes apart; a size below the fixed part would not move on. */
static void multiboot_map(const struct multiboot_info *info)
{
    uint64_t at = info->map;
    const uint64_t end = at + info->map_bytes;

    metal__reserve(info->map, info->map_bytes, "boot data");
    for (uint32_t i = 0; i < ENTRIES_MAX && at + sizeof(struct multiboot_entry) <= end; i++) {
        const struct multiboot_entry *e = metal__firmware(at, sizeof *e);

        if (e == NULL || e->size < sizeof *e - 4) {
            metal_printf("metal: map entry %u has size %u, the rest is ignored\n", i,
                         e == NULL ? 0 : e->size);
            return;
        }
        metal__map_add(e->base, e->bytes, e->type);
        at += (uint64_t)e->size + 4;
    }
}

/* QEMU puts the image's file name before the command line, GRUB does not. */
static void drop_file_name(void)
{
    char *line = metal__boot.cmdline;
    size_t word = 0, slash = 0, from, to = 0;

    for (; line[word] != '\0' && line[word] != ' '; word++)
        slash += line[word] == '/';
    if (slash == 0 && (word < 4 || line[word - 4] != '.' || line[word - 1] != 'f'))
        return;
    for (from = word; line[from] == ' '; from++)
        ;
    while ((line[to++] = line[from++]) != '\0')
        ;
}

void metal__multiboot(uint64_t maddr)
{
    const struct multiboot_info *info = metal_frame(maddr);

    metal__boot.protocol = "multiboot";
    metal__reserve(maddr, 128, "boot data");
    if ((info->flags & 1u << 2) != 0)
        cmdline_at(info->cmdline);
    drop_file_name();
    if ((info->flags & 1u << 3) != 0) {
        const uint32_t count = at_most(info->module_count, MODULES_MAX, "modules");
        const struct multiboot_module *m = metal__firmware(info->modules, count * sizeof *m);

        metal__reserve(info->modules, count * sizeof *m, "boot data");
        for (uint32_t i = 0; m != NULL && i < count; i++) {
            if (m[i].string != 0)
                reserve_text(m[i].string);
            metal__module_add(m[i].start, m[i].end > m[i].start ? m[i].end - m[i].start : 0);
        }
    }
    if ((info->flags & 1u << 6) != 0) {
        multiboot_map(info);
    } else if ((info->flags & 1) != 0) {
        metal__map_add(0, (uint64_t)info->mem_lower << 10, METAL_MAP_RAM);
        metal__map_add(1u << 20, (uint64_t)info->mem_upper << 10, METAL_MAP_RAM);
    }
}
