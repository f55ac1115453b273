/* SPDX-License-Identifier: BSD-2-Clause */
/* Bitmaps, every call behind the one lock. */
#include "bitmaps.h"

#define BODY_IDENTIFIER bench_bitmaps
#define BODY_NAME       "bitmaps"
#define BODY_ALLOC      cand_alloc
#define BODY_FREE       cand_free
#include "candidate_body.h"
