/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/track.h: which guest memory was touched, and set/way operations of a guest by that.
 *
 * Arming clears the hardware's valid bit of the root entries and flushes the guest's id. The next
 * access below a root entry faults; hvmem_stage2_fault() makes that entry valid again and the entries
 * of the table below it invalid (one table a fault). An entry that is valid on every level was thus
 * touched since tracking was armed, and no other: mappings made while armed start untouched.
 * Cost: one fault a root entry, one a table, one a leaf.
 *
 * Refused with HVMEM_E_BUSY while a device walks the same tables (the mapping has notifiers): a
 * device cannot fault its way back. hvmem_track_disarm() before the tables are shared: until then
 * hvmem_notifier_add() answers HVMEM_E_BUSY.
 *
 * Cursors: zero one before the first call; HVMEM_AGAIN: call again with it. It only names an
 * operation whose state is kept inside: HVMEM_E_STALE for any other.
 */
#ifndef HVMEM_TRACK_H
#define HVMEM_TRACK_H

#include <hvmem/stage2.h>

/* hvmem_track_age */
#define HVMEM_AGE_CLEAR 1u /* what was touched becomes untouched */

/* Progress of set/way emulation. */
struct hvmem_track_progress {
    hvmem_u64 noted;   /* frames found touched and re-armed */
    hvmem_u64 cleaned; /* frames cleaned and invalidated */
    hvmem_u64 tables;  /* leaf tables re-armed */
};

/* Cache geometry that a guest sees (CLIDR_EL1, CCSIDR_EL1), level 1 first. */
struct hvmem_setway_geometry {
    hvmem_u32 levels; /* 1 .. 7 */
    hvmem_u32 reserved;
    struct {
        hvmem_u32 sets, ways; /* 1 .. 2^24 */
        hvmem_u32 line_shift; /* log2 bytes a line, 4 .. 11 */
        hvmem_u32 reserved;
    } level[7];
};

HVMEM_BEGIN_DECLS

/*
 * Arm: everything is untouched from now on, for set/way too: call it when all is clean. At most
 * HVMEM_S2_SLICE root entries a call; the last one ends with a whole-id flush. May be repeated at any
 * time.
 * Errors: HVMEM_E_BUSY (shared with a device, another CPU is arming, or a disarm or set/way is open),
 * HVMEM_E_PHASE, HVMEM_E_STALE, HVMEM_E_ARG; those of the flush: tracking is not armed then.
 */
HVMEM_API hvmem_status hvmem_track_arm(struct hvmem_stage2 *s2, struct hvmem_cursor *cursor);

/*
 * Make every entry valid, one table a call; first-touch frames that wait to be cleaned are
 * cleaned, touch_lines lines a call. Nothing faults any more, and devices may share the tables.
 * Errors: HVMEM_E_PHASE, HVMEM_E_STALE, HVMEM_E_ARG, those of the cleaning.
 */
HVMEM_API hvmem_status hvmem_track_disarm(struct hvmem_stage2 *s2, struct hvmem_cursor *cursor);

/* Whether tracking is armed. */
HVMEM_API int hvmem_track_armed(const struct hvmem_stage2 *s2);

/*
 * Count the frames of a range in entries touched since tracking was armed. With HVMEM_AGE_CLEAR those
 * entries become untouched and are invalidated; an entry that lies in the range in part counts
 * with that part and is cleared whole. Not for a guest's range in one go: at most 2^18 frames.
 * Errors: HVMEM_E_RANGE, HVMEM_E_PHASE, HVMEM_E_ARG, HVMEM_E_BUSY (CLEAR, shared with a device), CLEAR: those
 * of the flush.
 */
HVMEM_API hvmem_status hvmem_track_age(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                                       hvmem_u32 flags, hvmem_u64 *touched);

/*
 * The guest cleans its caches by set and way, which cannot be passed on: clean and invalidate to the
 * point of coherency what it touched since the last time. For each leaf table: note the valid entries, clear
 * them, flush, and only then clean the noted frames, so that a write in between faults and
 * counts for the next time. What the guest sees uncached (NC, DEVICE) is re-armed and not cleaned: it left
 * nothing in a cache. One table is re-armed or `lines` cache lines are cleaned a call
 * (0: HVMEM_S2_TOUCH_LINES); progress (may be NULL) is added to. A new operation (zero cursor) takes over
 * the frames that an abandoned one left to be cleaned. After an arming whose flush failed the next pass
 * takes everything for touched.
 * Errors: HVMEM_E_BUSY (shared with a device, or another CPU is in a call), HVMEM_E_PHASE,
 * HVMEM_E_STALE, HVMEM_E_ARG, HVMEM_E_UNSUPPORTED (no back-end), those of the flush and of the cleaning.
 */
HVMEM_API hvmem_status hvmem_track_setway(struct hvmem_stage2 *s2, hvmem_u32 lines,
                                          struct hvmem_cursor *cursor,
                                          struct hvmem_track_progress *progress);

/*
 * Whether a set/way operand (Rt of DC ISW, CSW, CISW; Arm ARM C5.3) names a line of the geometry. Pure.
 * Errors: HVMEM_E_LEVEL (level beyond the last), HVMEM_E_RANGE (set, way or a bit that must be 0),
 * HVMEM_E_ARG (geometry).
 */
HVMEM_API hvmem_status hvmem_track_setway_operand(const struct hvmem_setway_geometry *geometry,
                                                  hvmem_u64 operand);

HVMEM_END_DECLS

#endif
