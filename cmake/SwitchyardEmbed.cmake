# Puts files into a program, so that it needs none beside it at run time.
#
#   switchyard_embed(OUTPUT file.cc NAME kLivePageFiles HEADER path/of/header.h FILES a.html b.css)
#
# writes a source that defines `const std::vector<EmbeddedFile>& NAME()` of that header, with the
# names and contents of the files, in their order. Run as a script, this file is what writes it.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(_switchyard_embed_script "${CMAKE_CURRENT_LIST_FILE}")
  function(switchyard_embed)
    cmake_parse_arguments(_arg "" "OUTPUT;NAME;HEADER" "FILES" ${ARGN})
    list(TRANSFORM _arg_FILES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE _paths)
    add_custom_command(
      OUTPUT "${_arg_OUTPUT}"
      COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${_arg_OUTPUT}" "-DNAME=${_arg_NAME}"
        "-DHEADER=${_arg_HEADER}" "-DFILES=${_paths}" -P "${_switchyard_embed_script}"
      DEPENDS ${_paths} "${_switchyard_embed_script}"
      COMMENT "Embedding ${_arg_NAME}"
      VERBATIM)
  endfunction()
  return()
endif()

set(_text "#include \"${HEADER}\"\n\nnamespace switchyard {\nnamespace {\n\n")
set(_rows "")
set(_index 0)
foreach(_file IN LISTS FILES)
  file(READ "${_file}" _hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," _bytes "${_hex}")
  string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n"
    _bytes "${_bytes}")
  get_filename_component(_name "${_file}" NAME)
  string(APPEND _text "constexpr unsigned char kFile${_index}[] = {\n${_bytes}0};\n")
  string(APPEND _rows "      {\"${_name}\",\n       {reinterpret_cast<const char*>(kFile${_index}),"
    " sizeof(kFile${_index}) - 1}},\n")
  math(EXPR _index "${_index} + 1")
endforeach()
string(APPEND _text "\n}  // namespace\n\nconst std::vector<EmbeddedFile>& ${NAME}() {\n"
  "  static const std::vector<EmbeddedFile> files{\n${_rows}  };\n  return files;\n}\n\n"
  "}  // namespace switchyard\n")
file(WRITE "${OUTPUT}" "${_text}")
