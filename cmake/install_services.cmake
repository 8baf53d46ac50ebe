# Run by `cmake --install`: units, configuration files, and what the installed programs write of
# themselves, completion and manual pages. Units name absolute paths, and only the installation knows the
# prefix. Configuration is in /etc for the prefix /usr, else in PREFIX/etc. A configuration file that is
# there already stays as it is.
set(BINDIR "${CMAKE_INSTALL_PREFIX}/bin")
set(CONFIG "${CMAKE_INSTALL_PREFIX}/etc/switchyard")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(CONFIG "/etc/switchyard")
endif()
set(deploy "${CMAKE_CURRENT_LIST_DIR}/../deploy")
set(units "${CMAKE_INSTALL_PREFIX}/lib/systemd/system")

# Of the worker a template as well, for hosts with several devices.
foreach(unit IN ITEMS switchyard-coordinator switchyard-worker switchyard-worker@)
  string(REGEX REPLACE "@$" "" name "${unit}")
  set(OF_INSTANCE "")
  set(SUFFIX "")
  if(unit MATCHES "@$")
    set(OF_INSTANCE " %i")
    set(SUFFIX "-%i")
  endif()
  configure_file("${deploy}/systemd/${name}.service.in" "$ENV{DESTDIR}${units}/${unit}.service" @ONLY)
  message(STATUS "Installing: $ENV{DESTDIR}${units}/${unit}.service")
endforeach()

foreach(file IN ITEMS coordinator.yaml worker.yaml)
  if(EXISTS "$ENV{DESTDIR}${CONFIG}/${file}")
    message(STATUS "Kept: $ENV{DESTDIR}${CONFIG}/${file}")
  else()
    file(INSTALL DESTINATION "${CONFIG}" TYPE FILE FILES "${deploy}/config/${file}")
  endif()
endforeach()

# The installed program writes them, so that they cannot lag behind it. Debian's zsh looks for those of
# packages elsewhere.
set(share "${CMAKE_INSTALL_PREFIX}/share")
set(bash "${share}/bash-completion/completions/syctl")
set(fish "${share}/fish/vendor_completions.d/syctl.fish")
set(zsh "${share}/zsh/site-functions/_syctl")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS "/etc/debian_version")
  set(zsh "${share}/zsh/vendor-completions/_syctl")
endif()
foreach(shell IN ITEMS bash fish zsh)
  execute_process(COMMAND "$ENV{DESTDIR}${BINDIR}/syctl" completion ${shell}
                  OUTPUT_VARIABLE script COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE "$ENV{DESTDIR}${${shell}}" "${script}")
  message(STATUS "Installing: $ENV{DESTDIR}${${shell}}")
endforeach()

foreach(page IN ITEMS syctl.1 switchyard-quantize.1 switchyard-eval.1 switchyard-coordinator.8
                      switchyard-worker.8)
  string(REGEX MATCH "^(.*)\\.([18])$" _ "${page}")
  set(section "${CMAKE_MATCH_2}")
  execute_process(COMMAND "$ENV{DESTDIR}${BINDIR}/${CMAKE_MATCH_1}" --man-page ${section}
                  OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE "$ENV{DESTDIR}${share}/man/man${section}/${page}" "${text}")
  message(STATUS "Installing: $ENV{DESTDIR}${share}/man/man${section}/${page}")
endforeach()
