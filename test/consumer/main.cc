/* SPDX-License-Identifier: BSD-2-Clause */
/* The consumer from C++: the headers' declarations have C linkage. */
#include <hvmem/heap.h>

extern "C" {
#include "consumer.h"
}

int main()
{
    hvmem_config config;
    hvmem_size bytes = 0;

    hvmem_config_default(&config);
    if (hvmem_heap_size(&config, &bytes) != HVMEM_OK || bytes == 0)
        return 100;
    return consumer_run();
}
