/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Start of a domain against calls that leave debts on its frames, against a populate, and against
 * another start (lib/start.c, lib/domain.c). The starting CPU's store of the state waits in a buffer.
 * Once the domain runs nothing that it can see is owed, and the hook ran once.
 *
 * mutant: LOOK_FIRST    an allocation looks at the state before it counts itself
 * mutant: NO_BARRIER    start looks for calls before its state is visible
 * mutant: NO_WAIT       start does not look for calls
 * mutant: NO_STARTING   start pays first and publishes afterwards
 * mutant: NO_OPEN       start does not mind an open populate
 * mutant: ANY_STATE     start does not look which state it starts from
 * mutant: NO_SETTLE     start pays nothing
 */
#define BUILDING 0
#define STARTING 1
#define RUNNING  2
#define EMPTY    255

#define NONE 0
#define OWES 1 /* visible to the domain, and something is owed */
#define PAID 2

byte state = BUILDING;
byte waiting = EMPTY; /* the starting CPU's store of the state, not visible yet */
byte calls;
byte frame[3];
bool owes; /* what the domain owes as a whole: instruction caches */
bool open; /* an operation in steps is open; tested and set under a lock */
byte hooks;

active proctype drain() {
end:
    do
    :: atomic { waiting != EMPTY -> state = waiting; waiting = EMPTY }
    od
}

/* The domain runs as soon as somebody may see RUNNING. */
active proctype guest() {
end:
    do
    :: state == RUNNING ->
        assert(frame[0] != OWES && frame[1] != OWES && frame[2] != OWES && !owes);
        assert(hooks == 1);
        break
    od
}

/* An allocation that defers. Locked operations: nothing of its own waits in a buffer. */
proctype allocate(byte i) {
    byte seen;

#ifdef LOOK_FIRST
    seen = state;
    calls++;
#else
    calls++;
    seen = state;
#endif
    if
    :: seen == BUILDING -> frame[i] = OWES
    :: seen == STARTING /* refused */
    :: seen == RUNNING -> frame[i] = PAID
    fi;
    calls--
}

/* One slice: frames are paid for before they are mapped, but for what the domain owes as a whole. */
proctype populate() {
    byte seen;

    atomic {
        if
        :: open -> goto refused
        :: else -> open = 1
        fi
    }
    seen = state;
    if
    :: seen == RUNNING -> frame[2] = PAID
    :: else -> owes = 1; frame[2] = PAID
    fi;
    open = 0;
refused:
    skip
}

inline publish(value) {
    waiting = value;
#ifndef NO_BARRIER
    waiting == EMPTY
#endif
}

inline settle() {
#ifndef NO_SETTLE
    i = 0;
    do
    :: i < 3 ->
        if
        :: frame[i] == OWES -> frame[i] = PAID
        :: else
        fi;
        i++
    :: else -> break
    od;
    owes = 0
#else
    skip
#endif
}

proctype start() {
    byte i, seen;

#ifndef NO_OPEN
    atomic {
        if
        :: open -> goto refused
        :: else -> open = 1
        fi
    }
#endif
    atomic {
        seen = (waiting == EMPTY -> state : waiting);
#ifdef ANY_STATE
        seen = BUILDING;
#endif
    }
    if
    :: seen != BUILDING -> goto out
    :: else
    fi;
#ifndef NO_STARTING
    publish(STARTING);
#endif
#ifndef NO_WAIT
    if
    :: calls == 0
    :: calls > 0 -> publish(BUILDING); goto out
    fi;
#endif
    settle();
    atomic {
        if
        :: hooks < 3 -> hooks++
        fi
    }
    publish(RUNNING);
out:
    open = 0;
refused:
    skip
}

init {
    atomic {
        run allocate(0);
        run allocate(1);
        run populate();
        run start();
        run start()
    }
}
