/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of HVMEM_TEST_POINT in test builds: passes the point's name to the hook of the case. */
#include "test_main.h"

struct point_hook {
    test_point_hook *call;
    void *context;
};

/* Set while no other thread runs library code: by the harness, or by a case before its threads. */
static struct point_hook hook;

void test_set_point_hook(test_point_hook *call, void *context)
{
    hook.call = call;
    hook.context = context;
}

int hvmem__test_point(const char *name)
{
    return hook.call == NULL ? 0 : hook.call(name, hook.context);
}
