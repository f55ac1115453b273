/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs over all calls, each step compared with the shadow (test/oracle), and proof that
 * the oracle can fail.
 */
#include "expect.h"
#include "program.h"
#include "shadow.h"

#include <stdio.h>
#include <string.h>

#define BYTES 1200u

static void play_random(uint64_t stream, uint64_t programs, struct program_result *result)
{
    uint8_t data[BYTES];
    uint64_t i;
    size_t k;

    for (i = 0; i < programs; i++) {
        struct test_rng rng = test_rng(stream + i);

        for (k = 0; k < BYTES; k++)
            data[k] = (uint8_t)test_random(&rng);
        if (!CHECK(program_play(data, BYTES, result))) {
            test_note("program %llu of stream %llu: %s", (unsigned long long)i,
                      (unsigned long long)stream, result->failure);
            return;
        }
    }
}

/*
 * Together the programs must have made every call succeed, or they prove little. Of a few (HVMEM_TEST_SCALE) that
 * cannot be asked: some calls succeed once in fifty times.
 */
static void check_mix(const struct program_result *result)
{
    unsigned call;

    if (result->made[PROGRAM_CPU_DOWN] < 500)
        return;
    for (call = 0; call < PROGRAM_CALLS; call++) {
        if (call == PROGRAM_FREE_WRONG)
            continue;
        if (!CHECK(result->succeeded[call] != 0))
            test_note("call %u: made %llu times, never with success", call,
                      (unsigned long long)result->made[call]);
    }
}

TEST(random_programs)
{
    struct program_result result;

    memset(&result, 0, sizeof result);
    play_random(1000, test_rounds(150), &result);
    check_mix(&result);
}

TEST(random_programs_long, slow)
{
    struct program_result result;

    memset(&result, 0, sizeof result);
    play_random(1000000, test_rounds(1500), &result);
    check_mix(&result);
}

/* The oracle sees a heap that says one thing and does another. */
static struct shadow *shadow_of(struct world **world)
{
    struct hvmem_config config = world_config();
    struct shadow *shadow;

    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    *world = WORLD_NEW(&config, WORLD_BROADCAST);
    shadow = shadow_new(*world, 0, 128);
    shadow_bank(shadow, 0, 128, 0, 0);
    shadow_check(shadow);
    CHECK_EQ(shadow->failure[0], 0);
    return shadow;
}

TEST(oracle_sees_a_frame_behind_its_back)
{
    struct world *world;
    struct shadow *shadow = shadow_of(&world);
    hvmem_mfn mfn;

    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    shadow_check(shadow);
    CHECK(shadow->failure[0] != '\0');
    shadow_delete(shadow);
    WORLD_END(world);
}

TEST(oracle_sees_a_debt_that_is_not_paid)
{
    struct world *world;
    struct shadow *shadow = shadow_of(&world);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn;

    world_owe(world, 0, 128, HVMEM_OWES_TLB);
    shadow_check(shadow);
    CHECK(shadow->failure[0] != '\0');
    shadow->failure[0] = '\0';
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
    CHECK(shadow->failure[0] != '\0');
    shadow_delete(shadow);
    WORLD_END(world);
}

TEST(oracle_sees_a_wrong_code)
{
    struct world *world;
    struct shadow *shadow = shadow_of(&world);

    shadow->frame[5].state = SHADOW_RESERVED;
    CHECK_EQ(shadow_free(shadow, 5, 0), HVMEM_E_FREE);
    CHECK(shadow->failure[0] != '\0');
    shadow_delete(shadow);
    WORLD_END(world);
}

TEST(oracle_sees_an_unmerged_pair)
{
    struct world *world;
    struct shadow *shadow = shadow_of(&world);

    shadow->frame[64].node = 1;
    shadow_check(shadow);
    CHECK(shadow->failure[0] != '\0');
    shadow_delete(shadow);
    WORLD_END(world);
}
