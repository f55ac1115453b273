/* SPDX-License-Identifier: BSD-2-Clause */
/* Index lists behind a cache a CPU. */
#include "lists.h"

#define BODY_IDENTIFIER bench_lists_front
#define BODY_NAME       "index lists, cached"
#define BODY_ALLOC      front_alloc
#define BODY_FREE       front_free
#include "candidate_body.h"
