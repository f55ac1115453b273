/* SPDX-License-Identifier: BSD-2-Clause */
/* other.h: another caller, who acts once while a call is under way: at a test point that the call passes. */
#ifndef HVMEM_TEST_OTHER_H
#define HVMEM_TEST_OTHER_H

#include "world.h"

struct other {
    struct world *world;
    const char *point;
    unsigned turn;  /* it acts when the point was passed so many times */
    unsigned turns; /* that it was */
    void (*acts)(struct other *other);
    unsigned done; /* 1: it has acted */
    /* For the act: what it is about, and what came of it. */
    hvmem_mfn mfn;
    hvmem_u64 frames;
    hvmem_status status; /* HVMEM_E_ARG before */
};

/* It waits from now on, until it has acted or test_set_point_hook(NULL, NULL). */
void other_waits(struct other *other, struct world *world, const char *point, unsigned turn,
                 void (*acts)(struct other *other));

#endif
