/* SPDX-License-Identifier: BSD-2-Clause */
/* The file of memory maps: what is in it, and what is refused. */
#include "test_main.h"

#include "hvmem_linux.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAPS HVMEM_TEST_DATA "/memory-maps.txt"

static struct hvmem_linux_map map;

TEST(recorded_maps)
{
    unsigned line;

    REQUIRE_EQ(hvmem_linux_map_read(MAPS, 0, &map, NULL), HVMEM_AGAIN);
    CHECK(strcmp(map.name, "two-socket-x86") == 0);
    CHECK_EQ(map.ram_count, 4);
    CHECK_EQ(map.ram[3].start, 0x1840000000);
    CHECK_EQ(map.ram[3].bytes, 0x1800000000);
    CHECK_EQ(map.ram[3].node, 1);
    CHECK_EQ(map.distance[0 * HVMEM_NODE_LIMIT + 1], 21);
    CHECK_EQ(map.distance[1 * HVMEM_NODE_LIMIT + 0], 21);
    CHECK_EQ(map.distance[1 * HVMEM_NODE_LIMIT + 1], 10);
    CHECK_EQ(map.distance[2 * HVMEM_NODE_LIMIT + 1], 20);
    REQUIRE_EQ(hvmem_linux_map_read(MAPS, 1, &map, NULL), HVMEM_AGAIN);
    CHECK_EQ(map.ram_count, 12);
    CHECK_EQ(map.hotplug_count, 0);
    REQUIRE_EQ(hvmem_linux_map_read(MAPS, 2, &map, NULL), HVMEM_AGAIN);
    CHECK_EQ(map.ram_count, 6);
    CHECK_EQ(map.hotplug_count, 9);
    CHECK_EQ(map.hotplug[8].start, 0x0001000000000000);
    CHECK_EQ(hvmem_linux_map_read(MAPS, 3, &map, &line), HVMEM_OK);
    CHECK_EQ(hvmem_linux_map_read("no-such-file", 0, &map, &line), HVMEM_E_HOST);
    CHECK_EQ(hvmem_linux_map_read(NULL, 0, &map, &line), HVMEM_E_ARG);
}

/* Reads section 0 of a file with this text. */
static hvmem_status read_text(const char *text, unsigned *line)
{
    char path[] = "/tmp/hvmem-map-XXXXXX";
    int file = mkstemp(path);
    hvmem_status status;

    REQUIRE(file >= 0);
    REQUIRE_EQ(write(file, text, strlen(text)), (long)strlen(text));
    close(file);
    status = hvmem_linux_map_read(path, 0, &map, line);
    unlink(path);
    return status;
}

TEST(bad_lines_are_refused)
{
    static const char *const bad[] = {"rom 0 fff 0",
                                      "ram 0",
                                      "ram 1000 fff 0",
                                      "ram 0 fff 0 1",
                                      "ram 0 ffffffffffffffff 0",
                                      "distance 0 0 20",
                                      "distance 0 1 9",
                                      "distance 0 1 256",
                                      "[two",
                                      "[]",
                                      "[name] more"};
    char text[128];
    unsigned line = 0;
    size_t i;

    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, "# head\n%s%s\n", bad[i][0] == '[' ? "" : "[x]\n", bad[i]);
        if (!CHECK_EQ(read_text(text, &line), HVMEM_E_ARG))
            test_note("line: %s", bad[i]);
        CHECK_EQ(line, bad[i][0] == '[' ? 2 : 3);
    }
    CHECK_EQ(read_text("ram 0 fff 0\n", &line), HVMEM_E_ARG);
    CHECK_EQ(read_text("[x]\nram 0 fff 64\n", &line), HVMEM_E_NODE);
    CHECK_EQ(read_text("[x]\ndistance 0 64 20\n", &line), HVMEM_E_NODE);
    CHECK_EQ(read_text("[x]\nram 0 fff 63 # comment\n", &line), HVMEM_AGAIN);
    CHECK_EQ(map.ram[0].bytes, 0x1000);
    CHECK_EQ(read_text("# nothing\n", &line), HVMEM_OK);
}

TEST(too_many_pieces_are_refused)
{
    char *text = malloc(64 * (HVMEM_LINUX_MAP_PIECES + 2));
    size_t at;
    unsigned i, line;

    REQUIRE(text != NULL);
    at = (size_t)sprintf(text, "[x]\n");
    for (i = 0; i <= HVMEM_LINUX_MAP_PIECES; i++)
        at += (size_t)sprintf(text + at, "ram %x000 %xfff 0\n", 2 * i, 2 * i);
    CHECK_EQ(read_text(text, &line), HVMEM_E_COUNT);
    CHECK_EQ(line, HVMEM_LINUX_MAP_PIECES + 2);
    free(text);
}
