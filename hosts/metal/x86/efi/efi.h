/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The few parts of the UEFI interface (UEFI specification 2.10, chapters 4, 7, 13) that the loader
 * calls. Members that it does not call are only counted.
 */
#ifndef METAL_X86_EFI_H
#define METAL_X86_EFI_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t efi_status;
typedef void *efi_handle;

#define EFI_OK            0ull
#define EFI_LOAD_ERROR    (1ull << 63 | 1)
#define EFI_BAD_PARAMETER (1ull << 63 | 2)

#define EFI_ALLOCATE_MAX   1u
#define EFI_ALLOCATE_EXACT 2u

/* Memory types; see map_type() in loader.c. */
#define EFI_LOADER_CODE 1u

struct efi_guid {
    uint32_t a;
    uint16_t b, c;
    uint8_t d[8];
};

struct efi_memory {
    uint32_t type;
    uint32_t pad;
    uint64_t physical, virtual_start, pages, attributes;
};

struct efi_console {
    void *reset;
    efi_status (*output)(struct efi_console *self, const uint16_t *text);
};

struct efi_boot_services {
    uint8_t header[24];
    void *unused_18[2];
    efi_status (*allocate_pages)(uint32_t how, uint32_t type, uint64_t pages, uint64_t *address);
    void *free_pages;
    efi_status (*memory_map)(uint64_t *bytes, void *buffer, uint64_t *key, uint64_t *stride,
                             uint32_t *version);
    void *unused_40[11];
    efi_status (*handle_protocol)(efi_handle handle, const struct efi_guid *id, void **interface);
    void *unused_a0[9];
    efi_status (*exit_boot_services)(efi_handle image, uint64_t key);
    void *unused_f0[2];
    efi_status (*set_watchdog)(uint64_t seconds, uint64_t code, uint64_t bytes, void *data);
};

struct efi_config_table {
    struct efi_guid id;
    uint64_t address;
};

struct efi_system_table {
    uint8_t header[24];
    void *vendor;
    uint64_t revision;
    void *unused_28[3];
    struct efi_console *console;
    void *unused_48[3];
    struct efi_boot_services *boot;
    uint64_t table_count;
    struct efi_config_table *tables;
};

struct efi_loaded_image {
    uint64_t revision;
    void *parent, *system_table;
    efi_handle device;
};

struct efi_file {
    uint64_t revision;
    efi_status (*open)(struct efi_file *self, struct efi_file **file, const uint16_t *name,
                       uint64_t mode, uint64_t attributes);
    void *close, *remove;
    efi_status (*read)(struct efi_file *self, uint64_t *bytes, void *buffer);
};

struct efi_file_system {
    uint64_t revision;
    efi_status (*open_volume)(struct efi_file_system *self, struct efi_file **root);
};

_Static_assert(offsetof(struct efi_boot_services, allocate_pages) == 0x28, "UEFI 4.4");
_Static_assert(offsetof(struct efi_boot_services, memory_map) == 0x38, "UEFI 4.4");
_Static_assert(offsetof(struct efi_boot_services, handle_protocol) == 0x98, "UEFI 4.4");
_Static_assert(offsetof(struct efi_boot_services, exit_boot_services) == 0xe8, "UEFI 4.4");
_Static_assert(offsetof(struct efi_boot_services, set_watchdog) == 0x100, "UEFI 4.4");
_Static_assert(offsetof(struct efi_system_table, console) == 0x40, "UEFI 4.3");
_Static_assert(offsetof(struct efi_system_table, boot) == 0x60, "UEFI 4.3");
_Static_assert(offsetof(struct efi_loaded_image, device) == 0x18, "UEFI 9.1");
_Static_assert(offsetof(struct efi_file, read) == 0x20, "UEFI 13.5");

#endif
