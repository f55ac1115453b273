/* SPDX-License-Identifier: BSD-2-Clause */
/* populate.h: giving up a populate in progress; the rest of it is behind hvmem/populate.h. */
#ifndef HVMEM_LIB_POPULATE_H
#define HVMEM_LIB_POPULATE_H

#include "domain.h"

/*
 * Give back what the open populate has allocated and not mapped, with what it still owes. The caller
 * has `running`.
 */
void hvmem__populate_abort(struct hvmem_domain *domain);

#endif
