/* SPDX-License-Identifier: BSD-2-Clause */
/* other.c: another caller, who acts once while a call is under way. */
#include "other.h"

#include "test_main.h"

#include <string.h>

static int act(const char *name, void *context)
{
    struct other *other = context;

    if (strcmp(name, other->point) != 0 || other->turns++ != other->turn)
        return 0;
    test_set_point_hook(NULL, NULL);
    other->acts(other);
    other->done = 1;
    return 0;
}

void other_waits(struct other *other, struct world *world, const char *point, unsigned turn,
                 void (*acts)(struct other *other))
{
    memset(other, 0, sizeof *other);
    other->world = world;
    other->point = point;
    other->turn = turn;
    other->acts = acts;
    other->status = HVMEM_E_ARG;
    test_set_point_hook(act, other);
}
