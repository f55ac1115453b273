# SPDX-License-Identifier: BSD-2-Clause
# Source lists, as absolute paths, for every build of the library (hosts/metal compiles them itself).
function(hvmem_glob variable pattern)
    file(GLOB found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${pattern}")
    list(SORT found)
    set(${variable} "${found}" PARENT_SCOPE)
endfunction()

hvmem_glob(HVMEM_LIB_SOURCES "lib/*.c")
hvmem_glob(HVMEM_SIM_SOURCES "backends/sim/*.c")
hvmem_glob(HVMEM_X86_SOURCES "backends/x86/*.c")
hvmem_glob(HVMEM_ARM64_SOURCES "backends/arm64/*.c")

# Operand encoders are pure functions: they compile, and are tested, on every machine.
set(HVMEM_X86_ENCODE_SOURCES ${HVMEM_X86_SOURCES})
set(HVMEM_ARM64_ENCODE_SOURCES ${HVMEM_ARM64_SOURCES})
list(FILTER HVMEM_X86_ENCODE_SOURCES INCLUDE REGEX "/encode[^/]*$")
list(FILTER HVMEM_ARM64_ENCODE_SOURCES INCLUDE REGEX "/encode[^/]*$")
set(HVMEM_ENCODE_SOURCES ${HVMEM_X86_ENCODE_SOURCES} ${HVMEM_ARM64_ENCODE_SOURCES})
