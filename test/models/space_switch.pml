/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A switch against a flush, and against destroy (lib/space.c, hvmem/space.h), on CPUs whose stores wait in
 * a buffer (one slot a variable, drained at any time and in any order; a barrier drains all). Either the
 * switch sees the change and flushes, or the flush sees the CPU and asks it.
 *
 * mutant: SWITCH_NO_BARRIER   the switching CPU loads the count before its store is visible
 * mutant: FLUSH_NO_BARRIER    the flushing CPU loads who runs the space before its count is visible
 * mutant: COUNT_FIRST         the switching CPU reads the count before it announces itself
 * mutant: TABLE_LAST          the change is counted before it is visible to table walkers
 * mutant: DESTROY_NO_RECHECK  the switching CPU does not look whether the space still lives
 * mutant: SEEN_LATE           the count noted as flushed is read after the flush
 */
/* Variables in memory and, per CPU, the newest value in its own buffer (255: none). */
#define TABLE  0 /* version of the mapping */
#define COUNT  1
#define LOADED 2 /* the switching CPU runs the space */
#define STATE  3 /* 0 live, 1 dying */
#define VARS   4
#define EMPTY  255

byte memory[VARS];
byte buffer0[VARS] = EMPTY;
byte buffer1[VARS] = EMPTY;
byte cached = EMPTY; /* the switching CPU's TLB: version; EMPTY nothing */
byte seen;
bool asked, answered, changed, destroyed, refused;
bool running; /* the switching CPU's hardware runs the space */

active proctype drain() {
    byte v;
end:
    do
    :: atomic { buffer0[0] != EMPTY -> memory[0] = buffer0[0]; buffer0[0] = EMPTY }
    :: atomic { buffer0[1] != EMPTY -> memory[1] = buffer0[1]; buffer0[1] = EMPTY }
    :: atomic { buffer0[2] != EMPTY -> memory[2] = buffer0[2]; buffer0[2] = EMPTY }
    :: atomic { buffer0[3] != EMPTY -> memory[3] = buffer0[3]; buffer0[3] = EMPTY }
    :: atomic { buffer1[0] != EMPTY -> memory[0] = buffer1[0]; buffer1[0] = EMPTY }
    :: atomic { buffer1[1] != EMPTY -> memory[1] = buffer1[1]; buffer1[1] = EMPTY }
    :: atomic { buffer1[2] != EMPTY -> memory[2] = buffer1[2]; buffer1[2] = EMPTY }
    :: atomic { buffer1[3] != EMPTY -> memory[3] = buffer1[3]; buffer1[3] = EMPTY }
    od
}

#define drained(b) (b[0] == EMPTY && b[1] == EMPTY && b[2] == EMPTY && b[3] == EMPTY)
#define load(b, v) (b[v] != EMPTY -> b[v] : memory[v])

inline answer() {
    atomic {
        if
        :: asked && !answered ->
            if
            :: seen != memory[COUNT] -> cached = EMPTY; seen = memory[COUNT]
            :: else /* up to date */
            fi;
            answered = 1
        :: else
        fi
    }
}

/* The switching CPU. It came with a translation it cached before. */
active proctype switcher() {
    byte count, state;

    cached = 0;
    if
    :: true
    :: seen = 5 /* something else is owed already */
    fi;
#ifdef COUNT_FIRST
    count = load(buffer0, COUNT);
#endif
    buffer0[LOADED] = 1;
#ifndef SWITCH_NO_BARRIER
    drained(buffer0);
#endif
    state = load(buffer0, STATE);
#ifdef DESTROY_NO_RECHECK
    state = 0;
#endif
    if
    :: state == 0 ->
#ifndef COUNT_FIRST
        count = load(buffer0, COUNT);
#endif
        if
        :: count != seen ->
            cached = EMPTY;
#ifdef SEEN_LATE
            cached = memory[TABLE];
            seen = load(buffer0, COUNT)
#else
            seen = count
#endif
        :: else
        fi;
        atomic {
            running = 1;
            assert(!destroyed)
        };
        /* In the space, interrupts on: an access walks on a miss, requests are served. */
        if
        :: atomic { cached == EMPTY -> cached = memory[TABLE] }
        :: true
        fi;
        do
        :: asked && !answered -> answer()
        :: changed -> assert(cached == EMPTY || cached == 1); break
        :: refused -> break
        od
    :: else
    fi;
    buffer0[LOADED] = 0;
    running = 0;
    do
    :: asked && !answered -> answer()
    :: changed || destroyed || refused -> break
    od
}

/* The flushing CPU changes the table, or destroys the space. */
active proctype flusher() {
    if
    :: true ->
#ifdef TABLE_LAST
        buffer1[COUNT] = 1;
        drained(buffer1);
        memory[TABLE] = 1;
#else
        buffer1[TABLE] = 1;
        drained(buffer1);
        buffer1[COUNT] = 1;
#ifndef FLUSH_NO_BARRIER
        drained(buffer1);
#endif
#endif
        if
        :: load(buffer1, LOADED) == 1 -> asked = 1; answered
        :: else
        fi;
        changed = 1
    :: true ->
        buffer1[STATE] = 1;
        drained(buffer1);
        if
        :: load(buffer1, LOADED) == 1 -> refused = 1
        :: else ->
            atomic {
                assert(!running);
                destroyed = 1
            }
        fi
    fi
}
