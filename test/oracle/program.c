/* SPDX-License-Identifier: BSD-2-Clause */
/* The player of call programs: decodes bytes, makes each call through the shadow. */
#include "program.h"

#include "shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPAN      1024u
#define BULK_MOST 40u

struct program {
    const uint8_t *data;
    size_t size;
    size_t at;
    struct world *world;
    struct shadow *shadow;
};

struct layout {
    hvmem_mfn base;
    hvmem_u64 frames;
    hvmem_node node;
    hvmem_u32 flags;
};

#define LAYOUTS      6u
#define LAYOUT_BANKS 4u

static const struct layout layouts[LAYOUTS][LAYOUT_BANKS] = {
    {{0, 256, 0, 0}},
    {{3, 197, 0, 0}, {200, 57, 0, HVMEM_BANK_DIRTY}},
    {{0, 128, 0, 0}, {128, 128, 1, 0}},
    {{5, 64, 1, 0}, {70, 63, 4, 0}, {133, 67, 1, 0}, {256, 128, 6, HVMEM_BANK_DIRTY}},
    {{0x1f, 0x130, 0, HVMEM_BANK_DIRTY}},
    {{0, 2, 0, 0}, {2, 2, 0, 0}, {4, 60, 0, 0}, {64, 64, 1, 0}},
};

/* Banks that come and go. */
static const struct layout extra[] = {
    {512, 32, 0, 0},  {544, 31, 0, 0}, {575, 25, 1, HVMEM_BANK_DIRTY},
    {640, 128, 0, 0}, {600, 9, 4, 0},
};
#define EXTRAS (sizeof extra / sizeof extra[0])

static uint8_t byte(struct program *program)
{
    return program->at < program->size ? program->data[program->at++] : 0;
}

static unsigned below(struct program *program, unsigned bound)
{
    unsigned value = byte(program);

    if (bound > 256)
        value |= (unsigned)byte(program) << 8;
    return value % bound;
}

static bool set_up(struct program *program)
{
    static const hvmem_u32 orders[] = {3, 5, 7, 10};
    static const hvmem_u32 debts[] = {0, HVMEM_OWES_TLB, HVMEM_OWES_TLB | HVMEM_OWES_SCRUB,
                                      HVMEM_OWES_TLB | HVMEM_OWES_ICACHE | HVMEM_OWES_DCACHE |
                                          HVMEM_OWES_SCRUB,
                                      HVMEM_OWES_SCRUB | HVMEM_OWES_HOST0 | HVMEM_OWES_HOST2};
    static const unsigned hosts[] = {WORLD_BROADCAST, 0, WORLD_HOST_LOCK, WORLD_BARRIER,
                                     WORLD_BARRIER | WORLD_BROADCAST | WORLD_HOST_LOCK};
    static const hvmem_u8 cpu_node[4] = {0, 1, 4, 0};
    struct hvmem_config config = world_config();
    const struct layout *layout;
    hvmem_status status;
    unsigned i;

    config.lock_regime = below(program, 3);
    config.max_cpus = config.lock_regime == HVMEM_LOCK_CALLER ? 1 : 1 + below(program, 4);
    config.cpu_node = cpu_node;
    config.flags = below(program, 4) == 0 ? HVMEM_CONFIG_NO_CPU_CACHE : 0;
    config.max_order = orders[below(program, 4)];
    config.owed_on_free = debts[below(program, 5)];
    config.low_frames = below(program, 64);
    config.low_hysteresis = 4;
    if (config.low_frames >= 32) { /* small arenas: banks are cut, runs lie across borders */
        config.arena_order = config.max_order + (config.low_frames & 3);
        config.max_banks = 256;
    }
    program->world = world_new(&config, hosts[below(program, 5)], &status);
    if (program->world == NULL)
        return false;
    program->shadow = shadow_new(program->world, 0, SPAN);
    layout = layouts[below(program, LAYOUTS)];
    for (i = 0; i < LAYOUT_BANKS && layout[i].frames != 0; i++)
        shadow_bank(program->shadow, layout[i].base, layout[i].frames, layout[i].node,
                    layout[i].flags);
    if (config.lock_regime != HVMEM_LOCK_CALLER) {
        status = world_smp(program->world);
        if (status != HVMEM_OK)
            shadow_fail(program->shadow, "smp_enable or cpu_online gave %d", status);
    }
    return true;
}

