/* SPDX-License-Identifier: BSD-2-Clause */
/* The consumer as an ordinary program: its exit code is the step that went wrong. */
#include "consumer.h"

int main(void)
{
    return consumer_run();
}
