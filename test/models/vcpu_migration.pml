/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Placement of vCPUs (lib/vcpu.c): entries on two CPUs, a post and a cancel wherever the vCPU is, and
 * migrations in both directions of two vCPUs. Work posted runs exactly once unless it was cancelled, only
 * on the CPU where the vCPU is placed, never after a cancel returned; whom a post kicks is right.
 *
 * mutant: BOTH_LOCKS      migration holds the old and the new CPU's lock together
 * mutant: NO_PLACEMENT    a post does not take the placement lock
 * mutant: NO_CHECK        an entry does not look whether the vCPU is placed here
 * mutant: MOVE_ENTERED    migration does not refuse a vCPU that is entered
 * mutant: CANCEL_NO_WAIT  cancel does not wait for a run in progress
 * mutant: ENTER_LATE      an entry says that it entered after it released the lock
 */
#define NONE    2
#define IDLE    0
#define QUEUED  1
#define RUNNING 2

byte place[2];          /* vCPU's CPU; NONE while it moves */
bool placement[2];      /* locks */
bool list[2];
byte entered[2] = NONE; /* vCPU entered on a CPU */
bool on[4];             /* vCPU v is in the list of CPU c: on[2 * v + c] */
byte state;             /* of the one piece of work, for vCPU 0 */
bool posted, cancelled;
byte ran;

#define acquire(l) atomic { !l -> l = 1 }
#define release(l) l = 0

inline migrate(v, to) {
    acquire(placement[v]);
    from = place[v];
    if
    :: from != to ->
        acquire(list[from]);
        if
#ifndef MOVE_ENTERED
        :: entered[from] == v -> release(list[from])
#endif
        :: else ->
            on[2 * v + from] = 0;
            place[v] = NONE;
#ifdef BOTH_LOCKS
            acquire(list[to]);
            release(list[from]);
#else
            release(list[from]);
            acquire(list[to]);
#endif
            on[2 * v + to] = 1;
            place[v] = to;
            release(list[to])
        fi
    :: else
    fi;
    release(placement[v])
}

proctype mover(byte v; byte to) {
    byte from;

    migrate(v, to)
}

/* Enter vCPU 0 on CPU c if it is there; run its work; leave. */
inline enter(c) {
    acquire(list[c]);
    if
#ifndef NO_CHECK
    :: place[0] != c || entered[c] != NONE -> release(list[c])
#endif
    :: else ->
#ifndef ENTER_LATE
        entered[c] = 0;
#endif
        assert(on[c] || place[0] == NONE);
        if
        :: state == QUEUED ->
            state = RUNNING;
            release(list[c]);
            assert(!cancelled);
            ran++;
            assert(place[0] == c);
            acquire(list[c]);
            state = IDLE
        :: else
        fi;
        release(list[c]);
#ifdef ENTER_LATE
        entered[c] = 0;
#endif
        /* In the guest. */
        assert(place[0] == c);
        acquire(list[c]);
        entered[c] = NONE;
        release(list[c])
    fi
}

proctype cpu(byte c) {
    enter(c);
    enter(c)
}

proctype poster() {
    byte at;

#ifndef NO_PLACEMENT
    acquire(placement[0]);
#endif
    at = place[0];
    if
    :: at == NONE -> assert(false)
    :: else
    fi;
    acquire(list[at]);
    d_step {
        assert(place[0] == at && on[at]);
        /* Whom we do not kick is not in the guest: it will pass through its entry. */
        assert(entered[at] == 0 || entered[1 - at] != 0);
        state = QUEUED;
        posted = 1
    };
    release(list[at]);
#ifndef NO_PLACEMENT
    release(placement[0])
#endif
}

proctype canceller() {
    byte at, was;

    posted;
    acquire(placement[0]);
    at = place[0];
    acquire(list[at]);
    was = state;
    if
    :: was == QUEUED -> state = IDLE
    :: else
    fi;
    release(list[at]);
    release(placement[0]);
#ifndef CANCEL_NO_WAIT
    if
    :: was == RUNNING -> state != RUNNING
    :: else
    fi;
#endif
    assert(state != RUNNING);
    cancelled = 1
}

init {
    atomic {
        on[0] = 1;
        place[1] = 1;
        on[3] = 1;
        run cpu(0);
        run cpu(1);
        run poster();
        run canceller();
        run mover(0, 1);
        run mover(1, 0)
    };
    _nr_pr == 1;
    assert(ran <= 1);
    assert(on[0] + on[1] == 1 && on[2] + on[3] == 1);
    assert(on[place[0]] && on[2 + place[1]])
}