/* A domain that exists, or 0: the host. */
static hvmem_u32 some_domain(struct program *program)
{
    hvmem_u32 id = below(program, 5);

    return program->shadow->domain[id].handle != NULL ? id : 0;
}

/* The first block in use at or after a random place; false: none. */
static bool some_block(struct program *program, hvmem_mfn *mfn, hvmem_u32 *order)
{
    hvmem_mfn start = below(program, SPAN);
    hvmem_mfn i;

    for (i = 0; i < SPAN; i++) {
        const struct shadow_frame *frame = shadow_at(program->shadow, (start + i) % SPAN);

        if ((frame->state == SHADOW_USED || frame->state == SHADOW_LEAVING)) {
            *mfn = frame->head;
            *order = frame->order;
            return true;
        }
    }
    return false;
}

static struct hvmem_request some_request(struct program *program)
{
    static const hvmem_u32 flags[] = {
        0, 0, 0, HVMEM_REQ_NO_CACHE, HVMEM_REQ_NO_CLAIM, HVMEM_REQ_NOFLUSH, HVMEM_REQ_EXACT_NODE,
        0};
    static const hvmem_u32 defer[] = {HVMEM_REQ_DEFER_ALL, HVMEM_REQ_DEFER_TLB,
                                      HVMEM_REQ_DEFER_SCRUB | HVMEM_REQ_DEFER_TLB, 0};
    static const hvmem_node nodes[] = {HVMEM_NODE_ANY, HVMEM_NODE_ANY, 0, 1, 4, 6};
    struct hvmem_request request;
    hvmem_u32 id = some_domain(program);
    unsigned choice = byte(program);

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.domain = program->shadow->domain[id].handle;
    request.flags = flags[choice & 7];
    request.node = nodes[(choice >> 3) % 6];
    if (request.flags & HVMEM_REQ_EXACT_NODE && request.node == HVMEM_NODE_ANY)
        request.flags = 0;
    if (program->shadow->domain[id].state == HVMEM_DOMAIN_BUILDING)
        request.flags |= defer[choice >> 6];
    request.order = below(program, program->world->config.max_order + 1);
    if (byte(program) & 1)
        request.order = 0;
    /* A node without memory is not a request for this player: the argument tests have those. */
    if (request.node < HVMEM_NODE_LIMIT) {
        hvmem_mfn i;

        for (i = 0; i < SPAN; i++)
            if (program->shadow->frame[i].state != SHADOW_HOLE &&
                program->shadow->frame[i].node == request.node)
                return request;
        request.node = HVMEM_NODE_ANY;
        request.flags &= ~HVMEM_REQ_EXACT_NODE;
    }
    return request;
}

static hvmem_status call_alloc(struct program *program, enum program_call call)
{
    struct hvmem_request request = some_request(program);
    hvmem_mfn frames[BULK_MOST];
    hvmem_u32 got;

    if (call == PROGRAM_ALLOC_BULK) {
        if (request.order > 3)
            request.order = 0;
        return shadow_alloc_bulk(program->shadow, &request, frames, 1 + below(program, BULK_MOST),
                                 &got);
    }
    if (call == PROGRAM_ALLOC_RUN) {
        request.order = 0;
        request.count = 1 + below(program, 1u << program->world->config.max_order);
        request.align = below(program, program->world->config.max_order + 1);
        if (byte(program) & 1)
            request.align = 0;
    }
    if (call != PROGRAM_ALLOC) {
        request.lo = below(program, SPAN);
        request.hi = request.lo + 1 + below(program, SPAN);
        if (call == PROGRAM_ALLOC_WINDOW && (byte(program) & 1)) {
            request.order = 0;
            request.colour_mask = 3;
            request.colour_shift = below(program, 3);
            request.colour = below(program, 4);
        }
    }
    return shadow_alloc(program->shadow, &request, frames);
}

