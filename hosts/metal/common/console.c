/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Console output of the metal host: formatted printing over the architecture's one-character output,
 * the spin lock that keeps lines of several CPUs apart, and the two ways to end.
 */
#include <stdarg.h>

#include "boot.h"

/* How many turns a CPU waits for the console before it prints anyway: a CPU that died while printing
 * must not silence the others. */
#define CONSOLE_PATIENCE 100000000u

static struct metal_spin console_lock;

void metal_spin_lock(struct metal_spin *lock)
{
    while (__atomic_exchange_n(&lock->word, 1, __ATOMIC_ACQUIRE) != 0)
        while (__atomic_load_n(&lock->word, __ATOMIC_RELAXED) != 0)
            metal_relax();
}

void metal_spin_unlock(struct metal_spin *lock)
{
    __atomic_store_n(&lock->word, 0, __ATOMIC_RELEASE);
}

void metal_putc(char c)
{
    metal__console_putc(c);
}

/* What stands between '%' and the conversion letter. */
struct spec {
    unsigned width;
    int zero, left, size; /* size: 0 int, 1 long, 2 long long */
};

static void pad(char c, unsigned count)
{
    while (count-- > 0)
        metal__console_putc(c);
}

static void print_text(const struct spec *spec, const char *text, unsigned length, int zero)
{
    const unsigned fill = spec->width > length ? spec->width - length : 0;

    if (!spec->left)
        pad(zero ? '0' : ' ', fill);
    for (unsigned i = 0; i < length; i++)
        metal__console_putc(text[i]);
    if (spec->left)
        pad(' ', fill);
}

static void print_number(const struct spec *spec, uint64_t value, unsigned base, int negative)
{
    char digits[24];
    unsigned at = sizeof digits;

    do {
        digits[--at] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    if (negative)
        digits[--at] = '-';
    print_text(spec, digits + at, (unsigned)sizeof digits - at, spec->zero && !spec->left);
}

static void print_string(const struct spec *spec, const char *text)
{
    unsigned length = 0;

    if (text == NULL)
        text = "(null)";
    while (text[length] != '\0')
        length++;
    print_text(spec, text, length, 0);
}

static const char *parse_spec(const char *f, struct spec *spec)
{
    *spec = (struct spec){0, 0, 0, 0};
    for (; *f == '-' || *f == '0'; f++) {
        if (*f == '-')
            spec->left = 1;
        else
            spec->zero = 1;
    }
    for (; *f >= '0' && *f <= '9' && spec->width < 200; f++)
        spec->width = spec->width * 10 + (unsigned)(*f - '0');
    for (; *f == 'l' || *f == 'z'; f++)
        spec->size += *f == 'z' ? 2 : 1;
    return f;
}

static void print_all(const char *f, va_list *args)
{
    struct spec spec;
    int64_t number;

    for (; *f != '\0'; f++) {
        if (*f != '%') {
            metal__console_putc(*f);
            continue;
        }
        f = parse_spec(f + 1, &spec);
        switch (*f) {
        case 's':
            print_string(&spec, va_arg(*args, const char *));
            break;
        case 'c':
            metal__console_putc((char)va_arg(*args, int));
            break;
        case 'd':
            number = spec.size > 0 ? va_arg(*args, int64_t) : va_arg(*args, int);
            print_number(&spec, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 10,
                         number < 0);
            break;
        case 'u':
        case 'x':
            print_number(&spec,
                         spec.size > 0 ? va_arg(*args, uint64_t) : va_arg(*args, unsigned int),
                         *f == 'x' ? 16 : 10, 0);
            break;
        case 'p':
            print_number(&spec, (uint64_t)(uintptr_t)va_arg(*args, void *), 16, 0);
            break;
        case '\0':
            return;
        default:
            metal__console_putc(*f);
            break;
        }
    }
}

void metal_printf(const char *format, ...)
{
    const uint64_t irq = metal_irq_save();
    unsigned turns = 0;
    va_list args;

    while (__atomic_exchange_n(&console_lock.word, 1, __ATOMIC_ACQUIRE) != 0 &&
           ++turns < CONSOLE_PATIENCE)
        metal_relax();
    va_start(args, format);
    print_all(format, &args);
    va_end(args);
    metal_spin_unlock(&console_lock);
    metal_irq_restore(irq);
}

void metal_exit(unsigned code)
{
    metal_printf("metal: exit %u\n", code);
    metal__arch_exit(code > 46 ? 46 : code);
}

void metal_panic(const char *reason)
{
    /* Whoever holds the console may be the one that panics. */
    metal_spin_unlock(&console_lock);
    metal_printf("metal: panic on CPU %u: %s\n", metal_cpu_id(), reason);
    metal_exit(46);
}
