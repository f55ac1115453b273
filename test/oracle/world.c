/* SPDX-License-Identifier: BSD-2-Clause */
/* Making and unmaking a heap under test: memory full of garbage, banks, domains, debts, failures. */
#define _GNU_SOURCE
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CANARY_BYTES 64u
#define CANARY       0x3cu
#define TILE_BYTES   ((size_t)16 << 20)

static _Thread_local hvmem_cpu this_cpu;

void world_set_cpu(hvmem_cpu cpu)
{
    this_cpu = cpu;
}

hvmem_cpu world_cpu(void)
{
    return this_cpu;
}

void world_fail(struct world *world, const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&world->guard);
    if (world->failure[0] == '\0') {
        va_start(arguments, format);
        vsnprintf(world->failure, sizeof world->failure, format, arguments);
        va_end(arguments);
    }
    pthread_mutex_unlock(&world->guard);
}

void world_garbage(void *memory, size_t bytes)
{
    const char *fill = getenv("HVMEM_TEST_FILL");
    static uint64_t state = 0x243f6a8885a308d3u;
    unsigned char *at = memory;
    uint64_t seed;
    size_t i;

    if (fill == NULL || strcmp(fill, "random") != 0) {
        memset(memory, fill == NULL ? 0xa5 : strcmp(fill, "ones") == 0 ? 0xff : 0, bytes);
        return;
    }
    seed = __atomic_add_fetch(&state, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
    for (i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        at[i] = (unsigned char)(seed >> 56);
    }
}

/* Memory of exactly `bytes`, 64-byte aligned, with garbage in it and a canary behind. */
static unsigned char *memory_new(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, bytes + CANARY_BYTES);

    if (memory == NULL)
        return NULL;
    world_garbage(memory, bytes);
    memset(memory + bytes, CANARY, CANARY_BYTES);
    return memory;
}

static bool canary_whole(const unsigned char *memory, size_t bytes)
{
    size_t i;

    for (i = 0; i < CANARY_BYTES; i++)
        if (memory[bytes + i] != CANARY)
            return false;
    return true;
}

/*
 * Garbage for tables of terabytes: private copies of one file of 16 MiB, so that only what the heap
 * writes takes memory.
 */
