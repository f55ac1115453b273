/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command line: words apart by spaces, the first without '=' names the program, the others are
 * name=value.
 */
#include "boot.h"

void metal__cmdline(const char *text)
{
    size_t i = 0;

    for (; i < METAL_CMDLINE - 1 && text[i] != '\0'; i++)
        metal__boot.cmdline[i] = text[i] < ' ' ? ' ' : text[i];
    metal__boot.cmdline[i] = '\0';
}

const char *metal_arg(const char *name, size_t *length)
{
    const char *at = metal__boot.cmdline;

    while (*at != '\0') {
        size_t n = 0;

        for (; *at == ' '; at++)
            ;
        while (name[n] != '\0' && at[n] == name[n])
            n++;
        if (name[n] == '\0' && at[n] == '=') {
            at += n + 1;
            for (n = 0; at[n] != '\0' && at[n] != ' '; n++)
                ;
            if (length != NULL)
                *length = n;
            return at;
        }
        for (; *at != '\0' && *at != ' '; at++)
            ;
    }
    return NULL;
}

static unsigned digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f')
        return (unsigned)(c - 'a') + 10;
    if (c >= 'A' && c <= 'F')
        return (unsigned)(c - 'A') + 10;
    return 99;
}

uint64_t metal_arg_u64(const char *name, uint64_t otherwise)
{
    size_t length = 0;
    size_t i = 0;
    const char *text = metal_arg(name, &length);
    unsigned base = 10;
    uint64_t value = 0;

    if (text == NULL || length == 0)
        return otherwise;
    if (length > 2 && text[0] == '0' && text[1] == 'x') {
        base = 16;
        i = 2;
    }
    for (; i < length; i++) {
        if (digit_of(text[i]) >= base)
            return otherwise;
        value = value * base + digit_of(text[i]);
    }
    return value;
}

int metal_arg_is(const char *name, const char *value)
{
    size_t length = 0;
    const char *text = metal_arg(name, &length);

    if (text == NULL)
        return 0;
    for (size_t i = 0; i < length; i++)
        if (value[i] == '\0' || value[i] != text[i])
            return 0;
    return value[length] == '\0';
}
