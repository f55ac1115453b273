/* SPDX-License-Identifier: BSD-2-Clause */
/* Tenants of the model machine made, started and ended, by hand and by the library; see sim_rig.h. */
#include "sim_rig.h"

#include <string.h>

static void must(struct sim_rig *rig, hvmem_status status, const char *what)
{
    if (status != HVMEM_OK)
        sim_broken(rig, what);
}

hvmem_status sim_create(struct sim_rig *rig, int tenant)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct hvmem_domain_config config = {.size = sizeof config, .limit = ~0ull};
    hvmem_status status;
    hvmem_mfn root;

    t->busy++;
    status = sim_table_frame(rig, &root);
    if (status == HVMEM_OK) {
        config.id = (hvmem_u32)tenant + 1;
        must(rig,
             hvmem_domain_create(rig->heap, t->memory, hvmem_domain_size(rig->heap), &config,
                                 &t->domain),
             "domain_create");
        sim_space_create(rig, tenant, root);
        sim_attach(rig, tenant);
        t->running = 0;
    }
    t->busy--;
    return status;
}

hvmem_status sim_start(struct sim_rig *rig, int tenant)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct hvmem_cursor cursor;
    hvmem_status status;

    t->busy++;
    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_domain_start_step(t->domain, test_below(&rig->rng, 4), &cursor);
    while (sim_goes_on(rig, status));
    if (status == HVMEM_OK) {
        t->running = 1;
        rig->started++;
    } else if (status != HVMEM_E_OWED && status != HVMEM_E_BUSY) {
        sim_broken(rig, "start");
    }
    t->busy--;
    return status;
}

/* Blocks of others that were mapped here: not any more, now that the id is flushed. */
static void end_loans(struct sim_rig *rig, int tenant)
{
    int i, k;

    for (i = 0; i < SIM_TENANTS; i++)
        for (k = 0; k < SIM_BLOCKS; k++) {
            struct sim_block *b = &rig->tenant[i].block[k];

            if (b->state == SIM_MAPPED && b->guest == tenant)
                b->guest = -1;
        }
}

/* Nobody runs the tenant or will; devices have forgotten it. */
static void stop(struct sim_rig *rig, int tenant)
{
    hvmem_u32 row;

    rig->tenant[tenant].dying = 1;
    for (row = 0; row < rig->cpus + rig->m.config.devices; row++)
        if (rig->loaded[row] == tenant)
            sim_switch(rig, row, -1, 0);
    sim_mapping_end(rig, tenant);
}

/* Blocks that are mapped in another's space: not any more. How many there were. */
static unsigned take_loans_back(struct sim_rig *rig, int tenant)
{
    unsigned n = 0;
    int k;

    for (k = 0; k < SIM_BLOCKS; k++) {
        struct sim_block *b = &rig->tenant[tenant].block[k];

        if (b->state != SIM_MAPPED || b->guest < 0)
            continue;
        sim_set_pages(rig, b->guest, b->guest_page, 0, b->order, 0);
        sim_tell_devices(rig);
        n++;
    }
    return n;
}

static void free_tables(struct sim_rig *rig, int tenant)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    hvmem_u32 slot;

    for (slot = 0; slot < SIM_TABLES; slot++)
        if (hvmem_sim_has_table(&rig->m, &t->space, slot))
            must(rig, hvmem_free(rig->heap, hvmem_sim_unhook(&rig->m, &t->space, slot), 0), "free");
    must(rig, hvmem_free(rig->heap, hvmem_sim_root(&rig->m, &t->space), 0), "free");
    memset(t->at, 0, sizeof t->at);
}

static void gone(struct sim_rig *rig, int tenant)
{
    struct sim_tenant *t = &rig->tenant[tenant];

    must(rig, hvmem_domain_destroy(t->domain), "destroy");
    t->domain = NULL;
    t->dying = 0;
    rig->ended++;
    t->busy--;
}

/*
 * One flush of its id pays for everything that was mapped in its space; what was mapped elsewhere as well
 * is freed with that debt.
 */
void sim_destroy(struct sim_rig *rig, int tenant)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    int k;

    t->busy++;
    must(rig, hvmem_domain_kill(t->domain), "kill");
    stop(rig, tenant);
    sim_space_destroy(rig, tenant);
    end_loans(rig, tenant);
    for (k = 0; k < SIM_BLOCKS; k++) {
        struct sim_block *b = &t->block[k];
        int lent = b->state == SIM_MAPPED && b->guest >= 0;

        if (b->state == SIM_NONE)
            continue;
        if (lent) {
            sim_set_pages(rig, b->guest, b->guest_page, 0, b->order, 0);
            sim_tell_devices(rig);
        }
        b->state = SIM_BUSY;
        must(
            rig,
            hvmem_free_owned(rig->heap, b->mfn, b->order, t->domain, lent ? HVMEM_OWES_FOREIGN : 0),
            "free");
        b->state = SIM_NONE;
    }
    free_tables(rig, tenant);
    gone(rig, tenant);
}

/* Asked by the library once the tenant's id is flushed. */
hvmem_status sim_unmap_all(void *ctx, struct hvmem_cursor *cursor)
{
    struct sim_tenant *t = ctx;
    struct sim_rig *rig = t->rig;
    int tenant = (int)(t - rig->tenant);

    if (!cursor->words[0]++) {
        end_loans(rig, tenant);
        rig->done.torn_foreign += take_loans_back(rig, tenant);
        return HVMEM_AGAIN;
    }
    free_tables(rig, tenant);
    return HVMEM_OK;
}

/* The same by the library: it flushes the id, asks for the tables, and frees what it finds. */
void sim_teardown(struct sim_rig *rig, int tenant)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct hvmem_cursor cursor;
    hvmem_status status;
    int k;

    t->busy++;
    for (k = 0; k < SIM_BLOCKS; k++)
        rig->done.torn_blocks += t->running && t->block[k].state == SIM_MAPPED;
    stop(rig, tenant);
    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_domain_teardown(t->domain, 0, &cursor);
    while (status == HVMEM_AGAIN);
    must(rig, status, "teardown");
    t->handle = NULL;
    for (k = 0; k < SIM_BLOCKS; k++)
        t->block[k].state = SIM_NONE;
    gone(rig, tenant);
}
