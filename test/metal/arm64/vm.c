/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes the virtual machine of vm.h and runs its vCPUs. */
#include "test/metal/arm64/vm.h"

#include <hvmem/status.h>

#include "hosts/metal/arm64/cpu.h"
#include "hosts/metal/common/host.h"

static int good(hvmem_status status, const char *what)
{
    if (status == HVMEM_OK)
        return 1;
    metal_printf("vm: %s: %s\n", what, hvmem_status_words(status));
    return 0;
}

static int ident_make(struct vm *vm, const struct vm_options *options)
{
    const struct hvmem_ident_config config = {
        .size = sizeof config,
        .flags = HVMEM_IDENT_BROADCAST,
        .regime = HVMEM_REGIME_STAGE2,
        .first = 1,
        .ids = 255,
        .max_cpus = metal_boot_info()->cpu_count,
        .lock_regime = HVMEM_LOCK_PLAIN,
        .host = options->ops,
        .host_ctx = options->host,
        .backend = options->backend,
    };
    hvmem_size bytes = 0;
    void *memory;

    if (!good(hvmem_ident_size(&config, &bytes), "size of ids"))
        return 0;
    memory = metal_pages(bytes, METAL_PAGE_BYTES);
    if (memory == NULL || !good(hvmem_ident_init(memory, bytes, &config, &vm->ident), "ids"))
        return 0;
    for (unsigned cpu = 0; cpu < config.max_cpus; cpu++)
        if ((metal_online() >> cpu & 1) != 0 &&
            !good(hvmem_ident_cpu_online(vm->ident, cpu, 0xffff), "CPU of ids"))
            return 0;
    return 1;
}

static int space_make(struct vm *vm)
{
    const hvmem_size bytes = hvmem_space_size(vm->ident);
    const struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_STAGE2};

    if (vm->space_memory == NULL)
        vm->space_memory = metal_pages(bytes, METAL_PAGE_BYTES);
    return vm->space_memory != NULL &&
           good(hvmem_space_create(vm->ident, vm->space_memory, bytes, &config, &vm->space),
                "space");
}

static int stage2_make(struct vm *vm, const struct vm_options *options)
{
    const struct hvmem_stage2_config config = {
        .size = sizeof config,
        .flags = options->flags,
        .format = HVMEM_S2_ARM64,
        .input_bits = VM_INPUT_BITS,
        .start_level = HVMEM_S2_LEVEL_AUTO,
        .output_bits = 44,
        .id_bits = 8,
        .largest = options->largest,
        .node = HVMEM_NODE_ANY,
        .heap = options->heap,
        .domain = options->domain,
        .space = vm->space,
    };
    hvmem_size bytes = 0;

    if (!good(hvmem_stage2_size(&config, &bytes), "size of stage 2"))
        return 0;
    if (vm->s2_memory == NULL)
        vm->s2_memory = metal_pages(bytes, METAL_PAGE_BYTES);
    return vm->s2_memory != NULL &&
           good(hvmem_stage2_init(vm->s2_memory, bytes, &config, &vm->s2), "stage 2");
}

int vm_make(struct vm *vm, const struct vm_options *options)
{
    vm->heap = options->heap;
    if (options->ident != NULL)
        vm->ident = options->ident;
    return (vm->ident != NULL || ident_make(vm, options)) && space_make(vm) &&
           stage2_make(vm, options);
}

void vm_load(void *arg)
{
    struct vm *vm = arg;
    const uint64_t irq = metal_irq_save();
    struct hvmem_entry entry;
    hvmem_u64 value = 0;

    if (good(hvmem_space_activate(vm->space, metal_cpu_id(), &entry), "activate") &&
        good(hvmem_stage2_root(vm->s2, entry.id, &value), "root")) {
        write_sysreg(vttbr_el2, value);
        isb();
        good(hvmem_space_entered(vm->ident, metal_cpu_id()), "entered");
        vm->vttbr = value;
    }
    metal_irq_restore(irq);
}

void vm_unload(struct vm *vm, int load_none)
{
    const uint64_t irq = metal_irq_save();

    good(hvmem_space_deactivate(vm->ident, metal_cpu_id()), "deactivate");
    if (load_none) {
        write_sysreg(vttbr_el2, 0);
        isb();
    }
    good(hvmem_space_entered(vm->ident, metal_cpu_id()), "entered");
    metal_irq_restore(irq);
}

int vm_map_identity(struct vm *vm, uint64_t base, uint64_t bytes)
{
    const struct hvmem_stage2_map map = {.size = sizeof map,
                                         .gfn = base >> METAL_PAGE_SHIFT,
                                         .mfn = base >> METAL_PAGE_SHIFT,
                                         .frames = bytes >> METAL_PAGE_SHIFT,
                                         .rights = HVMEM_S2_RWX,
                                         .type = HVMEM_S2_WB};

    return good(hvmem_stage2_map(vm->s2, &map, NULL), "map");
}

static int map_frames(void *vm, hvmem_mfn first, hvmem_u64 frames)
{
    return vm_map_identity(vm, first << METAL_PAGE_SHIFT, frames << METAL_PAGE_SHIFT);
}

int vm_map_image(struct vm *vm)
{
    const uint64_t from = metal_maddr(metal__image_start) & ~4095ull;
    const uint64_t to = (metal_maddr(metal__image_end) + 4095) & ~4095ull;

    return metal_heap_outside(vm->heap, from >> METAL_PAGE_SHIFT, (to - from) >> METAL_PAGE_SHIFT,
                              map_frames, vm);
}

int vm_abort(void *context, uint64_t ipa, unsigned access)
{
    struct vm *vm = context;
    hvmem_u32 outcome;

    _Static_assert(METAL_ACCESS_READ == HVMEM_S2_R && METAL_ACCESS_WRITE == HVMEM_S2_W &&
                       METAL_ACCESS_FETCH == HVMEM_S2_X,
                   "one set of words for kinds of access");
    return hvmem_stage2_fault(vm->s2, ipa, access, &outcome) != HVMEM_OK ||
           outcome > HVMEM_FAULT_AGAIN;
}

int vm_vcpu(struct vm *vm, struct metal_vcpu *v, metal_call_fn fn, void *arg)
{
    const uint64_t range = read_sysreg(id_aa64mmfr0_el1) & 0xF;
    const int rc = metal_guest_init(v, fn, arg, metal_guest_stack());

    v->hcr = METAL_HCR_VM;
    v->vtcr = hvmem_stage2_control(vm->s2) | (range < 5 ? range : 5) << 16;
    v->vttbr = vm->vttbr;
    v->abort = vm_abort;
    v->abort_context = vm;
    return rc == METAL_OK;
}
