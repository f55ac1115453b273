# SPDX-License-Identifier: BSD-2-Clause
# Bare-metal images, built beside the ordinary targets: each source is compiled by a command of its own,
# because the image's machine need not be this one.
#
# hvmem_metal_image(ARCH NAME [EXTRA source...] [LINKER_SCRIPT file]) makes the target NAME, the ELF file
# ${HVMEM_METAL_DIR}/NAME of hosts/{common,metal/common,metal/ARCH}, lib, backends/ARCH and the programs of
# {test,bench}/metal and {test,bench}/metal/ARCH. Objects are shared by the images of one ARCH.
set(HVMEM_METAL_DIR "${CMAKE_BINARY_DIR}/metal")

set(HVMEM_METAL_FLAGS
    -ffreestanding -fno-pic -fno-pie -fno-stack-protector -fno-asynchronous-unwind-tables
    -fno-omit-frame-pointer -O2 -g -Wall -Wextra -Wshadow -Wundef
    -Wmissing-prototypes -Wvla "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}")
set(HVMEM_METAL_FLAGS_x86 -mno-red-zone -mgeneral-regs-only -fcf-protection=none)
set(HVMEM_METAL_FLAGS_arm64 -mgeneral-regs-only -mstrict-align -mno-outline-atomics)
if(HVMEM_METAL_WERROR)
    list(APPEND HVMEM_METAL_FLAGS -Werror)
endif()

# Finds HVMEM_METAL_CC_<arch>: this build's compiler where it makes code for the machine, else a cross
# gcc, else clang with lld.
function(hvmem_metal_compiler arch)
    if(HVMEM_METAL_CC_${arch})
        return()
    endif()
    set(triple_x86 x86_64-linux-gnu)
    set(triple_arm64 aarch64-linux-gnu)
    find_program(HVMEM_METAL_GCC_${arch} ${triple_${arch}}-gcc)
    find_program(HVMEM_METAL_CLANG clang)
    if(HVMEM_ARCH STREQUAL arch)
        set(command ${CMAKE_C_COMPILER})
        set(kind ${CMAKE_C_COMPILER_ID})
    elseif(HVMEM_METAL_GCC_${arch})
        set(command ${HVMEM_METAL_GCC_${arch}})
        set(kind GNU)
    elseif(HVMEM_METAL_CLANG)
        set(command ${HVMEM_METAL_CLANG} --target=${triple_${arch}})
        set(kind Clang)
    endif()
    if(kind STREQUAL "GNU")
        set(link -Wl,--no-warn-rwx-segments)
        set(flags -fno-tree-loop-distribute-patterns) # clang does without by -ffreestanding
    else()
        set(link -fuse-ld=lld)
    endif()
    set(HVMEM_METAL_CC_${arch} "${command}" PARENT_SCOPE)
    set(HVMEM_METAL_LINK_${arch} "${link}" PARENT_SCOPE)
    set(HVMEM_METAL_FLAGS_${arch} ${HVMEM_METAL_FLAGS_${arch}} ${flags} PARENT_SCOPE)
endfunction()

