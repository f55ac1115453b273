/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes the pair of pair.h and names what its twin logs. */
#include "test/metal/x86/pair.h"

#include "backends/x86/insn.h"

void x86_pair_make(struct x86_pair *p, const struct hvmem_x86_config *config)
{
    struct hvmem_x86_config twin = *config;

    if (hvmem_x86_init(&p->state, &p->backend, config) != HVMEM_OK)
        metal_panic("x86 back-end cannot be made");
    hvmem_record_init(&p->record, p->events, X86_PAIR_EVENTS);
    if (config->ids != NULL)
        p->ids = *config->ids;
    else
        hvmem__x86_read_ids(&p->state, &p->ids);
    twin.ids = &p->ids;
    twin.machine = &p->record;
    if (twin_x86_init(&p->twin_state, &p->twin, &twin) != HVMEM_OK)
        metal_panic("recording twin cannot be made");
}

void x86_pair_learn(struct x86_pair *p)
{
    (void)hvmem_record_set(&p->record, HVMEM_X86_REG_CR3, 0, hvmem__x86_read_cr3(&p->state));
    (void)hvmem_record_set(&p->record, HVMEM_X86_REG_CR4, 0, hvmem__x86_read_cr4(&p->state));
    hvmem_record_clear(&p->record);
}

const char *x86_pair_insn_name(const struct hvmem_record_event *event)
{
    static const char *const invpcid[] = {"INVPCID 0", "INVPCID 1", "INVPCID 2", "INVPCID 3"};

    static const char *const invept[] = {"INVEPT 0", "INVEPT 1", "INVEPT 2", "INVEPT 3"};
    static const char *const invvpid[] = {"INVVPID 0", "INVVPID 1", "INVVPID 2", "INVVPID 3"};

    switch (event->code) {
    case HVMEM_X86_INSN_INVLPG:
        return "INVLPG";
    case HVMEM_X86_INSN_INVPCID:
        return invpcid[event->operand[0] >> 16 & 3];
    case HVMEM_X86_INSN_CR3:
        return "MOV-CR3";
    case HVMEM_X86_INSN_CR4:
        return "MOV-CR4";
    case HVMEM_X86_INSN_INVLPGA:
        return "INVLPGA";
    case HVMEM_X86_INSN_INVEPT:
        return invept[event->operand[0] & 3];
    case HVMEM_X86_INSN_INVVPID:
        return invvpid[event->operand[0] >> 16 & 3];
    case HVMEM_X86_INSN_WBINVD:
        return "WBINVD";
    case HVMEM_X86_INSN_WBNOINVD:
        return "WBNOINVD";
    case HVMEM_X86_INSN_CLFLUSH:
        return "CLFLUSH";
    case HVMEM_X86_INSN_CLFLUSHOPT:
        return "CLFLUSHOPT";
    case HVMEM_X86_INSN_CLWB:
        return "CLWB";
    default:
        return NULL;
    }
}

static size_t append(char *text, size_t at, size_t bytes, const char *word)
{
    for (; *word != '\0' && at + 1 < bytes; word++)
        text[at++] = *word;
    text[at] = '\0';
    return at;
}

void x86_pair_name(struct x86_pair *p, const struct hvmem_tlb_flush *flush, char *text,
                   size_t bytes)
{
    const char *last = NULL;
    size_t at = 0;

    x86_pair_learn(p);
    text[0] = '\0';
    if (p->twin.ops->tlb_flush(&p->twin, flush) != HVMEM_OK)
        return;
    for (hvmem_u32 i = 0; i < p->record.count; i++) {
        const char *name = x86_pair_insn_name(&p->events[i]);

        if (name == NULL || name == last)
            continue;
        at = append(text, at, bytes, at == 0 ? "" : " ");
        at = append(text, at, bytes, name);
        last = name;
    }
}
