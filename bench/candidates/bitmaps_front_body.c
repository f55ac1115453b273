/* SPDX-License-Identifier: BSD-2-Clause */
/* Bitmaps behind a cache a CPU. */
#include "bitmaps.h"

#define BODY_IDENTIFIER bench_bitmaps_front
#define BODY_NAME       "bitmaps, cached"
#define BODY_ALLOC      front_alloc
#define BODY_FREE       front_free
#include "candidate_body.h"
