# SPDX-License-Identifier: BSD-2-Clause
# cmake --install: headers, the archive, pkg-config and CMake packages, and the sources themselves for
# hosts that compile them with their own flags. The prefix may be moved or chosen at install time.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hvmem")
set(HVMEM_SOURCE_INSTALL_DIR "${CMAKE_INSTALL_DATADIR}/hvmem")
file(RELATIVE_PATH HVMEM_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")

install(TARGETS hvmem hvmem_headers EXPORT hvmemTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
set_target_properties(hvmem_headers PROPERTIES EXPORT_NAME headers)
install(EXPORT hvmemTargets NAMESPACE hvmem:: DESTINATION "${package_dir}")
install(DIRECTORY include/hvmem DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY lib DESTINATION "${HVMEM_SOURCE_INSTALL_DIR}" FILES_MATCHING PATTERN "*.[ch]")
install(DIRECTORY backends/x86 backends/arm64 DESTINATION "${HVMEM_SOURCE_INSTALL_DIR}/backends"
        FILES_MATCHING PATTERN "*.[ch]")

foreach(name hvmem hvmem-freestanding)
    configure_file(pkgconfig/${name}.pc.in "${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc"
            DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()

configure_package_config_file(cmake/hvmemConfig.cmake.in "${PROJECT_BINARY_DIR}/hvmemConfig.cmake"
    INSTALL_DESTINATION "${package_dir}" PATH_VARS HVMEM_SOURCE_INSTALL_DIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/hvmemConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/hvmemConfig.cmake"
              "${PROJECT_BINARY_DIR}/hvmemConfigVersion.cmake" DESTINATION "${package_dir}")
