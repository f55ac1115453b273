/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rollover of identifiers (lib/ident.c, common numbering, each CPU flushes for itself): two CPUs switch
 * between four spaces over three numbers, two of which are taken. The TLB is adversarial: what a CPU has loaded fills its number
 * again after every flush. Each access to shared memory is a step of its own.
 *
 * mutant: PLAIN_STORE    the fast path stores its tag instead of exchanging it
 * mutant: NO_RESERVE     a rollover forgets what CPUs run
 * mutant: NO_PENDING     a CPU uses the new generation without its flush
 * mutant: NO_LEAVING     the number being left is not kept until the switch is complete
 * mutant: NO_RENEW       a space whose number a CPU kept gets another one
 */
#define CPUS   2
#define SPACES 4
#define IDS    3
#define ROUNDS (3 - c) /* three switches on one CPU, two on the other */

/* A word: generation * 4 + number; 0 none. Generation 1, number 0: runs nothing. */
#define WORD(g, n) ((g) * 4 + (n))
#define NUMBER(w)  ((w) % 4)
#define GEN(w)     ((w) / 4)
#define IDLE       WORD(1, 0)

byte generation = 2;
byte tag[SPACES];
byte act[CPUS];
byte reserved[CPUS];
byte leaving[CPUS];
bool pending[CPUS];
bool used[IDS + 1];
bool locked;

/* Hardware: space + 1 and number that a CPU runs; spaces whose entries sit under each number. */
byte hw_space[CPUS];
byte hw_id[CPUS];
bool switching[CPUS];
byte tlb0[IDS + 1];
byte tlb1[IDS + 1];

inline fill(c) {
    if
    :: hw_space[c] != 0 && c == 0 -> tlb0[hw_id[c]] = tlb0[hw_id[c]] | (1 << (hw_space[c] - 1))
    :: hw_space[c] != 0 && c == 1 -> tlb1[hw_id[c]] = tlb1[hw_id[c]] | (1 << (hw_space[c] - 1))
    :: else
    fi
}

inline flush(c) {
    d_step {
        k = 0;
        do
        :: k <= IDS ->
            if
            :: c == 0 -> tlb0[k] = 0
            :: else -> tlb1[k] = 0
            fi;
            k++
        :: else -> break
        od;
        fill(c);
        k = 0
    }
}

inline load(c, s, n) {
    d_step {
        assert(n != 0);
        hw_space[c] = s + 1;
        hw_id[c] = n;
        if
        :: c == 0 -> assert((tlb0[n] & ~(1 << s)) == 0)
        :: else -> assert((tlb1[n] & ~(1 << s)) == 0)
        fi;
        fill(c);
        /* No number runs two spaces; a space runs under one number. */
        assert(hw_space[1 - c] == 0 || hw_space[1 - c] == s + 1 || hw_id[1 - c] != n);
        assert(hw_space[1 - c] != s + 1 || hw_id[1 - c] == n || switching[1 - c]);
    }
}

inline reserve(c) {
    atomic {
        w = act[c];
        act[c] = 0
    };
    if
    :: w == 0 -> w = reserved[c]
    :: else
    fi;
#ifndef NO_RESERVE
    used[NUMBER(w)] = 1;
#endif
#ifndef NO_LEAVING
    used[NUMBER(leaving[c])] = 1;
#endif
    if
    :: NUMBER(w) != 0 -> reserved[c] = w
    :: else -> reserved[c] = 0
    fi
}

inline rollover() {
    generation++;
    d_step {
        used[1] = 0;
        used[2] = 0;
        used[3] = 0
    };
    reserve(0);
    reserve(1);
    pending[0] = 1;
    pending[1] = 1;
    w = 0
}

inline free_number() {
    d_step {
        if
        :: !used[1] -> n = 1
        :: used[1] && !used[2] -> n = 2
        :: used[1] && used[2] && !used[3] -> n = 3
        :: else -> n = 0
        fi
    }
}

