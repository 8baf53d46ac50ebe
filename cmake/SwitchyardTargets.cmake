# switchyard_library / switchyard_binary / switchyard_test / switchyard_benchmark / switchyard_fuzzer: the only ways in which
# this project makes targets. Each target belongs to a layer (its folder), and a link edge that
# cmake/LAYERS does not list stops the configuration.
include_guard(GLOBAL)

file(STRINGS "${PROJECT_SOURCE_DIR}/cmake/LAYERS" _sy_layer_lines REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/LAYERS")
set(SWITCHYARD_LAYERS "")
foreach(_line IN LISTS _sy_layer_lines)
  string(REGEX MATCH "^([a-z0-9/_]+)[ ]*:(.*)$" _ "${_line}")
  set(_name "${CMAKE_MATCH_1}")
  string(STRIP "${CMAKE_MATCH_2}" _allowed)
  separate_arguments(_allowed)
  list(APPEND SWITCHYARD_LAYERS "${_name}")
  set("SWITCHYARD_LAYER_${_name}" ${_allowed})
endforeach()

# The longest listed layer that holds `folder`; "top" for tests and bench.
function(switchyard_layer_of folder out)
  set(best "top")
  set(best_length 0)
  foreach(layer IN LISTS SWITCHYARD_LAYERS)
    string(LENGTH "${layer}" length)
    if((folder STREQUAL layer OR folder MATCHES "^${layer}/") AND length GREATER best_length)
      set(best "${layer}")
      set(best_length ${length})
    endif()
  endforeach()
  set(${out} "${best}" PARENT_SCOPE)
endfunction()

function(_switchyard_check_edges target deps)
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  switchyard_layer_of("${folder}" layer)
  set_property(TARGET ${target} PROPERTY SWITCHYARD_LAYER "${layer}")
  foreach(dep IN LISTS deps)
    if(NOT TARGET ${dep})
      if(dep MATCHES "^sy_")
        message(FATAL_ERROR "${target} links ${dep}, which is not defined yet: the top CMakeLists.txt "
          "adds folders from the lowest layer up")
      endif()
      continue()
    endif()
    get_target_property(dep_layer ${dep} SWITCHYARD_LAYER)
    if(layer STREQUAL "top" OR NOT dep_layer OR dep_layer STREQUAL layer)
      continue()
    endif()
    if(NOT dep_layer IN_LIST SWITCHYARD_LAYER_${layer})
      message(FATAL_ERROR
        "${target} (layer ${layer}) may not link ${dep} (layer ${dep_layer}): cmake/LAYERS does not list it")
    endif()
  endforeach()
endfunction()

function(_switchyard_common target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Werror)
endfunction()

# Every program and shared library that ships, and nothing else: what `make build` and the demo want.
add_custom_target(programs)
# The tests that run under ThreadSanitizer: those with the label tsan.
add_custom_target(tsan_tests)

# switchyard_library(NAME sy_core SRCS a.cc b.cc DEPS absl::status [SHARED])
# DEPS must be defined before: the top CMakeLists.txt adds folders from the lowest layer up.
function(switchyard_library)
  cmake_parse_arguments(ARG "SHARED" "NAME" "SRCS;DEPS" ${ARGN})
  if(ARG_SHARED)
    add_library(${ARG_NAME} SHARED ${ARG_SRCS})
  elseif(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS})
  else()
    message(FATAL_ERROR "${ARG_NAME}: no sources")
  endif()
  _switchyard_common(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS})
  _switchyard_check_edges(${ARG_NAME} "${ARG_DEPS}")
  if(ARG_SHARED)
    add_dependencies(programs ${ARG_NAME})
  endif()
endfunction()

# switchyard_binary(NAME switchyard-worker SRCS main.cc DEPS ...): lands in <build>/bin.
function(switchyard_binary)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  _switchyard_common(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  _switchyard_check_edges(${ARG_NAME} "${ARG_DEPS}")
  get_target_property(layer ${ARG_NAME} SWITCHYARD_LAYER)
  if(NOT layer STREQUAL "top")
    add_dependencies(programs ${ARG_NAME})
    switchyard_relocatable(${ARG_NAME})
    switchyard_install(${ARG_NAME})
    switchyard_install_program(${ARG_NAME})
  endif()
endfunction()

# The options of tests that share precompiled headers: GCC wants the same ones everywhere. -O1 takes
# three quarters of the time of -O2. GCC 12 sees overflows in std::string that are not there, and does
# not know that precompiled headers of the system are the system's.
function(switchyard_test_options target)
  target_compile_options(${target} PRIVATE -pthread $<$<CONFIG:Release>:-O1> -Wno-array-bounds -Wno-restrict
    -Wno-stringop-overflow -Wno-stringop-overread)
endfunction()

# switchyard_test(NAME core_test SRCS ... DEPS ... [LABELS tsan slow] [TIMEOUT 60] [ARGS ...] [ALONE]
#                 [LEFT_OUT filter])
# One executable a folder keeps links few; every TEST in it becomes a CTest test of its own.
# Labels that scripts/test knows: tsan (also run under ThreadSanitizer: no gRPC, no UCX), slow and
# latency (not under AddressSanitizer). ALONE: no other test runs meanwhile, because it measures times.
# LEFT_OUT, a filter of GoogleTest: tests of the program that ctest does not run, because another script does.
function(switchyard_test)
  if(NOT SWITCHYARD_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "ALONE" "NAME;TIMEOUT;LEFT_OUT" "SRCS;DEPS;LABELS;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "fsanitize")
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  _switchyard_common(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(TARGET test_headers)
    switchyard_test_options(${ARG_NAME})
    target_precompile_headers(${ARG_NAME} REUSE_FROM test_headers)
  endif()
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  if("tsan" IN_LIST ARG_LABELS)
    add_dependencies(tsan_tests ${ARG_NAME})
  endif()
  # Discovery before the test run cannot carry a list; ctest -L matches a part of a label as well.
  string(JOIN "+" labels ${ARG_LABELS})
  set(filter "")
  if(ARG_LEFT_OUT)
    set(filter TEST_FILTER "-${ARG_LEFT_OUT}")
  endif()
  set(environment "")
  if(CMAKE_CXX_FLAGS MATCHES "fsanitize=thread")
    # UCX hooks madvise when it is loaded; a new thread then crashes before ThreadSanitizer knows it.
    set(environment ENVIRONMENT UCX_MEM_EVENTS=n)
  endif()
  gtest_discover_tests(${ARG_NAME} DISCOVERY_MODE PRE_TEST ${filter} EXTRA_ARGS ${ARG_ARGS}
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_ALONE} LABELS "${labels}" ${environment})
endfunction()

function(switchyard_benchmark)
  if(NOT SWITCHYARD_BUILD_BENCH)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  _switchyard_common(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} benchmark::benchmark)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
endfunction()

# switchyard_fuzzer(NAME x_fuzzer SRCS ... DEPS ...): a libFuzzer binary in <build>/fuzz. Built with
# Only clang (preset fuzz), which also instruments the libraries under it.
function(switchyard_fuzzer)
  if(NOT SWITCHYARD_BUILD_FUZZERS)
    return()
  endif()
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "SWITCHYARD_BUILD_FUZZERS needs clang: configure with --preset fuzz")
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  _switchyard_common(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS})
  target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
endfunction()
