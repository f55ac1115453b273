/* SPDX-License-Identifier: BSD-2-Clause */
/* The x86 back-end as subject of the shared metal tests; see test/metal/subject.h. */
#include "test/metal/subject.h"

#include "test/metal/x86/twin.h"

#define EVENTS 256u

static struct hvmem_x86 state, twin_state;
static struct hvmem_backend backend, twin;
static struct hvmem_record record;
static struct hvmem_record_event events[EVENTS];
static struct hvmem_x86_ids ids;
static int is_open;

static void open_both(void)
{
    struct hvmem_x86_config config = {.size = sizeof config};

    if (hvmem_x86_init(&state, &backend, &config) != HVMEM_OK)
        metal_panic("x86 back-end cannot be made");
    hvmem_record_init(&record, events, EVENTS);
    twin_learn(&record, &ids);
    config.ids = &ids;
    config.machine = &record;
    if (twin_x86_init(&twin_state, &twin, &config) != HVMEM_OK)
        metal_panic("recording twin cannot be made");
    is_open = 1;
}

struct hvmem_backend *subject_twin(struct hvmem_record **log)
{
    if (!is_open)
        open_both();
    *log = &record;
    return &twin;
}

struct hvmem_backend *subject_backend(void)
{
    if (!is_open)
        open_both();
    return &backend;
}

const char *subject_level(void)
{
    return "x86-64";
}

/* The window belongs to the current PCID, which is 0 and needs no tagging. */
int subject_user_space(uint32_t *id)
{
    *id = 0;
    return 1;
}

/* The image never turns PCIDs on. */
void subject_load_user(uint32_t id)
{
    (void)id;
}
