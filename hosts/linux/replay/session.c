/* SPDX-License-Identifier: BSD-2-Clause */
/* An hvmem heap as the player's allocator: made, audited, dumped, compared with its beginning. */
#include "runner.h"

#include <hvmem/domain.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USER_DOMAIN 1u
#define LARGE_ORDER 9u /* 2 MiB */
#define TRACE_CPUS  2u
/* Any page-aligned address does: nothing is mapped there and no instruction is issued. */
#define FLUSH_WINDOW 0x100000000ull

static int complain(const char *what, hvmem_status status)
{
    fprintf(stderr, "hvmem-replay: %s: %s\n", what, hvmem_status_words(status));
    return 1;
}

static hvmem_u64 session_clock(void *host)
{
    (void)host;
    return thread_ns();
}

static void session_wait(void *host)
{
    (void)host;
    hvmem_linux_relax();
}

/* ---- blocks ---- */

/* Every block of the heap; NULL with *count 0 when memory ran out. */
static struct hvmem_block *all_blocks(struct hvmem_heap *heap, size_t *count)
{
    struct hvmem_block *list = NULL;
    struct hvmem_block block;
    hvmem_u64 cursor = 0;
    size_t room = 0;

    *count = 0;
    while (hvmem_walk(heap, &cursor, &block) == HVMEM_AGAIN) {
        if (*count == room) {
            struct hvmem_block *bigger;

            room = room == 0 ? 1024 : room * 2;
            bigger = realloc(list, room * sizeof *bigger);
            if (bigger == NULL) {
                free(list);
                *count = 0;
                return NULL;
            }
            list = bigger;
        }
        list[(*count)++] = block;
    }
    return list;
}

int session_audit(struct heap_session *session)
{
    const char *where = "";
    hvmem_mfn mfn = 0;
    hvmem_status status = hvmem_audit(session->linux_heap.heap, &mfn, &where);

    if (status == HVMEM_OK)
        return 0;
    fprintf(stderr, "hvmem-replay: audit: %s at mfn 0x%" PRIx64 ": %s\n",
            hvmem_status_words(status), (uint64_t)mfn, where);
    return 1;
}

int session_restored(struct heap_session *session)
{
    struct hvmem_block *now;
    size_t count, i;
    int different;

    if (hvmem_drain(session->linux_heap.heap) != HVMEM_OK || session_audit(session) != 0)
        return 1;
    now = all_blocks(session->linux_heap.heap, &count);
    different = count != session->initial_count;
    for (i = 0; !different && i < count; i++)
        different =
            now[i].mfn != session->initial[i].mfn || now[i].order != session->initial[i].order ||
            now[i].state != session->initial[i].state || now[i].node != session->initial[i].node;
    if (different)
        fprintf(stderr, "hvmem-replay: %zu blocks at the start, %zu now, and not the same\n",
                session->initial_count, count);
    free(now);
    return different;
}

int session_large(struct heap_session *session, uint64_t *blocks, uint64_t *possible)
{
    struct hvmem_stats stats;
    hvmem_status status = hvmem_drain(session->linux_heap.heap);
    unsigned order;

    if (status == HVMEM_OK)
        status = hvmem_stats(session->linux_heap.heap, HVMEM_NODE_ANY, sizeof stats, &stats);
    if (status != HVMEM_OK)
        return complain("stats", status);
    *blocks = 0;
    for (order = LARGE_ORDER; order <= HVMEM_ORDER_LIMIT; order++)
        *blocks += stats.free_blocks[order] << (order - LARGE_ORDER);
    *possible = stats.free >> LARGE_ORDER;
    return 0;
}

int session_dump(struct heap_session *session, const char *path, const char *title)
{
    FILE *file = fopen(path, "w");
    size_t count, i;
    struct hvmem_block *list;

    if (file == NULL) {
        perror(path);
        return 1;
    }
    list = all_blocks(session->linux_heap.heap, &count);
    fprintf(file, "dump %s\n", title);
    for (i = 0; i < count; i++)
        fprintf(file, "block %" PRIx64 " %u %u %u %u %u\n", (uint64_t)list[i].mfn, list[i].order,
                list[i].state, list[i].owner, list[i].owed, list[i].node);
    fprintf(file, "dump-end %zu\n", count);
    free(list);
    if (fclose(file) != 0) {
        perror(path);
        return 1;
    }
    return 0;
}

/* ---- life ---- */

