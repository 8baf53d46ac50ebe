// YAML files with errors that name file, line and key. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "yaml-cpp/yaml.h"

namespace switchyard {

// The name by which files are read from standard input.
inline constexpr char kStdin[] = "-";

// kInvalidArgument (BAD_CONFIG) with "file:line: field: what" and the same as metadata.
absl::Status BadConfigAt(absl::string_view file, int line, absl::string_view field,
                         absl::string_view what);

// `; did you mean "nearest"? (known: a, b)`. The list follows even a near match, because it also
// documents the other words. `nearest` may be empty.
std::string DidYouMean(absl::string_view nearest, const std::vector<std::string>& known);

// The content of a file of at most 1 MiB, or of standard input for kStdin. Errors: kNotFound
// (BAD_CONFIG) if it cannot be read. A longer one is cut off behind the limit, where ParseYaml
// refuses it.
absl::StatusOr<std::string> ReadConfigBytes(const std::string& path);

// The documents of `text` that are not empty: a "---" at the end begins none, and a file of
// comments has none. Errors name `file`: kInvalidArgument (BAD_CONFIG) for what is not YAML, with a
// word of the text only if `quote`.
absl::StatusOr<std::vector<YAML::Node>> ParseYaml(const std::string& text, absl::string_view file,
                                                  bool quote = true);

// The line of a node in its file, from 1.
int LineOf(const YAML::Node& node);

// Errors call a path so: standard input is "stdin".
std::string NameOfFile(const std::string& path);

}  // namespace switchyard
