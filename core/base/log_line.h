// One line of the log as text for people or as a JSON object for programs. Pure; thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard {

// An id or a measure of a line: {"epoch", 5}, {"worker", "w0"}.
struct LogField {
  LogField(std::string field, std::string text) : name(std::move(field)), value(std::move(text)) {}
  template <std::integral T>
  LogField(std::string field, T number)
      : name(std::move(field)), value(static_cast<std::int64_t>(number)) {}

  std::string name;
  std::variant<std::int64_t, std::string> value;
};
using LogFields = std::vector<LogField>;

// The parts of a line but for the time, which the log library writes before it.
struct LogLine {
  absl::string_view level;    // "info"
  absl::string_view process;  // "worker w0"
  absl::string_view text;
  const LogFields& fields;
};

// `info  worker w0: text [epoch=5]`. A field that the text has already, as "epoch 5", is left out.
// Control characters are escaped: a line feed in a text that came from a peer begins no new line.
std::string TextLine(const LogLine& line);

// `"level":"info","process":"worker w0","msg":"text","epoch":5`: the members of an object. What is
// not UTF-8 becomes U+FFFD, which JSON needs.
std::string JsonMembers(const LogLine& line);

}  // namespace switchyard