static unsigned char *tiles_new(size_t mapped)
{
    int file = memfd_create("garbage", MFD_CLOEXEC);
    unsigned char *tile = NULL;
    unsigned char *memory;
    size_t at;

    memory = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file < 0 || memory == MAP_FAILED || ftruncate(file, (off_t)TILE_BYTES) != 0)
        abort();
    tile = mmap(NULL, TILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (tile == MAP_FAILED)
        abort();
    world_garbage(tile, TILE_BYTES);
    munmap(tile, TILE_BYTES);
    for (at = 0; at < mapped; at += TILE_BYTES)
        if (mmap(memory + at, TILE_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
            abort();
    close(file);
    return memory;
}

static void table_new(struct world_table *table, size_t bytes)
{
    table->bytes = bytes;
    table->mapped = 0;
    table->memory = NULL;
    if (bytes > 4 * TILE_BYTES) {
        table->mapped = (bytes + TILE_BYTES - 1) / TILE_BYTES * TILE_BYTES;
        table->memory = tiles_new(table->mapped);
    } else if (bytes != 0) {
        table->memory = memory_new(bytes);
    }
}

static void table_delete(struct world *world, struct world_table *table)
{
    if (table->mapped != 0) {
        munmap(table->memory, table->mapped);
        return;
    }
    if (table->memory != NULL && !canary_whole(table->memory, table->bytes))
        world_fail(world, "table of bank %#llx: bytes behind it were written",
                   (unsigned long long)table->base);
    free(table->memory);
}

/* test/bound has another. */
__attribute__((weak)) bool world_is_bound(void)
{
    return false;
}

struct hvmem_config world_config(void)
{
    struct hvmem_config config;

    hvmem_config_default(&config);
    config.max_order = 10;
    config.max_domains = 8;
    return config;
}

struct world *world_new(const struct hvmem_config *config, unsigned flags, hvmem_status *status)
{
    struct world *world = calloc(1, sizeof *world);
    hvmem_status result;

    if (world == NULL)
        abort();
    pthread_mutex_init(&world->guard, NULL);
    world->config = *config;
    world->flags = flags;
    world->online = 1;
    world_set_cpu(0);
    world_host_ops(world);
    world_backend_ops(world);
    world->config.host = (flags & WORLD_NO_HOST) ? NULL : &world->host;
    world->config.host_ctx = world;
    world->config.backend = (flags & WORLD_NO_BACKEND) ? NULL : &world->backend;
    result = hvmem_heap_size(&world->config, &world->bytes);
    if (result == HVMEM_OK) {
        world->memory = memory_new(world->bytes);
        result = hvmem_heap_init(world->memory, world->bytes, &world->config, &world->heap);
    }
    if (status != NULL)
        *status = result;
    if (result == HVMEM_OK)
        return world;
    free(world->memory);
    free(world);
    return NULL;
}

bool world_delete(struct world *world)
{
    unsigned i;
    bool whole;

    for (i = 0; i < world->table_count; i++)
        table_delete(world, &world->tables[i]);
    for (i = 0; i < world->domain_count; i++) {
        if (!canary_whole(world->domains[i].memory, world->domains[i].bytes))
            world_fail(world, "domain %u: bytes behind it were written", world->domains[i].id);
        free(world->domains[i].memory);
    }
    if (!canary_whole(world->memory, world->bytes))
        world_fail(world, "bytes behind the heap's memory were written");
    if (world->counts.mapped != world->counts.unmapped)
        world_fail(world, "%llu mappings, %llu unmapped", (unsigned long long)world->counts.mapped,
                   (unsigned long long)world->counts.unmapped);
    whole = world->failure[0] == '\0';
    if (!whole)
        printf("  world: %s\n", world->failure);
    free(world->memory);
    free(world->debt);
    free(world->stale);
    if (world->content != NULL)
        munmap(world->content, world->debt_frames << world->config.page_shift);
    pthread_mutex_destroy(&world->guard);
    free(world);
    return whole;
}

hvmem_status world_smp(struct world *world)
{
    hvmem_status status = hvmem_smp_enable(world->heap);
    hvmem_cpu cpu;

    world->smp = status == HVMEM_OK;
    for (cpu = 0; cpu < world->config.max_cpus && status == HVMEM_OK; cpu++) {
        if (world->online & (1ull << cpu))
            continue;
        status = hvmem_cpu_online(world->heap, cpu);
        if (status == HVMEM_OK)
            world->online |= 1ull << cpu;
    }
    return status;
}

/* Whether a bank has frames of this range already. */
static bool meets_table(const struct world *world, hvmem_mfn base, hvmem_u64 frames)
{
    unsigned i;

    for (i = 0; i < world->table_count; i++)
        if (base < world->tables[i].base + world->tables[i].frames &&
            world->tables[i].base < base + frames)
            return true;
    return false;
}

hvmem_status world_bank(struct world *world, hvmem_mfn base, hvmem_u64 frames, hvmem_node node,
                        hvmem_u32 flags)
{
    struct hvmem_bank bank = {sizeof bank, flags, base, frames, node, 0};
    struct world_table table = {base, frames, node, flags, NULL, 0, 0};
    hvmem_size bytes = 0;
    hvmem_status status = hvmem_bank_size(world->heap, &bank, &bytes);
    bool fresh;

    if (status != HVMEM_OK)
        return status;
    if (world->table_count == WORLD_MAX_TABLES)
        abort();
    table_new(&table, bytes);
    fresh = !meets_table(world, base, frames);
    if (fresh && flags & HVMEM_BANK_DIRTY) /* once it is there others may allocate */
        world_owe(world, base, frames, HVMEM_OWES_SCRUB);
    status = hvmem_bank_add(world->heap, &bank, table.memory, bytes);
    if (status == HVMEM_OK) {
        world->tables[world->table_count++] = table;
        if (!fresh && flags & HVMEM_BANK_DIRTY)
            world_owe(world, base, frames, HVMEM_OWES_SCRUB);
    } else {
        table_delete(world, &table);
        if (fresh)
            world_forgive(world, base, frames);
    }
    return status;
}

hvmem_status world_remove(struct world *world, hvmem_mfn base, hvmem_u64 frames)
{
    hvmem_status status = hvmem_bank_remove(world->heap, base, frames);
    unsigned i;

    if (status != HVMEM_OK)
        return status;
    for (i = 0; i < world->table_count; i++) {
        if (world->tables[i].base != base || world->tables[i].frames != frames)
            continue;
        table_delete(world, &world->tables[i]);
        world->tables[i] = world->tables[--world->table_count];
        return HVMEM_OK;
    }
    world_fail(world, "removed a bank at %#llx that was never added", (unsigned long long)base);
    return status;
}

struct world_table *world_table_of(struct world *world, hvmem_mfn mfn)
{
    unsigned i;

    for (i = 0; i < world->table_count; i++)
        if (mfn >= world->tables[i].base && mfn - world->tables[i].base < world->tables[i].frames)
            return &world->tables[i];
    return NULL;
}

struct hvmem_domain *world_domain(struct world *world, hvmem_u32 id, hvmem_u64 limit,
                                  hvmem_u64 node_mask, hvmem_status *status)
{
    struct hvmem_domain_config config = {sizeof config, id, limit, node_mask};
    struct world_domain *slot = &world->domains[world->domain_count];
    hvmem_status result;

    if (world->domain_count == WORLD_MAX_DOMAINS)
        abort();
    slot->id = id;
    slot->bytes = hvmem_domain_size(world->heap);
    slot->memory = memory_new(slot->bytes);
    result = hvmem_domain_create(world->heap, slot->memory, slot->bytes, &config, &slot->handle);
    if (status != NULL)
        *status = result;
    if (result == HVMEM_OK) {
        world->domain_count++;
        return slot->handle;
    }
    free(slot->memory);
    return NULL;
}

hvmem_status world_domain_gone(struct world *world, struct hvmem_domain *domain)
{
    hvmem_status status = hvmem_domain_destroy(domain);
    unsigned i;

    if (status != HVMEM_OK)
        return status;
    for (i = 0; i < world->domain_count; i++) {
        if (world->domains[i].handle != domain)
            continue;
        if (!canary_whole(world->domains[i].memory, world->domains[i].bytes))
            world_fail(world, "domain %u: bytes behind it were written", world->domains[i].id);
        memset(world->domains[i].memory, 0xdd, world->domains[i].bytes);
        free(world->domains[i].memory);
        world->domains[i] = world->domains[--world->domain_count];
        break;
    }
    return status;
}

void world_track(struct world *world, hvmem_mfn base, hvmem_u64 frames)
{
    size_t bytes = (size_t)frames << world->config.page_shift;

    world->debt_base = base;
    world->debt_frames = frames;
    world->debt = calloc(frames, 1);
    world->stale = calloc(frames, sizeof *world->stale);
    if (world->debt == NULL || world->stale == NULL)
        abort();
    if (world->flags & WORLD_REAL_MEMORY) {
        world->content = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (world->content == MAP_FAILED)
            abort();
    }
}

void world_owe(struct world *world, hvmem_mfn mfn, hvmem_u64 frames, hvmem_u32 owed)
{
    hvmem_u64 i;

    pthread_mutex_lock(&world->guard);
    for (i = 0; i < frames; i++) {
        hvmem_u64 at = mfn + i - world->debt_base;

        if (mfn + i < world->debt_base || at >= world->debt_frames)
            continue;
        world->debt[at] |= (unsigned char)(owed & ~HVMEM_OWES_TLB);
        if (owed & HVMEM_OWES_TLB)
            world->stale[at] |= world->online;
    }
    pthread_mutex_unlock(&world->guard);
}

void world_forgive(struct world *world, hvmem_mfn mfn, hvmem_u64 frames)
{
    hvmem_u64 i;

    pthread_mutex_lock(&world->guard);
    for (i = 0; i < frames; i++) {
        hvmem_u64 at = mfn + i - world->debt_base;

        if (mfn + i < world->debt_base || at >= world->debt_frames)
            continue;
        world->debt[at] = 0;
        world->stale[at] = 0;
    }
    pthread_mutex_unlock(&world->guard);
}

hvmem_u32 world_owed(struct world *world, hvmem_mfn mfn, hvmem_u64 frames)
{
    hvmem_u32 owed = 0;
    hvmem_u64 i;

    pthread_mutex_lock(&world->guard);
    for (i = 0; i < frames; i++) {
        hvmem_u64 at = mfn + i - world->debt_base;

        if (mfn + i < world->debt_base || at >= world->debt_frames)
            continue;
        owed |= world->debt[at];
        if (world->stale[at] != 0)
            owed |= HVMEM_OWES_TLB;
    }
    pthread_mutex_unlock(&world->guard);
    return owed;
}

void world_forget_cpu(struct world *world, hvmem_cpu cpu)
{
    hvmem_u64 i;

    pthread_mutex_lock(&world->guard);
    for (i = 0; i < world->debt_frames; i++)
        world->stale[i] &= ~(1ull << cpu);
    pthread_mutex_unlock(&world->guard);
}
