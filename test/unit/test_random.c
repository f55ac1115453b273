/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs over all calls, each step compared with the shadow (test/oracle), and proof that
 * the oracle can fail.
 */
#include "expect.h"
#include "shadow.h"

#include <string.h>

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
