# An inline function compiled for AVX-512 or AMX must not be what the linker picks for a file compiled for
# any CPU: objects of the vector files may define no weak symbol.
#   cmake -DNM=nm -DOBJECTS=a.o|b.o -P isolation_test.cmake
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
set(checked 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "_(amx|avx512)\\.cc\\.o$")
    continue()
  endif()
  math(EXPR checked "${checked} + 1")
  execute_process(COMMAND "${NM}" -C --defined-only "${object}"
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  # Every unit that unwinds refers to its personality routine through such a pointer: no code.
  string(REGEX REPLACE "[^\n]* V DW\\.ref\\.[^\n]*\n" "" symbols "${symbols}")
  string(REGEX MATCHALL "[^\n]* [VvWw] [^\n]*" weak "${symbols}")
  if(weak)
    message(FATAL_ERROR "${object} defines ${weak}; force it inline or move it out")
  endif()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no object of a vector file among ${OBJECTS}")
endif()
