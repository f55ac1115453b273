/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/status.h: the result codes of every public function.
 *
 * 0 is success, small positive values are progress reports, negative values are refusals. A refused
 * call has changed nothing and, if it was a mistake of the caller rather than a lack of memory, was
 * counted (struct hvmem_stats.refused) and reported through the host's `report` operation.
 * The numbers are hvmem's own and stable; they are not errno values.
 *
 * Every function says which codes it returns, but for three that go without saying: HVMEM_E_ARG for a null
 * pointer where it does not say that one may be null (a null handle is not counted: there is nobody to count
 * it; functions without a status then do nothing and return 0), HVMEM_E_PHASE from what needs frames while
 * tables are being adopted (hvmem_bank_adopt()), HVMEM_E_CORRUPT for a frame of a bank that is in no block.
 */
#ifndef HVMEM_STATUS_H
#define HVMEM_STATUS_H

#include <hvmem/types.h>

typedef hvmem_i32 hvmem_status;

/* Success. */
#define HVMEM_OK 0
/* Not finished: call again with the same cursor. Not an error. */
#define HVMEM_AGAIN 1

/* Memory and policy (the caller did nothing wrong; neither counted nor reported). */
#define HVMEM_E_NOMEM       (-1) /* no free block satisfies the request */
#define HVMEM_E_LIMIT       (-2) /* the domain's page limit would be exceeded */
#define HVMEM_E_CLAIM       (-3) /* memory is free, but claimed by other domains */
#define HVMEM_E_WOULD_FLUSH (-4) /* NOFLUSH was asked and only frames owing a flush are left */
#define HVMEM_E_BUSY        (-5) /* part of the range is in use, or another such call is running */
#define HVMEM_E_NOID        (-6) /* no identifier is free: the rest is pinned or loaded */

/* Arguments (counted and reported). */
#define HVMEM_E_ARG         (-16) /* null or contradictory argument, unknown flag */
#define HVMEM_E_VERSION     (-17) /* size member of a structure is not one this library knows */
#define HVMEM_E_ORDER       (-18) /* order above the heap's maximum */
#define HVMEM_E_COUNT       (-19) /* frame count 0, or above what one call can give */
#define HVMEM_E_ALIGN       (-20) /* alignment not a power of two, or address misaligned */
#define HVMEM_E_RANGE       (-21) /* range wraps, is empty, or exceeds the address width */
#define HVMEM_E_NODE        (-22) /* node id out of range, or without memory where it is needed */
#define HVMEM_E_CPU         (-23) /* CPU number out of range, or offline */
#define HVMEM_E_BUFFER      (-24) /* buffer too small or misaligned */
#define HVMEM_E_OVERLAP     (-25) /* bank overlaps one the heap has already */
#define HVMEM_E_DOMAIN      (-26) /* unknown domain, or id in use */
#define HVMEM_E_PHASE       (-27) /* not allowed in this phase of the heap or the domain */
#define HVMEM_E_UNSUPPORTED (-28) /* the host or the back-end does not offer what is needed */
#define HVMEM_E_STALE       (-29) /* cursor of another object or of an older operation */
#define HVMEM_E_SPACE       (-30) /* unknown or dead translation space */
#define HVMEM_E_LEVEL       (-31) /* operation above the current exception level */

/* Frames (counted and reported; `mfn` of the report names the frame). */
#define HVMEM_E_FOREIGN     (-48) /* frame outside every bank */
#define HVMEM_E_FREE        (-49) /* frame is free already (double free) */
#define HVMEM_E_INTERIOR    (-50) /* frame is inside a block, not its start */
#define HVMEM_E_WRONG_ORDER (-51) /* block starts here, but has another order */
#define HVMEM_E_RESERVED    (-52) /* frame is reserved, a hole, or belongs to the table */
#define HVMEM_E_OWNER       (-53) /* frame belongs to another owner */
#define HVMEM_E_OFFLINE     (-54) /* frame is offline or going offline */
#define HVMEM_E_QUARANTINE  (-55) /* frame waits for a flush that did not come back */
#define HVMEM_E_GATHERED    (-56) /* frame is held: by a gather or a populate, as a table */
#define HVMEM_E_OWED        (-57) /* maintenance is still owed and the call must not drop it */

/* State of the library itself. */
#define HVMEM_E_CORRUPT  (-80) /* an invariant does not hold (audit, adopt, a frame in no block) */
#define HVMEM_E_GEOMETRY (-81) /* table header does not match this library or configuration */
#define HVMEM_E_HOST     (-82) /* a host operation failed */
#define HVMEM_E_TIMEOUT  (-83) /* a bounded wait ran out */

HVMEM_BEGIN_DECLS

/* Short English words for a code, for logs. Never NULL; unknown codes give "unknown status". */
HVMEM_API const char *hvmem_status_words(hvmem_status status);

HVMEM_END_DECLS

#endif
