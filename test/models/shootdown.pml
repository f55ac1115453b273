/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unhook, invalidate, free (lib/gather.c, lib/shootdown.c) by two gathers on one mapping that ask each other's
 * CPUs: G0 removes an entry, and its table page with it, and frees both; G1 wants the same range gone and may
 * find it absent. Both CPUs run the space, walk whenever they like, and serve requests while they wait. A
 * third, W, has the space loaded lazily: it uses no translations, but walks tables by speculation.
 *
 * mutant: FREE_FIRST      the frame is freed before the CPUs have flushed
 * mutant: ABSENT_IS_GONE  the second gather sees absent and owes nothing
 * mutant: OPEN_TOO_SHORT  a gather counts as over before its flush is complete
 * mutant: LATE_COUNT      a gather counts itself as begun only after its change
 * mutant: FORGET_SELF     the initiator does not flush its own CPU
 * mutant: FORGET_OTHER    too few CPUs are asked
 * mutant: SKIP_LAZY       a lazy CPU is not asked though tables are freed
 * mutant: NO_WAIT         the initiator does not wait for the answers
 * mutant: DEAF_WAIT       requests are not served while waiting
 */
#define HAS_PAGE  1 /* a leaf translation */
#define HAS_TABLE 2 /* a pointer to the table page */

bool present = 1;      /* the entry; its table page is hooked while it is */
bool freed;            /* frame and table page can be anybody's */
byte cached[3];        /* what each CPU holds: CPU 0 runs G0, CPU 1 runs G1, CPU 2 is lazy */
bool asked[9];         /* by CPU f at CPU t: asked[3 * t + f] */
byte open, begun;      /* the mapping's turns */
bool gone[2];          /* a gather is over: the range is unreachable */
byte done;

/* A running CPU uses what it has; a lazy one only follows pointers to tables. */
#define violated(c) (freed && (cached[c] & HAS_TABLE)) || (c != 2 && freed && (cached[c] & HAS_PAGE))

inline walk(c) {
    atomic {
        if
        :: present -> cached[c] = HAS_PAGE | HAS_TABLE
        :: else /* (through a cached pointer nothing new is found: the entry is gone) */
        fi
    }
}

inline serve(c) {
    if
    :: atomic { asked[3 * c + 0] -> cached[c] = 0; asked[3 * c + 0] = 0 }
    :: atomic { asked[3 * c + 1] -> cached[c] = 0; asked[3 * c + 1] = 0 }
    :: !asked[3 * c + 0] && !asked[3 * c + 1]
    fi
}

/* Ask the others, flush here while they work, wait. */
inline shoot(c, o) {
#ifndef FORGET_OTHER
    asked[3 * o + c] = 1;
#endif
#ifndef SKIP_LAZY
    asked[3 * 2 + c] = 1;
#endif
#ifndef FORGET_SELF
    cached[c] = 0;
#endif
#ifndef NO_WAIT
    do
    :: !asked[3 * o + c] && !asked[3 * 2 + c] -> break
#ifndef DEAF_WAIT
    :: asked[3 * c + o] -> serve(c)
#endif
    od
#endif
}

inline gather(c, o) {
    byte before, number;
    bool changed, alone;

#ifndef LATE_COUNT
    atomic { before = open; open++; begun++; number = begun };
#endif
    walk(c);
    atomic {
        changed = 0;
        if
        :: present -> present = 0; changed = 1
        :: else
        fi
    };
#ifdef LATE_COUNT
    atomic { before = open; open++; begun++; number = begun };
#endif
    atomic { alone = (before == 0 && begun == number) };
#ifdef ABSENT_IS_GONE
    alone = 1;
#endif
#ifdef OPEN_TOO_SHORT
    open--;
#endif
#ifdef FREE_FIRST
    if
    :: changed -> freed = 1
    :: else
    fi;
#endif
    if
    :: changed || !alone -> shoot(c, o)
    :: else
    fi;
    if
    :: changed -> freed = 1
    :: else
    fi;
#ifndef OPEN_TOO_SHORT
    open--;
#endif
    gone[c] = 1;
    done++
}

active proctype g0() {
    gather(0, 1);
    do
    :: asked[1] -> serve(0)
    :: done == 2 -> break
    od
}

active proctype g1() {
    gather(1, 0);
    do
    :: asked[3] -> serve(1)
    :: done == 2 -> break
    od
}

/* The lazy CPU: walks by speculation, answers. */
active proctype lazy() {
end:
    do
    :: present -> walk(2)
    :: asked[6] || asked[7] -> serve(2)
    :: done == 2 -> break
    od
}

/* Interrupts: the gathers' CPUs walk at any time, too. */
active proctype speculation() {
end:
    do
    :: present -> walk(0)
    :: present -> walk(1)
    :: done == 2 -> break
    od
}

/* The oracle looks after every step. */
active proctype oracle() {
end:
    do
    :: atomic { violated(0) || violated(1) || violated(2) -> assert(0) }
    :: atomic { (gone[0] || gone[1]) && ((cached[0] | cached[1]) & HAS_PAGE) -> assert(0) }
    od
}
