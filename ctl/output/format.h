// Forms of syctl's output. Commands write text for people or JSON; the other forms are made from
// these, so that each command has them all. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace switchyard::ctl {

enum class OutputFormat { kTable, kWide, kJson, kYaml, kJsonLines, kName, kJsonPath };

// Whether the form is text for people.
bool IsText(OutputFormat format);

// Writes JSON documents, one or several as commands print them, in that form; `path` is the
// template of kJsonPath, checked before.
std::string FormatDocuments(absl::string_view documents, OutputFormat format,
                            const std::string& path);

// A table without its first line; other text as it is.
std::string WithoutHead(absl::string_view text);

// A table with its head in bold and its states in colors; other text as it is.
std::string Colored(absl::string_view text);
// The text of an error with its first word in red.
std::string ColoredError(absl::string_view text);

}  // namespace switchyard::ctl