static hvmem_status call_free_bulk(struct program *program)
{
    hvmem_mfn frames[BULK_MOST];
    hvmem_u32 done = 0;
    hvmem_u32 order;
    hvmem_u32 n = 0;
    hvmem_u32 most = 1 + below(program, BULK_MOST);
    hvmem_mfn mfn = below(program, SPAN);
    hvmem_mfn i;

    for (i = 0; i < SPAN && n < most; i++) {
        const struct shadow_frame *frame = shadow_at(program->shadow, (mfn + i) % SPAN);

        if ((frame->state == SHADOW_USED || frame->state == SHADOW_LEAVING) &&
            frame->head == (mfn + i) % SPAN)
            frames[n++] = frame->head;
    }
    if (n != 0 && byte(program) < 16)
        frames[below(program, n)] = below(program, SPAN);
    order = byte(program) < 200 ? HVMEM_ORDER_ANY : 0;
    return n == 0 ? HVMEM_E_FREE : shadow_free_bulk(program->shadow, frames, n, order, &done);
}

static hvmem_status call_free(struct program *program, enum program_call call)
{
    struct shadow *shadow = program->shadow;
    hvmem_u32 order = 0;
    hvmem_mfn mfn = 0;

    if (call == PROGRAM_FREE_BULK)
        return call_free_bulk(program);
    if (call == PROGRAM_FREE_WRONG) {
        mfn = below(program, SPAN);
        order = below(program, shadow->world->config.max_order + 3);
        return shadow_free(shadow, mfn, order);
    }
    if (!some_block(program, &mfn, &order))
        return HVMEM_E_FREE;
    if (call == PROGRAM_FREE)
        return shadow_free(shadow, mfn, byte(program) & 1 ? HVMEM_ORDER_ANY : order);
    if (call == PROGRAM_FREE_OWNED) {
        static const hvmem_u32 owed[] = {0, HVMEM_OWES_TLB, HVMEM_OWES_SCRUB, HVMEM_OWES_DCACHE};
        hvmem_u32 id = byte(program) < 200 ? shadow_at(shadow, mfn)->owner : some_domain(program);

        return shadow_free_owned(shadow, mfn, order, id, owed[below(program, 4)]);
    }
    mfn += below(program, 1u << order);
    return shadow_free_run(shadow, mfn, 1 + below(program, 2u << order));
}

static hvmem_status call_domain(struct program *program, enum program_call call)
{
    struct shadow *shadow = program->shadow;
    hvmem_u32 id = 1 + below(program, 4);
    bool there = shadow->domain[id].handle != NULL;
    static const hvmem_node nodes[] = {HVMEM_NODE_ANY, 0, 1, 4};
    hvmem_node node;

    if (call == PROGRAM_DOMAIN) {
        hvmem_u64 limit = byte(program) & 1 ? ~0ull : below(program, 300);

        return there ? shadow_domain_gone(shadow, id)
                     : shadow_domain_new(shadow, id, limit, byte(program) < 32 ? 3 : 0);
    }
    if (!there)
        return HVMEM_E_DOMAIN;
    switch (call) {
    case PROGRAM_START:
        if (byte(program) & 1)
            for (hvmem_mfn mfn = 0; mfn < SPAN; mfn++)
                if (shadow->frame[mfn].owner == id && shadow->frame[mfn].head == mfn)
                    shadow_settle(shadow, mfn, 1ull << shadow->frame[mfn].order,
                                  HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN);
        return shadow_domain_start(shadow, id);
    case PROGRAM_KILL:
        return shadow_domain_kill(shadow, id);
    case PROGRAM_LIMIT:
        return shadow_domain_limit(shadow, id, below(program, 600));
    default:
        node = nodes[below(program, 4)];
        program->world->fail_in = 0;
        return shadow_claim(shadow, id, node, below(program, 300));
    }
}

