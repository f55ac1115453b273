/* SPDX-License-Identifier: BSD-2-Clause */
/* The fixture of guest.h. */
#include "guest.h"

#include "bench/common/figure.h"

#include <stdlib.h>
#include <string.h>

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    (void)be;
    return flush->size == sizeof *flush ? HVMEM_OK : HVMEM_E_VERSION;
}

static const struct hvmem_backend_ops ops = {.size = sizeof ops, .tlb_flush = tlb_flush};

static void *block(struct guest *guest, hvmem_size bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

    FIGURE_REQUIRE(memory != NULL && guest->used < 8);
    guest->blocks[guest->used++] = memory;
    return memory;
}

static void open_ident(struct guest *guest, hvmem_u32 bits)
{
    struct hvmem_ident_config config = {.size = sizeof config};
    hvmem_size bytes;

    guest->backend.ops = &ops;
    config.regime = HVMEM_REGIME_STAGE2;
    config.first = 1;
    config.ids = (1u << bits) - 1;
    config.max_cpus = guest->cpus;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.backend = &guest->backend;
    FIGURE_REQUIRE(hvmem_ident_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_ident_init(block(guest, bytes), bytes, &config, &guest->ident) ==
                   HVMEM_OK);
}

static void open_vcpus(struct guest *guest)
{
    struct hvmem_vcpus_config config = {.size = sizeof config};
    hvmem_size bytes;

    config.max_cpus = guest->cpus;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    FIGURE_REQUIRE(hvmem_vcpus_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_vcpus_init(block(guest, bytes), bytes, &config, &guest->vcpus) ==
                   HVMEM_OK);
}

void guest_open(struct guest *guest, hvmem_u32 bits, hvmem_u32 cpus)
{
    struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_STAGE2};
    hvmem_size bytes;
    hvmem_u32 i;

    memset(guest, 0, sizeof *guest);
    guest->cpus = cpus;
    open_ident(guest, bits);
    open_vcpus(guest);
    bytes = hvmem_space_size(guest->ident);
    for (i = 0; i < cpus; i++) {
        FIGURE_REQUIRE(hvmem_ident_cpu_online(guest->ident, i, 0xffff) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_vcpus_cpu_online(guest->vcpus, i) == HVMEM_OK);
    }
    for (i = 0; i < GUEST_SPACES; i++)
        FIGURE_REQUIRE(hvmem_space_create(guest->ident, block(guest, bytes), bytes, &config,
                                          &guest->spaces[i]) == HVMEM_OK);
    for (i = 0; i < 2; i++)
        FIGURE_REQUIRE(hvmem_vcpu_attach(guest->vcpus, guest->spaces[0],
                                         block(guest, hvmem_vcpu_size()), hvmem_vcpu_size(),
                                         i % cpus, &guest->vcpu[i]) == HVMEM_OK);
    rwlock_guest_init(&guest->lock);
}

void guest_close(struct guest *guest)
{
    while (guest->used > 0)
        free(guest->blocks[--guest->used]);
}
