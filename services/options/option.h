// The options of a program as data. From one table come its flags, the keys of its configuration
// file, --help, --print-config and docs/CONFIGURATION.md, so that none of them can lack an option
// or say something else about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"

namespace switchyard {

// Every option has these. `key` is "section.name"; `flag` is "--name" unless it is set.
struct OptionName {
  std::string key;
  std::string flag = {};
  // One or two sentences without the default.
  std::string help;
  // Says what an empty value means, or what a default depends on; empty: the value itself is shown.
  std::string unset = {};
};

// One option, bound to the variable that it sets.
struct Option {
  std::string key;
  std::string flag;
  std::string help;
  std::string unset;
  std::string type;   // "duration", "bytes", "integer", "ratio", "text", "list"
  std::string range;  // "from 1s to 24h", "info, warn or error"; may be empty
  bool list = false;
  bool required = false;
  // The text of the value that the variable had when the option was made; empty if `unset` says it.
  std::string fallback;
  // Sets the variable. Returns what is wrong with the texts; empty: nothing.
  std::function<std::string(const std::vector<std::string>&)> set;
  // The variable's value, as `set` reads it. Empty: it is not set.
  std::function<std::vector<std::string>()> get;
  // Returns the meaning of a value in a file in `folder`, where it differs from the same text of a
  // flag: a relative path. May be null.
  std::function<std::string(absl::string_view value, const std::string& folder)> in_file;
};

// A group of options: a map in the file, a heading in the help and on the page.
struct OptionSection {
  std::string name;
  std::string about;
};

// A condition that several options have to meet together.
struct OptionRule {
  std::vector<std::string> keys;
  // Returns what is wrong with the values, empty if nothing is.
  std::function<std::string()> wrong;
};

struct OptionTable {
  std::string program;
  std::string about;
  std::string footer;  // of the help
  std::vector<OptionSection> sections;
  std::vector<Option> options;
  std::vector<OptionRule> rules;
  // Checks the name of a flag before parsing, for misspellings that need an answer of their own.
  // May be null.
  std::function<absl::Status(absl::string_view)> check_flag;

  // Null: there is none.
  [[nodiscard]] const Option* Find(absl::string_view key) const;
};

// Options by the type of their variables. All return what the variable holds as the default; the
// variable outlives the option.
using TextCheck = std::function<std::string(const std::string&)>;
Option TextOption(OptionName name, std::string* value, TextCheck check = nullptr);
Option OptionalTextOption(OptionName name, std::optional<std::string>* value);
Option WordOption(OptionName name, std::string* value, std::vector<std::string> words);
Option WordListOption(OptionName name, std::vector<std::string>* value,
                      std::vector<std::string> words);
// Paths of files; relative ones in a configuration file are resolved against its folder.
Option FileListOption(OptionName name, std::vector<std::string>* value);
struct IntegerRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
Option IntegerOption(OptionName name, int* value, IntegerRange range);
Option IntegerOption(OptionName name, std::size_t* value, IntegerRange range);
Option OptionalIntegerOption(OptionName name, std::optional<int>* value, IntegerRange range);
// A part of a whole, from 0 to 1.
Option RatioOption(OptionName name, double* value);
Option BytesOption(OptionName name, std::int64_t* value, IntegerRange range);
Option BytesOption(OptionName name, std::size_t* value, IntegerRange range);
struct DurationRange {
  Duration least{};
  Duration most{};
};
Option DurationOption(OptionName name, Duration* value, DurationRange range);

// The path `value` in `folder`, if it is relative.
std::string PathInFolder(absl::string_view value, const std::string& folder);

}  // namespace switchyard
