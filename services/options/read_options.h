// Reads the options of a program: its defaults, over them its configuration file (--config), over
// that its flags. Also prints what came of it (--print-config). Thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/cli/command_line.h"
#include "services/options/option.h"

namespace switchyard {

// One option as it was given, and where: "worker.yaml:7", "--listen".
struct GivenOption {
  std::string key;
  std::vector<std::string> values;
  std::string where;
};

// Key -> where its value comes from. A key that is missing has its default.
using OptionOrigins = std::map<std::string, std::string>;

// Reads a configuration file, or standard input for "-". Errors: those of ReadConfigBytes and
// ParseYaml; kInvalidArgument (BAD_CONFIG) with file and line for an unknown section or key, with
// the nearest word, for a key that is given twice, and for a value that is neither a word nor a
// list of words.
absl::StatusOr<std::vector<GivenOption>> ReadOptionFile(const OptionTable& table,
                                                        const std::string& path);

// Sets the variables of `table`. Of several values for a key the last counts. Errors:
// kInvalidArgument (BAD_CONFIG) naming the place, for a value that its option refuses, a required
// option without a value, and values that break a rule; variables may have been set then.
absl::StatusOr<OptionOrigins> ApplyOptions(const OptionTable& table,
                                           const std::vector<GivenOption>& given);

// The effective values as a configuration file, each with its origin in a comment. Paths are
// absolute.
std::string PrintOptions(const OptionTable& table, const OptionOrigins& origins);

// Reads a command line, and the file that it names. Returns nullopt when the program may run, or
// how it ends: with the help, the version, the effective configuration, or a mistake.
std::optional<ProgramEnd> ReadOptions(const OptionTable& table,
                                      const std::vector<std::string>& words);

}  // namespace switchyard
