// The command line of switchyard-quantize. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "quantize/quantizer.h"

namespace switchyard::quantize {

struct CommandLine {
  bool list = false;        // print the table of schemes; nothing else is set then
  QuantizeOptions options;  // without `calibration`
  std::string calibrate;    // path of the calibration file; "": none
};

// A parsed command line, or the text to end with: the help with exit code 0, or the mistake with
// exit code 2.
struct ParsedCommandLine {
  std::optional<CommandLine> line;
  int exit_code = 0;
  std::string text;
};

// `words`: without the program's name.
ParsedCommandLine ParseCommandLine(const std::vector<std::string>& words);

}  // namespace switchyard::quantize
