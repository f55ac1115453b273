/* SPDX-License-Identifier: BSD-2-Clause */
/* Topology through hwloc, found or described; distances of the real machine through libnuma. */
#include "hvmem_linux.h"

#include <hwloc.h>
#include <numa.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCAL_DISTANCE  10
#define REMOTE_DISTANCE 20

/* Where hwloc finds nothing (no /sys, as in a bare chroot), the kernel's own count. */
static hvmem_u64 memory_of_machine(hwloc_topology_t found)
{
    hvmem_u64 bytes = hwloc_get_root_obj(found)->total_memory;
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    if (bytes == 0 && pages > 0 && size > 0)
        bytes = (hvmem_u64)pages * (hvmem_u64)size;
    return bytes;
}

/* Nodes, in hwloc's order, which is that of the ids. */
static hvmem_status read_nodes(hwloc_topology_t found, struct hvmem_linux_topology *topology)
{
    int count = hwloc_get_nbobjs_by_type(found, HWLOC_OBJ_NUMANODE);
    int i;

    for (i = 0; i < count; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(found, HWLOC_OBJ_NUMANODE, (unsigned)i);

        if (node->os_index >= HVMEM_NODE_LIMIT)
            return HVMEM_E_NODE;
        topology->node[topology->nodes].id = node->os_index;
        topology->node[topology->nodes].bytes = node->attr->numanode.local_memory;
        topology->nodes++;
        if (node->os_index >= topology->distance_nodes)
            topology->distance_nodes = node->os_index + 1;
    }
    return topology->nodes == 0 ? HVMEM_E_HOST : HVMEM_OK;
}

/* A CPU belongs to the first node with memory that names it, else to the first that names it. */
static hvmem_u8 node_of_cpu(hwloc_topology_t found, hwloc_obj_t cpu)
{
    int count = hwloc_get_nbobjs_by_type(found, HWLOC_OBJ_NUMANODE);
    hvmem_u8 best = 0;
    int have = 0;
    int i;

    for (i = 0; i < count; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(found, HWLOC_OBJ_NUMANODE, (unsigned)i);

        if (!hwloc_bitmap_isset(node->cpuset, cpu->os_index))
            continue;
        if (node->attr->numanode.local_memory != 0)
            return (hvmem_u8)node->os_index;
        if (!have)
            best = (hvmem_u8)node->os_index;
        have = 1;
    }
    return best;
}

static void read_cpus(hwloc_topology_t found, struct hvmem_linux_topology *topology)
{
    int count = hwloc_get_nbobjs_by_type(found, HWLOC_OBJ_PU);
    int i;

    if (count > (int)HVMEM_LINUX_MAX_CPUS)
        count = (int)HVMEM_LINUX_MAX_CPUS;
    for (i = 0; i < count; i++)
        topology->cpu_node[i] =
            node_of_cpu(found, hwloc_get_obj_by_type(found, HWLOC_OBJ_PU, (unsigned)i));
    topology->cpus = (hvmem_u32)count;
}

static void read_distances(struct hvmem_linux_topology *topology)
{
    hvmem_u32 rows = topology->distance_nodes;
    int known = !topology->synthetic && numa_available() >= 0;
    hvmem_u32 from, to;

    for (from = 0; from < rows; from++) {
        for (to = 0; to < rows; to++) {
            int value = known ? numa_distance((int)from, (int)to) : 0;

            if (value < LOCAL_DISTANCE || value > 255)
                value = from == to ? LOCAL_DISTANCE : REMOTE_DISTANCE;
            topology->distance[from * rows + to] = (hvmem_u8)value;
        }
    }
}

hvmem_status hvmem_linux_topology(const char *description, struct hvmem_linux_topology *topology)
{
    hwloc_topology_t found;
    hvmem_status status = HVMEM_OK;

    if (topology == NULL)
        return HVMEM_E_ARG;
    memset(topology, 0, sizeof *topology);
    topology->synthetic = description != NULL;
    if (hwloc_topology_init(&found) != 0)
        return HVMEM_E_HOST;
    if (description != NULL && hwloc_topology_set_synthetic(found, description) != 0)
        status = HVMEM_E_ARG;
    else if (hwloc_topology_load(found) != 0)
        status = HVMEM_E_HOST;
    if (status == HVMEM_OK)
        status = read_nodes(found, topology);
    if (status == HVMEM_OK) {
        read_cpus(found, topology);
        read_distances(topology);
        if (!topology->synthetic && topology->nodes == 1 && topology->node[0].bytes == 0)
            topology->node[0].bytes = memory_of_machine(found);
    }
    hwloc_topology_destroy(found);
    return status;
}