# Adds a command that compiles one source; the object's name is returned in `object`.
function(hvmem_metal_object arch source object)
    file(RELATIVE_PATH relative "${PROJECT_SOURCE_DIR}" "${source}")
    set(out "${HVMEM_METAL_DIR}/${arch}/${relative}.o")
    get_filename_component(folder "${out}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    if(relative MATCHES "^(lib|backends)/")
        set(standard -std=gnu99 -nostdinc -Wframe-larger-than=2304) # stacks of hosts are small
    else()
        set(standard -std=gnu11)
    endif()
    add_custom_command(OUTPUT "${out}"
        COMMAND ${HVMEM_METAL_CC_${arch}} ${HVMEM_METAL_FLAGS} ${HVMEM_METAL_FLAGS_${arch}} ${standard}
                -MD -MF "${out}.d" -c "${source}" -o "${out}"
        DEPENDS "${source}" DEPFILE "${out}.d"
        COMMENT "metal ${arch}: ${relative}" VERBATIM)
    set(${object} "${out}" PARENT_SCOPE)
endfunction()

# All sources of an image but the ones given by EXTRA.
function(hvmem_metal_sources arch variable)
    set(found "")
    foreach(pattern hosts/common/*.c hosts/metal/common/*.c hosts/metal/${arch}/*.c hosts/metal/${arch}/*.S
                    lib/*.c backends/${arch}/*.c test/metal/*.c test/metal/${arch}/*.c bench/metal/*.c
                    bench/metal/${arch}/*.c)
        hvmem_glob(some "${pattern}")
        list(APPEND found ${some})
    endforeach()
    set(${variable} "${found}" PARENT_SCOPE)
endfunction()

function(hvmem_metal_image arch name)
    cmake_parse_arguments(arg "" "LINKER_SCRIPT" "EXTRA;WITHOUT" ${ARGN})
    hvmem_metal_compiler(${arch})
    if(NOT HVMEM_METAL_CC_${arch})
        message(STATUS "no compiler for ${arch}: ${name} is not built")
        return()
    endif()
    get_property(objects GLOBAL PROPERTY HVMEM_METAL_OBJECTS_${arch})
    if(NOT objects)
        hvmem_metal_sources(${arch} sources)
        list(REMOVE_ITEM sources ${arg_WITHOUT})
        foreach(source IN LISTS sources)
            hvmem_metal_object(${arch} "${source}" object)
            list(APPEND objects "${object}")
        endforeach()
        set_property(GLOBAL PROPERTY HVMEM_METAL_OBJECTS_${arch} "${objects}")
        add_custom_target(metal-${arch}-objects DEPENDS ${objects})
    endif()
    set(own "")
    foreach(source IN LISTS arg_EXTRA)
        hvmem_metal_object(${arch} "${source}" object)
        list(APPEND own "${object}")
    endforeach()
    set(script "${PROJECT_SOURCE_DIR}/hosts/metal/${arch}/image.ld")
    if(arg_LINKER_SCRIPT)
        set(script "${arg_LINKER_SCRIPT}")
    endif()
    set(image "${HVMEM_METAL_DIR}/${name}")
    add_custom_command(OUTPUT "${image}"
        COMMAND ${HVMEM_METAL_CC_${arch}} -nostdlib -static -no-pie ${HVMEM_METAL_LINK_${arch}}
                "-Wl,-T,${script},--build-id=none,-z,max-page-size=4096,-z,noexecstack"
                -o "${image}" ${own} ${objects}
        DEPENDS ${own} ${objects} "${script}" VERBATIM COMMENT "metal ${arch}: ${name}")
    add_custom_target(${name} ALL DEPENDS "${image}")
    add_dependencies(${name} metal-${arch}-objects)
endfunction()

# Names of the programs in the sources of an image: lines that begin with METAL_PROGRAM. The labels that
# follow a program's function go to the directory's property HVMEM_METAL_LABELS_<program>.
function(hvmem_metal_programs arch variable)
    set(names "")
    foreach(pattern test/metal/*.c test/metal/${arch}/*.c)
        hvmem_glob(some "${pattern}")
        foreach(source IN LISTS some)
            set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
            file(STRINGS "${source}" lines REGEX "^METAL_PROGRAM\\(")
            foreach(line IN LISTS lines)
                if(NOT line MATCHES "^METAL_PROGRAM\\(([A-Za-z0-9_]+), *[A-Za-z0-9_]+([^)]*)\\)")
                    message(FATAL_ERROR "${source}: METAL_PROGRAM(name, function, label...) on one line")
                endif()
                set(program "${CMAKE_MATCH_1}")
                string(REGEX MATCHALL "[a-z0-9_]+" labels "${CMAKE_MATCH_2}")
                list(APPEND names ${program})
                set_property(DIRECTORY PROPERTY HVMEM_METAL_LABELS_${program} "${labels}")
            endforeach()
        endforeach()
    endforeach()
    set(${variable} "${names}" PARENT_SCOPE)
endfunction()

# hvmem_metal_tests(ARCH SUFFIX IMAGE [PROGRAMS name...] [RUN option...] [RUNNER run-bochs] [LABELS l...]
#     [ARGS name=value...]): one ctest test metal.ARCH.PROGRAM.SUFFIX for every program (default: all
# that the sources name).
function(hvmem_metal_tests arch suffix image)
    cmake_parse_arguments(arg "" "RUNNER" "RUN;PROGRAMS;LABELS;ARGS" ${ARGN})
    set(runner "${PROJECT_SOURCE_DIR}/hosts/metal/run" ${arch})
    if(arg_RUNNER)
        set(runner "${PROJECT_SOURCE_DIR}/hosts/metal/${arg_RUNNER}")
    endif()
    hvmem_metal_programs(${arch} all)
    if(NOT arg_PROGRAMS)
        set(arg_PROGRAMS ${all})
    endif()
    foreach(program IN LISTS arg_PROGRAMS)
        set(test metal.${arch}.${program}.${suffix})
        get_property(labels DIRECTORY PROPERTY HVMEM_METAL_LABELS_${program})
        add_test(NAME ${test} COMMAND ${runner} ${arg_RUN} "${HVMEM_METAL_DIR}/${image}" ${program}
                 ${arg_ARGS})
        set_tests_properties(${test} PROPERTIES LABELS "metal;${labels};${arg_LABELS}" TIMEOUT 180
                             SKIP_RETURN_CODE 77 PROCESSORS 2)
    endforeach()
endfunction()