/* The word of space s in this generation, in n; 0 if no number is free. */
inline refresh(s) {
    if
    :: GEN(tag[s]) == generation -> n = NUMBER(tag[s])
    :: else ->
        n = NUMBER(tag[s]);
        if
#ifndef NO_RENEW
        :: n != 0 && (reserved[0] == tag[s] || reserved[1] == tag[s] || leaving[0] == tag[s] ||
                      leaving[1] == tag[s]) ->
            d_step {
                if
                :: reserved[0] == tag[s] -> reserved[0] = WORD(generation, n)
                :: else
                fi;
                if
                :: reserved[1] == tag[s] -> reserved[1] = WORD(generation, n)
                :: else
                fi
            }
#endif
        :: else ->
            if
            :: n != 0 && !used[n] -> skip
            :: else ->
                free_number();
                if
                :: n == 0 -> rollover(); free_number()
                :: else
                fi
            fi
        fi;
        if
        :: n != 0 -> used[n] = 1; tag[s] = WORD(generation, n)
        :: else
        fi
    fi
}

inline slow(c, s) {
    atomic { !locked -> locked = 1 };
    refresh(s);
    if
    :: n != 0 ->
#ifndef NO_PENDING
        if
        :: pending[c] -> pending[c] = 0; owed = 1
        :: else
        fi;
#endif
        if
        :: NUMBER(reserved[c]) != 0 -> leaving[c] = reserved[c]
        :: else
        fi;
        if
        :: NUMBER(act[c]) != 0 -> leaving[c] = act[c]
        :: else
        fi;
        reserved[c] = 0;
        act[c] = tag[s]
    :: else
    fi;
    locked = 0
}

inline take(c, s) {
    now = act[c];
    want = tag[s];
    n = 0;
    if
    :: now != 0 && want != 0 && GEN(want) == generation ->
        if
        :: now == want -> n = NUMBER(want)
        :: else ->
            if
            :: NUMBER(now) != 0 -> leaving[c] = now
            :: else
            fi;
#ifdef PLAIN_STORE
            act[c] = want;
            n = NUMBER(want)
#else
            atomic {
                if
                :: act[c] == now -> act[c] = want; n = NUMBER(want)
                :: else
                fi
            }
#endif
        fi
    :: else
    fi;
    if
    :: n == 0 -> slow(c, s)
    :: else
    fi
}

inline drop(c) {
    now = act[c];
    if
    :: NUMBER(now) != 0 -> leaving[c] = now
    :: else
    fi;
    n = 0;
    atomic {
        if
        :: now != 0 && act[c] == now -> act[c] = IDLE; n = 1
        :: else
        fi
    };
    if
    :: n == 0 ->
        atomic { !locked -> locked = 1 };
        if
        :: NUMBER(reserved[c]) != 0 -> leaving[c] = reserved[c]
        :: else
        fi;
        reserved[c] = 0;
        locked = 0
    :: else
    fi
}

proctype cpu(byte c) {
    byte round, s, n, w, k, now, want;
    bool owed;

    do
    :: round < ROUNDS ->
        round++;
        select(s : 0 .. SPACES - 1);
        switching[c] = 1;
        take(c, s);
        if
        :: n != 0 ->
            if
            :: owed -> flush(c); owed = 0
            :: else
            fi;
            load(c, s, n);
            leaving[c] = 0
        :: else
        fi;
        switching[c] = 0;
        n = 0; w = 0; now = 0; want = 0; s = 0
    :: round < ROUNDS && hw_space[c] != 0 ->
        round++;
        switching[c] = 1;
        drop(c);
        hw_space[c] = 0;
        leaving[c] = 0;
        switching[c] = 0;
        n = 0; now = 0
    :: else -> break
    od
}

init {
    atomic {
        /* Spaces 0 and 1 have run and hold numbers, and translations, on both CPUs. */
        tag[0] = WORD(2, 1);
        tag[1] = WORD(2, 2);
        used[1] = 1;
        used[2] = 1;
        act[0] = IDLE;
        act[1] = IDLE;
        tlb0[1] = 1;
        tlb0[2] = 2;
        tlb1[1] = 1;
        tlb1[2] = 2;
        run cpu(0);
        run cpu(1)
    }
}