static hvmem_status call_bank(struct program *program, enum program_call call)
{
    const struct layout *bank = &extra[below(program, EXTRAS)];

    if (call == PROGRAM_BANK)
        return shadow_bank(program->shadow, bank->base, bank->frames, bank->node, bank->flags);
    return shadow_remove(program->shadow, bank->base, bank->frames);
}

static hvmem_status call_cpu_down(struct program *program)
{
    struct world *world = program->world;
    hvmem_cpu cpu = below(program, 4);
    hvmem_status status;

    if (!world->smp || cpu == world_cpu() || cpu >= world->config.max_cpus)
        return HVMEM_E_CPU;
    if (world->online >> cpu & 1) {
        status = hvmem_cpu_offline(world->heap, cpu);
        if (status == HVMEM_OK) {
            world->online &= ~(1ull << cpu);
            world_forget_cpu(world, cpu);
        }
    } else {
        status = hvmem_cpu_online(world->heap, cpu);
        if (status == HVMEM_OK)
            world->online |= 1ull << cpu;
    }
    if (status != HVMEM_OK && status != HVMEM_E_HOST)
        shadow_fail(program->shadow, "CPU %u up or down gave %d", cpu, status);
    return status;
}

static hvmem_status call_frame(struct program *program, enum program_call call)
{
    hvmem_mfn mfn = below(program, SPAN);
    hvmem_u32 order = 0;

    if (call == PROGRAM_OFFLINE)
        return shadow_offline(program->shadow, mfn);
    if (call == PROGRAM_ONLINE) {
        hvmem_mfn i;

        for (i = 0; i < SPAN && shadow_at(program->shadow, mfn)->state < SHADOW_LEAVING; i++)
            mfn = (mfn + 1) % SPAN;
        return shadow_online(program->shadow, mfn);
    }
    if (!some_block(program, &mfn, &order))
        return HVMEM_E_FREE;
    return shadow_settle(program->shadow, mfn, 1ull << order,
                         byte(program) & 1 ? HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN
                                           : HVMEM_OWES_TLB | HVMEM_OWES_SCRUB);
}

static hvmem_status call_drain(struct program *program)
{
    bool quiesce = byte(program) & 1;
    unsigned failed = program->world->fail_count;
    hvmem_status status =
        quiesce ? hvmem_quiesce(program->world->heap) : hvmem_drain(program->world->heap);
    hvmem_mfn mfn;

    if (status != HVMEM_OK && program->world->fail_count == failed &&
        !(quiesce && status == HVMEM_E_BUSY && shadow_domains_may_owe(program->shadow)))
        shadow_fail(program->shadow, "drain or quiesce gave %d", status);
    shadow_check(program->shadow);
    for (mfn = 0; mfn < SPAN && status == HVMEM_OK; mfn++)
        if (program->shadow->frame[mfn].cached)
            shadow_fail(program->shadow, "frame %#llx cached after a drain",
                        (unsigned long long)mfn);
    return status;
}

static hvmem_status make_call(struct program *program, enum program_call call)
{
    switch (call) {
    case PROGRAM_ALLOC:
    case PROGRAM_ALLOC_WINDOW:
    case PROGRAM_ALLOC_RUN:
    case PROGRAM_ALLOC_BULK:
        return call_alloc(program, call);
    case PROGRAM_RESERVE: {
        hvmem_mfn mfn = below(program, SPAN);

        return shadow_reserve(program->shadow, mfn, below(program, 40));
    }
    case PROGRAM_FREE:
    case PROGRAM_FREE_WRONG:
    case PROGRAM_FREE_RUN:
    case PROGRAM_FREE_BULK:
    case PROGRAM_FREE_OWNED:
        return call_free(program, call);
    case PROGRAM_SETTLE:
    case PROGRAM_OFFLINE:
    case PROGRAM_ONLINE:
        return call_frame(program, call);
    case PROGRAM_BANK:
    case PROGRAM_REMOVE:
        return call_bank(program, call);
    case PROGRAM_DRAIN:
        return call_drain(program);
    case PROGRAM_CPU: {
        hvmem_cpu cpu = below(program, 4);

        if (!program->world->smp || !(program->world->online >> cpu & 1))
            return HVMEM_E_CPU;
        world_set_cpu(cpu);
        return HVMEM_OK;
    }
    case PROGRAM_CPU_DOWN:
        return call_cpu_down(program);
    case PROGRAM_FAIL:
        program->world->fail_in = below(program, 8);
        return HVMEM_OK;
    default:
        return call_domain(program, call);
    }
}