static int make_heap(struct heap_session *session, uint64_t node_frames, unsigned flags)
{
    struct hvmem_linux_heap_config config = {.topology = &session->topology,
                                             .node_frames = node_frames,
                                             .flags = HVMEM_LINUX_PREFAULT | HVMEM_LINUX_SMP,
                                             .host = session->host};
    struct hvmem_config base;
    hvmem_status status;

    hvmem_config_default(&base);
    base.max_banks = 256;
    base.backend = &session->backend.backend;
    if ((flags & SESSION_DEBTS) != 0) {
        base.max_domains = USER_DOMAIN;
        base.owed_on_free = HVMEM_OWES_TLB | HVMEM_OWES_SCRUB;
        config.flags |= HVMEM_LINUX_FRAMES;
    }
    config.base = &base;
    status = hvmem_linux_heap_create(&config, &session->linux_heap);
    if (status != HVMEM_OK)
        return complain("heap", status);
    session->initial = all_blocks(session->linux_heap.heap, &session->initial_count);
    return session->initial == NULL;
}

static int make_domain(struct heap_session *session)
{
    struct hvmem_heap *heap = session->linux_heap.heap;
    struct hvmem_domain_config config = {
        .size = sizeof config, .id = USER_DOMAIN, .limit = ~(hvmem_u64)0};
    hvmem_size bytes = hvmem_domain_size(heap);
    hvmem_status status;

    session->domain_memory = aligned_alloc(64, bytes);
    if (session->domain_memory == NULL)
        return complain("domain", HVMEM_E_NOMEM);
    status =
        hvmem_domain_create(heap, session->domain_memory, bytes, &config, &session->player.user);
    if (status != HVMEM_OK)
        return complain("domain", status);
    session->player.user_flags = HVMEM_REQ_DEFER_ALL;
    return 0;
}

int session_open(struct heap_session *session, const char *topology, uint64_t node_frames,
                 unsigned flags)
{
    struct hvmem_linux_host_config host = {.flags = HVMEM_LINUX_PIN | HVMEM_LINUX_KICK};
    hvmem_status status;

    memset(session, 0, sizeof *session);
    status = hvmem_linux_topology(topology, &session->topology);
    if (status != HVMEM_OK)
        return complain("topology", status);
    if (session->topology.cpus < TRACE_CPUS)
        return complain("topology with one CPU only", HVMEM_E_CPU);
    host.cpus = session->topology.cpus;
    status = hvmem_linux_host_create(&host, &session->host);
    if (status != HVMEM_OK)
        return complain("host", status);
    /* Debts are paid by broadcast: what settling costs in calls between threads is not the subject. */
    count_backend_init(&session->backend,
                       HVMEM_CAP_ICOHERENT |
                           ((flags & SESSION_DEBTS) != 0 ? HVMEM_CAP_BROADCAST : 0));
    if ((flags & SESSION_FLUSHES) != 0) {
        session->backend.recorders = recorders_new((flags & SESSION_DEBTS) != 0);
        if (session->backend.recorders == NULL)
            return complain("recorders", HVMEM_E_NOMEM);
        session->backend.forward = recorders_flush;
    }
    if (make_heap(session, node_frames, flags) != 0)
        return 1;
    session->player.heap = session->linux_heap.heap;
    session->player.cpus = TRACE_CPUS;
    session->player.clock = session_clock;
    session->player.wait_turn = session_wait;
    session->player.host = session->host;
    session->player.window = FLUSH_WINDOW;
    session->player.call_cpus = hvmem_linux_ops(session->host)->call_cpus;
    if ((flags & SESSION_FLUSHES) != 0)
        session->player.backend = &session->backend.backend;
    return (flags & SESSION_DEBTS) != 0 ? make_domain(session) : 0;
}

void session_close(struct heap_session *session)
{
    if (session->player.user != NULL) {
        hvmem_status status = hvmem_domain_kill(session->player.user);

        if (status == HVMEM_OK)
            status = hvmem_domain_destroy(session->player.user);
        if (status != HVMEM_OK)
            complain("end of the domain", status);
    }
    if (session->linux_heap.heap != NULL)
        hvmem_linux_heap_destroy(&session->linux_heap);
    hvmem_linux_host_destroy(session->host);
    recorders_delete(session->backend.recorders);
    free(session->domain_memory);
    free(session->initial);
    memset(session, 0, sizeof *session);
}

static uint64_t session_metadata(void *ctx, uint64_t live_bytes)
{
    struct replay_heap *player = ctx;
    struct heap_session *session =
        (struct heap_session *)(void *)((char *)player - offsetof(struct heap_session, player));

    (void)live_bytes;
    return session->linux_heap.heap_bytes + session->linux_heap.table_bytes;
}

void session_allocator(struct heap_session *session, struct allocator *allocator)
{
    memset(allocator, 0, sizeof *allocator);
    replay_heap_ops(&allocator->ops);
    if (session->player.backend == NULL)
        allocator->ops.flush = NULL;
    allocator->ctx = &session->player;
    allocator->metadata = session_metadata;
    allocator->session = session;
}
