/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The contract of the metal host: what a program in a bare-metal image may ask of the machine.
 * One interface for x86-64 (hosts/metal/x86) and arm64 (hosts/metal/arm64), so that test bodies are
 * written once. Freestanding C of gcc or clang; no libc.
 */
#ifndef METAL_METAL_H
#define METAL_METAL_H

#include <stddef.h>
#include <stdint.h>

/* ---- limits: what lies beyond is refused and reported on the console, the rest is used ---- */

#ifndef METAL_MAX_CPUS
#    define METAL_MAX_CPUS 64u /* at most 64: CPU sets are one 64-bit word */
#endif
#define METAL_MAX_NODES    16u
#define METAL_MAX_MEM      64u
#define METAL_MAX_RESERVED 32u
#define METAL_MAX_MODULES  8u
#define METAL_CMDLINE      1024u
#define METAL_PAGE_SHIFT   12u
#define METAL_PAGE_BYTES   4096u

/* Results of functions that can fail. */
#define METAL_OK        0
#define METAL_E_INVAL   (-1) /* misaligned, outside the window, unknown CPU, ... */
#define METAL_E_TIMEOUT (-2) /* another CPU did not answer in time */
#define METAL_E_LACK    (-3) /* this machine does not have it */
#define METAL_E_FULL    (-4) /* a table of the host is full */

/* ---- boot information (filled before metal__main, constant afterwards) ---- */

/* A run of usable RAM: page aligned, sorted by base, disjoint, all of one node, nothing reserved cut
 * out yet (see reserved[]). */
struct metal_mem {
    uint64_t base;
    uint64_t bytes;
    uint32_t node; /* index into node_id[] and distance[] */
    uint32_t pad;
};

/* RAM that must not be handed to an allocator: image, boot data, tables, modules. Page aligned
 * outward; entries may overlap. */
struct metal_reserved {
    uint64_t base;
    uint64_t bytes;
    const char *what;
};

struct metal_cpu {
    uint64_t hw_id; /* APIC id or MPIDR affinity */
    uint32_t node;  /* as in struct metal_mem */
    uint32_t online;
};

struct metal_module {
    uint64_t base;
    uint64_t bytes;
};

struct metal_boot {
    const char *protocol; /* "pvh", "multiboot", "fdt", "uefi" */
    uint32_t mem_count;
    uint32_t reserved_count;
    uint32_t cpu_count;   /* usable CPUs; CPU 0 is the one that booted */
    uint32_t cpu_refused; /* CPUs of the firmware beyond METAL_MAX_CPUS or "maxcpus=" */
    uint32_t node_count;  /* at least 1 */
    uint32_t module_count;
    uint32_t map_bad;     /* firmware map entries that were reported and not used (whole or part) */
    uint32_t map_entries; /* firmware map entries seen */
    struct metal_mem mem[METAL_MAX_MEM];
    struct metal_reserved reserved[METAL_MAX_RESERVED];
    struct metal_cpu cpu[METAL_MAX_CPUS];
    struct metal_module module[METAL_MAX_MODULES];
    uint32_t node_id[METAL_MAX_NODES];                  /* the firmware's (sparse) domain numbers */
    uint8_t distance[METAL_MAX_NODES][METAL_MAX_NODES]; /* 10 = local, 255 = unreachable */
    char cmdline[METAL_CMDLINE];
};

const struct metal_boot *metal_boot_info(void);

/* ---- programs ---- */

/*
 * An image holds several programs; the first word of the command line names the one that runs (none:
 * "selftest"). The program's return value is the exit code, 0 = pass. Place METAL_PROGRAM at the
 * start of a line: the build registers one test per program by it. Labels of that test may follow the
 * function: "slow" leaves it out of test/quick.
 */
struct metal_program {
    const char *name;
    int (*run)(void);
};
#define METAL_PROGRAM(ident, function, ...)                                                        \
    __attribute__((used, section(".metal_programs"),                                               \
                   aligned(8))) static const struct metal_program metal_program_##ident = {        \
        #ident, function}

/* Value of "name=value" on the command line (up to the next space; not terminated there: use the
 * length), or NULL. */
const char *metal_arg(const char *name, size_t *length);
/* Number given by "name=NUMBER" (decimal or 0x), else `otherwise`. */
uint64_t metal_arg_u64(const char *name, uint64_t otherwise);
/* Does "name=value" stand on the command line with exactly this value? */
int metal_arg_is(const char *name, const char *value);

/* ---- console and end ---- */

void metal_putc(char c);
/* %s %c %d %u %x %p %%, with l/ll/z, width, '0' and '-'. One call is printed without interleaving. */
void metal_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the emulator or machine; 0 = pass, 1..46 = failure. Prints "metal: exit CODE" first. */
__attribute__((noreturn)) void metal_exit(unsigned code);
/* Prints the reason and ends with code 46. */
__attribute__((noreturn)) void metal_panic(const char *reason);

/* ---- CPUs ---- */

/* Brings up every CPU of the boot information that is not online yet; each runs fn(cpu) (may be
 * NULL) with interrupts on and then waits for work. Returns the number of CPUs online; one that does
 * not come up in a second is reported and stays offline. Called once, on CPU 0. */
unsigned metal_start_cpus(void (*fn)(unsigned cpu));
unsigned metal_cpu_id(void);
uint64_t metal_online(void); /* bit per CPU */

