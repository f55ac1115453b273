/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * testpoint.h: named places where a test can pause a CPU or make a step fail. In test builds
 * (HVMEM_TEST_POINTS defined) the test supplies hvmem__test_point(); it returns non-zero to make
 * the step fail. In every other build HVMEM_TEST_POINT() is the constant 0.
 */
#ifndef HVMEM_LIB_TESTPOINT_H
#define HVMEM_LIB_TESTPOINT_H

#ifdef HVMEM_TEST_POINTS
int hvmem__test_point(const char *name);
#    define HVMEM_TEST_POINT(name) hvmem__test_point(name)
#else
#    define HVMEM_TEST_POINT(name) 0
#endif

#endif
