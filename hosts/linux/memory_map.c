/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads one section of a file of memory maps (test/data/README.md tells the form). */
#include "hvmem_linux.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOCAL_DISTANCE  10u
#define REMOTE_DISTANCE 20u
#define LINE_BYTES      512

static hvmem_status add_piece(struct hvmem_map_piece *pieces, hvmem_u32 *count, uint64_t first,
                              uint64_t last, unsigned node)
{
    if (node >= HVMEM_NODE_LIMIT)
        return HVMEM_E_NODE;
    if (last < first || last == UINT64_MAX)
        return HVMEM_E_ARG;
    if (*count == HVMEM_LINUX_MAP_PIECES)
        return HVMEM_E_COUNT;
    pieces[*count].start = first;
    pieces[*count].bytes = last - first + 1;
    pieces[*count].node = node;
    pieces[*count].reserved = 0;
    ++*count;
    return HVMEM_OK;
}

static hvmem_status set_distance(struct hvmem_linux_map *map, unsigned a, unsigned b,
                                 unsigned value)
{
    if (a >= HVMEM_NODE_LIMIT || b >= HVMEM_NODE_LIMIT)
        return HVMEM_E_NODE;
    if (value < LOCAL_DISTANCE || value > 255 || a == b)
        return HVMEM_E_ARG;
    map->distance[a * HVMEM_NODE_LIMIT + b] = (hvmem_u8)value;
    map->distance[b * HVMEM_NODE_LIMIT + a] = (hvmem_u8)value;
    return HVMEM_OK;
}

static hvmem_status take_line(struct hvmem_linux_map *map, const char *line)
{
    uint64_t first, last;
    unsigned a, b, value;
    char rest;

    if (sscanf(line, "ram %" SCNx64 " %" SCNx64 " %u %c", &first, &last, &a, &rest) == 3)
        return add_piece(map->ram, &map->ram_count, first, last, a);
    if (sscanf(line, "hotplug %" SCNx64 " %" SCNx64 " %u %c", &first, &last, &a, &rest) == 3)
        return add_piece(map->hotplug, &map->hotplug_count, first, last, a);
    if (sscanf(line, "distance %u %u %u %c", &a, &b, &value, &rest) == 3)
        return set_distance(map, a, b, value);
    return HVMEM_E_ARG;
}

/* Without the comment and the spaces at the end; empty if nothing is left. */
static void trim(char *line)
{
    size_t length;

    line[strcspn(line, "#\r\n")] = '\0';
    length = strlen(line);
    while (length != 0 && (line[length - 1] == ' ' || line[length - 1] == '\t'))
        line[--length] = '\0';
}

static hvmem_status take_name(struct hvmem_linux_map *map, const char *line)
{
    size_t length = strcspn(line + 1, "]");

    if (line[1 + length] != ']' || line[2 + length] != '\0' || length == 0 ||
        length >= sizeof map->name)
        return HVMEM_E_ARG;
    memcpy(map->name, line + 1, length);
    map->name[length] = '\0';
    return HVMEM_OK;
}

static void start_map(struct hvmem_linux_map *map)
{
    unsigned node;

    memset(map, 0, sizeof *map);
    memset(map->distance, (int)REMOTE_DISTANCE, sizeof map->distance);
    for (node = 0; node < HVMEM_NODE_LIMIT; node++)
        map->distance[node * HVMEM_NODE_LIMIT + node] = LOCAL_DISTANCE;
    map->distance_nodes = HVMEM_NODE_LIMIT;
}

static hvmem_status read_section(FILE *file, hvmem_u32 index, struct hvmem_linux_map *map,
                                 unsigned *number)
{
    char line[LINE_BYTES];
    hvmem_u32 sections = 0; /* begun so far */
    hvmem_status status = HVMEM_OK;

    while (status == HVMEM_OK && fgets(line, sizeof line, file) != NULL) {
        ++*number;
        if (strlen(line) == sizeof line - 1)
            return HVMEM_E_ARG;
        trim(line);
        if (line[0] == '\0')
            continue;
        if (line[0] == '[' && ++sections > index + 1)
            break;
        if (sections == 0)
            return HVMEM_E_ARG;
        if (sections == index + 1)
            status = line[0] == '[' ? take_name(map, line) : take_line(map, line);
    }
    if (status == HVMEM_OK && ferror(file))
        status = HVMEM_E_HOST;
    return status == HVMEM_OK && sections > index ? HVMEM_AGAIN : status;
}

hvmem_status hvmem_linux_map_read(const char *path, hvmem_u32 index, struct hvmem_linux_map *map,
                                  unsigned *line)
{
    unsigned number = 0;
    hvmem_status status;
    FILE *file;

    if (path == NULL || map == NULL)
        return HVMEM_E_ARG;
    file = fopen(path, "r");
    if (file == NULL)
        return HVMEM_E_HOST;
    start_map(map);
    status = read_section(file, index, map, &number);
    fclose(file);
    if (line != NULL)
        *line = number;
    return status;
}
