/* SPDX-License-Identifier: BSD-2-Clause */
/* policy.h: the range policy as the core calls it. */
#ifndef HVMEM_LIB_POLICY_H
#define HVMEM_LIB_POLICY_H

#include <hvmem/policy.h>

#include "deps.h"

/* Decide by the policy's own function, or by the library's. */
HVMEM_INLINE hvmem_status hvmem__policy_choose(const struct hvmem_policy *policy,
                                               const struct hvmem_backend_caps *caps,
                                               const struct hvmem_tlb_flush *flush,
                                               struct hvmem_policy_choice *choice)
{
    /* Not as one conditional call: that would take the address of a function which is not marked so. */
    if (policy->choose)
        return policy->choose(policy, caps, flush, choice);
    return hvmem_policy_choose(policy, caps, flush, choice);
}

#endif
