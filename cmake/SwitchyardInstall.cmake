# What `cmake --install` writes on a machine that has the shared libraries: programs, libswitchyard
# with its header, its pkg-config and CMake files, systemd units and configuration files. The bundle,
# which brings the libraries along, is the component `bundle` (cmake/SwitchyardBundle.cmake).
#
# switchyard_install_program(TARGET): TARGET goes to bin. A name that is a common word goes to
#   lib/switchyard instead, because bin belongs to everybody.
# switchyard_install_library(TARGET): TARGET, and what its users compile and link with.
# switchyard_install_services(): units, and configuration files to begin with.
include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The search path serves the bundle only. In an installed tree it would name a folder of strangers.
function(_switchyard_remove_rpath folder file)
  install(CODE "file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}/${file}\")")
endfunction()

function(switchyard_install_program target)
  set(folder "${CMAKE_INSTALL_LIBDIR}/switchyard")
  if(target MATCHES "^(switchyard-|syctl)")
    set(folder "${CMAKE_INSTALL_BINDIR}")
  endif()
  install(TARGETS ${target} RUNTIME DESTINATION "${folder}")
  _switchyard_remove_rpath("${folder}" ${target})
endfunction()

function(switchyard_install_library target)
  # Programs include "client/switchyard.h", as in this repository.
  set(headers "${CMAKE_INSTALL_INCLUDEDIR}/switchyard")
  target_include_directories(${target} INTERFACE "$<INSTALL_INTERFACE:${headers}>")
  install(TARGETS ${target} EXPORT switchyard_targets
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  _switchyard_remove_rpath("${CMAKE_INSTALL_LIBDIR}" "$<TARGET_FILE_NAME:${target}>")
  install(FILES "${PROJECT_SOURCE_DIR}/client/switchyard.h" "${PROJECT_SOURCE_DIR}/client/switchyard_graph.h"
                "${PROJECT_SOURCE_DIR}/client/switchyard_worker.h"
          DESTINATION "${headers}/client")

  set(package "${CMAKE_INSTALL_LIBDIR}/cmake/switchyard")
  install(EXPORT switchyard_targets NAMESPACE switchyard:: DESTINATION "${package}"
          FILE switchyard-targets.cmake)
  # The interface may change with each version until 1.0.
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/switchyard-config-version.cmake"
                                   COMPATIBILITY SameMinorVersion)
  file(WRITE "${PROJECT_BINARY_DIR}/switchyard-config.cmake"
       "include(\"\${CMAKE_CURRENT_LIST_DIR}/switchyard-targets.cmake\")\n")
  install(FILES "${PROJECT_BINARY_DIR}/switchyard-config.cmake"
                "${PROJECT_BINARY_DIR}/switchyard-config-version.cmake" DESTINATION "${package}")

  # The prefix is chosen at installation, so the file finds it from where it lies.
  set(pkgconfig "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  file(RELATIVE_PATH up "/${pkgconfig}" "/")
  configure_file("${PROJECT_SOURCE_DIR}/client/switchyard.pc.in" "${PROJECT_BINARY_DIR}/switchyard.pc"
                 @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/switchyard.pc" DESTINATION "${pkgconfig}")
endfunction()

function(switchyard_install_services)
  install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/install_services.cmake")
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/deploy/config/"
          DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples")
endfunction()
