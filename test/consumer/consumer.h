/* SPDX-License-Identifier: BSD-2-Clause */
/* The one entry of the consumer; 0 or the number of the step that went wrong. */
#ifndef CONSUMER_H
#define CONSUMER_H

int consumer_run(void);

#endif
