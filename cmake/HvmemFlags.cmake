# SPDX-License-Identifier: BSD-2-Clause
# Compiler flags, written once: the freestanding code, and the ordinary C of hosts, tests and benches.
include(CheckCCompilerFlag)

set(HVMEM_STRICT_WARNINGS
    -Wall -Wextra -pedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wswitch-default
    -Wmissing-prototypes -Wstrict-prototypes -Wvla -Wundef -Wwrite-strings -Wredundant-decls
    -Wdeclaration-after-statement -Wnested-externs -Winit-self)
set(HVMEM_HOSTED_WARNINGS
    -Wall -Wextra -Wshadow -Wcast-qual -Wmissing-prototypes -Wstrict-prototypes -Wvla -Wundef
    -Wwrite-strings)

# As an error: clang only warns of it on other machines.
set(CMAKE_REQUIRED_FLAGS -Werror)
check_c_compiler_flag(-mno-outline-atomics HVMEM_HAS_NO_OUTLINE_ATOMICS)
unset(CMAKE_REQUIRED_FLAGS)

# The headers alone, for code that must not pull in a particular build of the core.
add_library(hvmem_headers INTERFACE)
add_library(hvmem::headers ALIAS hvmem_headers)
target_include_directories(hvmem_headers INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# gnu99 is the oldest dialect the library promises; a newer construct fails here, not in a host.
function(hvmem_core_flags target)
    target_compile_options(${target} PRIVATE -std=gnu99 -fvisibility=hidden ${HVMEM_STRICT_WARNINGS}
        $<$<BOOL:${HVMEM_WERROR}>:-Werror>
        $<$<BOOL:${HVMEM_HAS_NO_OUTLINE_ATOMICS}>:-mno-outline-atomics>)
    if(HVMEM_CHECK_LEVEL)
        target_compile_definitions(${target} PRIVATE HVMEM_CHECK_LEVEL=${HVMEM_CHECK_LEVEL})
    endif()
    target_link_libraries(${target} PUBLIC hvmem_headers)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

function(hvmem_freestanding target)
    hvmem_core_flags(${target})
    target_compile_options(${target} PRIVATE -ffreestanding)
endfunction()

function(hvmem_hosted target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-std=gnu11>
        $<$<COMPILE_LANGUAGE:C>:${HVMEM_HOSTED_WARNINGS}> $<$<BOOL:${HVMEM_WERROR}>:-Werror>)
endfunction()

# A static library of the given sources; an empty list gives a library that adds nothing.
function(hvmem_static_library target)
    if(ARGN)
        add_library(${target} STATIC ${ARGN})
        hvmem_freestanding(${target})
    else()
        add_library(${target} INTERFACE)
        target_link_libraries(${target} INTERFACE hvmem_headers)
    endif()
endfunction()
