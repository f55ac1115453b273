/* SPDX-License-Identifier: BSD-2-Clause */
/* The window of moves.h as a space of the library: identifiers, and CPUs that run it and leave it. */
#include "test/metal/moves.h"

#include "test/metal/subject.h"

struct hvmem_ident *move_ident(uint32_t flags)
{
    const int broadcast = (moves.backend.caps.features & HVMEM_CAP_BROADCAST) != 0;
    const struct hvmem_ident_config config = {
        .size = sizeof config,
        .flags = broadcast ? HVMEM_IDENT_BROADCAST : flags,
        .regime = HVMEM_REGIME_USER,
        .first = 1,
        .ids = 64,
        .max_cpus = moves.cpus,
        .lock_regime = HVMEM_LOCK_PLAIN,
        .host = &moves.ops,
        .host_ctx = &moves.host,
        .backend = &moves.backend,
    };
    struct hvmem_ident *ident = NULL;
    hvmem_size bytes = 0;
    void *memory;

    if (!CHECK_EQUAL(hvmem_ident_size(&config, &bytes), HVMEM_OK))
        return NULL;
    memory = metal_pages(bytes, METAL_PAGE_BYTES);
    if (memory == NULL || !CHECK_EQUAL(hvmem_ident_init(memory, bytes, &config, &ident), HVMEM_OK))
        return NULL;
    for (unsigned cpu = 0; cpu < moves.cpus; cpu++)
        CHECK_EQUAL(hvmem_ident_cpu_online(ident, cpu, 0xffff), HVMEM_OK);
    return ident;
}

struct ends {
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    int id0;
};

static void load(void *arg)
{
    const struct ends *e = arg;
    const uint64_t irq = metal_irq_save();
    struct hvmem_entry entry = {.id = 0};

    CHECK_EQUAL(hvmem_space_activate(e->space, metal_cpu_id(), &entry), HVMEM_OK);
    subject_load_user(entry.id);
    CHECK_EQUAL(hvmem_space_entered(e->ident, metal_cpu_id()), HVMEM_OK);
    metal_irq_restore(irq);
}

void move_load(struct hvmem_ident *ident, struct hvmem_space *space)
{
    struct ends e = {ident, space, 0};

    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), load, &e), METAL_OK);
}

static void unload(void *arg)
{
    const struct ends *e = arg;
    const uint64_t irq = metal_irq_save();

    CHECK_EQUAL(hvmem_space_deactivate(e->ident, metal_cpu_id()), HVMEM_OK);
    if (e->id0)
        subject_load_user(0);
    CHECK_EQUAL(hvmem_space_entered(e->ident, metal_cpu_id()), HVMEM_OK);
    metal_irq_restore(irq);
}

void move_unload(struct hvmem_ident *ident, int id0)
{
    struct ends e = {ident, NULL, id0};

    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), unload, &e), METAL_OK);
}
