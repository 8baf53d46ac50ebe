// The words of switchyard-quantize. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "quantize/quantizer.h"

namespace switchyard::quantize {

struct CommandLine {
  bool list = false;        // print the table of schemes; nothing else is set then
  QuantizeOptions options;  // but for `calibration`
  std::string calibrate;    // path of the file for it; "": none
};

// What the words say, or the text to end with: that of --help with exit code 0, else what is wrong
// with exit code 2.
struct ParsedCommandLine {
  std::optional<CommandLine> line;
  int exit_code = 0;
  std::string text;
};

// `words`: without the program's name.
ParsedCommandLine ParseCommandLine(const std::vector<std::string>& words);

}  // namespace switchyard::quantize
