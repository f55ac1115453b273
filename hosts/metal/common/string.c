/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory functions that compilers call by themselves. Built without loop-pattern recognition, or
 * the loops would become calls to themselves.
 */
#include "boot.h"

void *memset(void *to, int value, size_t bytes);
void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

/* A word that may alias anything. */
typedef uint64_t __attribute__((may_alias)) word_t;

void *memset(void *to, int value, size_t bytes)
{
    unsigned char *d = to;
    const uint64_t word = (unsigned char)value * 0x0101010101010101ull;

    for (; bytes > 0 && ((uintptr_t)d & 7) != 0; bytes--)
        *d++ = (unsigned char)value;
    for (; bytes >= 8; bytes -= 8, d += 8)
        *(word_t *)(void *)d = word;
    for (; bytes > 0; bytes--)
        *d++ = (unsigned char)value;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    unsigned char *d = to;
    const unsigned char *s = from;

    /* Words only when both sides are aligned: arm64 with its MMU off faults on anything else. */
    if ((((uintptr_t)d | (uintptr_t)s) & 7) == 0)
        for (; bytes >= 8; bytes -= 8, d += 8, s += 8)
            *(word_t *)(void *)d = *(const word_t *)(const void *)s;
    for (; bytes > 0; bytes--)
        *d++ = *s++;
    return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
    unsigned char *d = to;
    const unsigned char *s = from;

    if ((uintptr_t)d - (uintptr_t)s >= bytes)
        return memcpy(to, from, bytes);
    while (bytes > 0) {
        bytes--;
        d[bytes] = s[bytes];
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t bytes)
{
    const unsigned char *x = a;
    const unsigned char *y = b;

    for (size_t i = 0; i < bytes; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}
