/* SPDX-License-Identifier: BSD-2-Clause */
/* Index lists, every call behind the one lock. */
#include "lists.h"

#define BODY_IDENTIFIER bench_lists
#define BODY_NAME       "index lists"
#define BODY_ALLOC      cand_alloc
#define BODY_FREE       cand_free
#include "candidate_body.h"