typedef void (*metal_call_fn)(void *arg);
/* Runs fn(arg) on every CPU of `mask`, by IPI and in interrupt context (interrupts off), on the
 * caller too if it is in the mask, and returns when all have run it. May be called with interrupts on
 * or off and by several CPUs at once: who waits serves calls to itself. METAL_E_INVAL: a CPU that
 * is not online, or a call from within fn; nothing ran. METAL_E_TIMEOUT: some CPU did not answer in
 * about ten seconds (no further calls from this one then: the open call may still be served). */
int metal_call_cpus(uint64_t mask, metal_call_fn fn, void *arg);
/* The same, but fn runs outside of interrupt context with interrupts on, from the idle loop of each
 * CPU, for as long as it likes; IPIs are served meanwhile. Only CPU 0 calls it. */
int metal_run_cpus(uint64_t mask, metal_call_fn fn, void *arg);

/* With interrupts off: waits (HLT, WFI) until an interrupt came, serves it, returns with
 * interrupts off. */
void metal_idle(void);
void metal_relax(void); /* one turn of a spin loop */

uint64_t metal_irq_save(void); /* interrupts off; returns the previous state */
void metal_irq_restore(uint64_t state);
void metal_irq_enable(void);

uint64_t metal_cycles(void); /* TSC, CNTVCT */
uint64_t metal_cycles_per_ms(void);
/* Name of the hypervisor or emulator found, NULL on what looks like bare hardware. */
const char *metal_emulator(void);

struct metal_spin {
    uint32_t word; /* 0 = free */
};
void metal_spin_lock(struct metal_spin *lock);
void metal_spin_unlock(struct metal_spin *lock);

/* ---- memory ---- */

/* All RAM is mapped readable and writable for the life of the image; the pointer stays valid. */
void *metal_frame(uint64_t maddr);
uint64_t metal_maddr(const void *pointer); /* the inverse, also for objects of the image */
/* Page-aligned memory for the host and tests, taken from reserved space of the image (zeroed, never
 * given back); NULL when used up. bytes is rounded up to pages; align is a power of two. */
void *metal_pages(size_t bytes, size_t align);

/* ---- the test window: virtual space that only tests map ---- */

#define METAL_WINDOW_BYTES (4ull << 30)
/*
 * Offset of a page whose translation nothing else pushes out: Bochs' TLB has one place for all pages of the
 * same number modulo 2048, and x86 images use memory from 1 MiB on, below 8 MiB.
 */
#define METAL_WINDOW_APART 0xff000ul
#define METAL_4K           12u
#define METAL_2M           21u
#define METAL_1G           30u

#define METAL_P 1u /* present */
#define METAL_W 2u /* writable */
#define METAL_X 4u /* executable */
#define METAL_G 8u /* global (not tagged by PCID/ASID) */

uintptr_t metal_window(void); /* base, 1 GiB aligned; nothing mapped at start */
/*
 * Writes the one entry that maps `va` (in the window) at the given size and makes the store visible
 * to table walkers; NO invalidation whatsoever is made: stale translations are the tests' subject.
 * flags without METAL_P write a not-present entry. Tables above the entry are made when missing
 * (METAL_E_FULL: no table left); METAL_E_INVAL when va or maddr is not aligned to the size or va lies
 * outside, or when a table (finer mappings) stands where a large entry is asked for or a large entry
 * where a finer one is: unmap first with metal_window_clear. METAL_E_LACK: no 1 GiB pages here.
 */
int metal_map(uintptr_t va, uint64_t maddr, unsigned size_shift, unsigned flags);
/* The raw entry, 0 where no table leads to it. */
uint64_t metal_pte(uintptr_t va, unsigned size_shift);
/* Overwrites the raw entry (accessed, dirty, attributes, ...), as above without invalidation. */
int metal_pte_write(uintptr_t va, unsigned size_shift, uint64_t raw);
/* Empties the window, takes its tables back and flushes every online CPU by the host's own widest
 * operation. */
void metal_window_clear(void);
/* This CPU forgets every translation, by the host's own sequence (not the library's). */
void metal_flush_own(void);

/* ---- faults ---- */

struct metal_fault {
    uint64_t cause; /* x86: vector; arm64: exception class */
    uint64_t code;  /* x86: error code; arm64: ESR */
    uint64_t addr;  /* faulting address (CR2, FAR) */
    uint64_t ip;
};
/* 0: the access was made. 1: it faulted and was skipped; *fault (may be NULL) tells how. Usable on any
 * CPU, with interrupts on or off, not nested. */
int metal_probe_read(uintptr_t va, uint64_t *value, struct metal_fault *fault);
int metal_probe_write(uintptr_t va, uint64_t value, struct metal_fault *fault);
/* Calls the code at va as uint64_t (*)(void). */
int metal_probe_exec(uintptr_t va, uint64_t *value, struct metal_fault *fault);
/* Runs fn(arg); a fault anywhere in it ends it. */
int metal_probe_call(metal_call_fn fn, void *arg, struct metal_fault *fault);
/* Writes machine code at `to` (through a writable alias) that returns `value` when called; returns
 * its length in bytes. No cache maintenance. */
size_t metal_code_return(void *to, uint16_t value);
/* Makes code written at `at` visible to instruction fetch of every CPU, by the host's own sequence. */
void metal_code_visible(const void *at, size_t bytes);

#endif
