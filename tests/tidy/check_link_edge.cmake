# cmake -DFIXTURE=dir -DBINARY=dir -DTARGETS=file -DEDGE=kind [-DWANT=regex] -P this: configures the
# fixture; it must succeed, or, when WANT is given, stop with a message that matches it.
file(REMOVE_RECURSE "${BINARY}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${FIXTURE}" -B "${BINARY}" -DSWITCHYARD_TARGETS=${TARGETS}
    -DEDGE=${EDGE}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX REPLACE "[ \n]+" " " output "${output}")
if(DEFINED WANT AND (result EQUAL 0 OR NOT output MATCHES "${WANT}"))
  message(FATAL_ERROR "configuration of EDGE=${EDGE} had to stop with '${WANT}', but: ${output}")
elseif(NOT DEFINED WANT AND NOT result EQUAL 0)
  message(FATAL_ERROR "configuration of EDGE=${EDGE} had to succeed, but: ${output}")
endif()
