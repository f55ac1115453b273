/* SPDX-License-Identifier: BSD-2-Clause */
/* The arm64 back-end as subject of the shared metal tests; see test/metal/subject.h. */
#include "test/metal/subject.h"

#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/twin.h"

#define EVENTS 256u

static struct hvmem_arm64 state, twin_state;
static struct hvmem_backend backend, twin;
static struct hvmem_record record;
static struct hvmem_record_event events[EVENTS];
static struct hvmem_arm64_ids ids;
static int is_open;

static void open_both(void)
{
    struct hvmem_arm64_config config = {.size = sizeof config};

    config.level = is_plain_el2()      ? HVMEM_ARM64_EL2
                   : current_el() == 2 ? HVMEM_ARM64_VHE
                                       : HVMEM_ARM64_EL1;
    if (hvmem_arm64_init(&state, &backend, &config) != HVMEM_OK)
        metal_panic("arm64 back-end cannot be made");
    twin_ids(&ids);
    hvmem_record_init(&record, events, EVENTS);
    config.ids = &ids;
    config.machine = &record;
    if (twin_arm64_init(&twin_state, &twin, &config) != HVMEM_OK)
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
    return is_plain_el2() ? "el2" : current_el() == 2 ? "vhe" : "el1";
}

int subject_user_space(uint32_t *id)
{
    *id = 0; /* the ASID in TTBR0 */
    return !is_plain_el2();
}

void subject_load_user(uint32_t id)
{
    const uint64_t root = read_sysreg(ttbr0_el1) & 0x0000FFFFFFFFFFFFull;

    write_sysreg(ttbr0_el1, root | (uint64_t)id << 48);
    isb();
}
