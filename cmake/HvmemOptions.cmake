# SPDX-License-Identifier: BSD-2-Clause
# The options of the build. A project that takes hvmem in by add_subdirectory gets the library alone.
include(GNUInstallDirs)

option(HVMEM_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HVMEM_HOSTS "Build the user-space host, hosts/linux" ${PROJECT_IS_TOP_LEVEL})
option(HVMEM_METAL "Build the bare-metal images, hosts/metal" ${HVMEM_HOSTS})
option(HVMEM_BENCH "Build the benchmarks" OFF)
option(HVMEM_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(HVMEM_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(HVMEM_WERROR "Treat warnings as errors" OFF)
option(HVMEM_METAL_WERROR "The same for the bare-metal images" "${HVMEM_WERROR}")
option(HVMEM_TEST_POINTS "Compile pauses and faults into the copy of the core that tests link" ON)
set(HVMEM_CHECK_LEVEL "" CACHE STRING "Internal checks: 1, 2 or 3 (empty: the library's default)")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()

# The instruction set whose back-end goes into libhvmem.a: x86, arm64, or empty (the core alone).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(HVMEM_ARCH_DEFAULT x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(HVMEM_ARCH_DEFAULT arm64)
else()
    set(HVMEM_ARCH_DEFAULT "")
endif()
set(HVMEM_ARCH "${HVMEM_ARCH_DEFAULT}" CACHE STRING "Back-end of libhvmem.a: x86, arm64 or empty")
