# What `cmake --install --component bundle` writes: the programs, libswitchyard.so with its header, and
# every shared library that they load, except glibc and a GPU's driver. scripts/bundle makes the archive.
#
# switchyard_relocatable(TARGET): TARGET finds its libraries in ../lib, wherever the tree lies.
# switchyard_install(TARGET...): TARGET and its libraries belong to the installed tree.
include_guard(GLOBAL)

# DT_RPATH instead of DT_RUNPATH, because only DT_RPATH holds for the libraries of libraries as
# well: the packaged ones carry no path of their own and are installed unchanged.
function(switchyard_relocatable target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib"
                                             BUILD_WITH_INSTALL_RPATH ON)
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endfunction()

function(switchyard_install)
  install(
    TARGETS ${ARGN}
    RUNTIME_DEPENDENCY_SET switchyard_dependencies
    RUNTIME DESTINATION bin COMPONENT bundle EXCLUDE_FROM_ALL
    LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL)
endfunction()

# glibc belongs to the machine, because it has to match the loader, and so does the GPU's driver.
set(SWITCHYARD_MACHINE_LIBRARIES
    "^ld-linux.*" "^lib(anl|c|dl|m|mvec|nsl|pthread|resolv|rt|util)\\.so.*"
    "^lib(cuda|nvidia-ml)\\.so.*")

# UCX loads these when it starts: from the folder ucx beside libucs.so, by their soname.
function(switchyard_install_ucx_modules)
  get_target_property(ucs ucx::ucs LOCATION)
  get_filename_component(folder "${ucs}" DIRECTORY)
  file(GLOB modules "${folder}/ucx/libuct_*.so.0")
  foreach(path IN LISTS modules)
    get_filename_component(name "${path}" NAME_WE)
    add_library(${name} MODULE IMPORTED)
    set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "${path}")
    install(IMPORTED_RUNTIME_ARTIFACTS ${name} RUNTIME_DEPENDENCY_SET switchyard_dependencies
            LIBRARY DESTINATION lib/ucx COMPONENT bundle EXCLUDE_FROM_ALL)
    file(REAL_PATH "${path}" file)  # the line above copies the soname, which is a link to it
    install(FILES "${file}" DESTINATION lib/ucx COMPONENT bundle EXCLUDE_FROM_ALL)
    # A path of its own, which packages give to some modules, would hide the program's.
    get_filename_component(file "${file}" NAME)
    install(CODE "file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/ucx/${file}\")"
            COMPONENT bundle EXCLUDE_FROM_ALL)
  endforeach()
endfunction()

# Called once, after every target: installs what the targets and modules before it need.
function(switchyard_install_dependencies)
  switchyard_install_ucx_modules()
  install(
    RUNTIME_DEPENDENCY_SET switchyard_dependencies
    PRE_EXCLUDE_REGEXES ${SWITCHYARD_MACHINE_LIBRARIES}
    LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL)
endfunction()