/* Everything that is used or reserved is given back; what is left must be free or offline. */
static void give_back(struct program *program)
{
    struct shadow *shadow = program->shadow;
    hvmem_mfn mfn;

    program->world->fail_in = 0;
    for (mfn = 0; mfn < SPAN && shadow->failure[0] == '\0'; mfn++) {
        const struct shadow_frame *frame = shadow_at(shadow, mfn);

        if (frame->state == SHADOW_USED || frame->state == SHADOW_LEAVING)
            shadow_free(shadow, frame->head, HVMEM_ORDER_ANY);
        else if (frame->state == SHADOW_RESERVED)
            shadow_free_run(shadow, mfn, 1);
    }
    for (mfn = 0; mfn < SPAN && shadow->failure[0] == '\0'; mfn++)
        if (shadow_at(shadow, mfn)->state == SHADOW_OFFLINE)
            shadow_online(shadow, mfn);
    call_drain(program);
    shadow_check(shadow);
}

int program_play(const uint8_t *data, size_t size, struct program_result *result)
{
    /* Calls by weight. */
    static const uint8_t calls[] = {
        PROGRAM_ALLOC,     PROGRAM_ALLOC,        PROGRAM_ALLOC,     PROGRAM_ALLOC,
        PROGRAM_ALLOC,     PROGRAM_ALLOC_WINDOW, PROGRAM_ALLOC_RUN, PROGRAM_ALLOC_BULK,
        PROGRAM_RESERVE,   PROGRAM_FREE,         PROGRAM_FREE,      PROGRAM_FREE,
        PROGRAM_FREE,      PROGRAM_FREE_WRONG,   PROGRAM_FREE_RUN,  PROGRAM_FREE_RUN,
        PROGRAM_FREE_BULK, PROGRAM_FREE_OWNED,   PROGRAM_SETTLE,    PROGRAM_OFFLINE,
        PROGRAM_ONLINE,    PROGRAM_BANK,         PROGRAM_REMOVE,    PROGRAM_DOMAIN,
        PROGRAM_START,     PROGRAM_KILL,         PROGRAM_LIMIT,     PROGRAM_CLAIM,
        PROGRAM_DRAIN,     PROGRAM_CPU,          PROGRAM_CPU_DOWN,  PROGRAM_FAIL,
    };
    struct program program = {data, size, 0, NULL, NULL};

    result->failure[0] = '\0';
    if (!set_up(&program)) {
        snprintf(result->failure, sizeof result->failure, "no heap could be made");
        return 0;
    }
    shadow_check(program.shadow);
    while (program.at < program.size && program.shadow->failure[0] == '\0') {
        enum program_call call = (enum program_call)calls[below(&program, sizeof calls)];
        hvmem_status status = make_call(&program, call);

        if (getenv("HVMEM_TRACE") != NULL)
            printf("  step %llu: call %d, status %d, CPU %u\n",
                   (unsigned long long)program.shadow->steps, (int)call, status, world_cpu());
        result->made[call]++;
        result->succeeded[call] += status >= 0;
        shadow_check(program.shadow);
        if (program.shadow->failure[0] != '\0')
            printf("  call %d, status %d, byte %zu of %zu\n", (int)call, status, program.at, size);
    }
    give_back(&program);
    memcpy(result->failure, program.shadow->failure, sizeof result->failure);
    shadow_delete(program.shadow);
    if (!world_delete(program.world) && result->failure[0] == '\0')
        snprintf(result->failure, sizeof result->failure, "world broken at the end");
    return result->failure[0] == '\0';
}
