#include "core/base/log_line.h"

#include <array>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace switchyard {
namespace {

std::string ValueText(const LogField& field) {
  if (const auto* number = std::get_if<std::int64_t>(&field.value)) return absl::StrCat(*number);
  return std::get<std::string>(field.value);
}

// The bytes of the UTF-8 character at the front of `text`; 0 if there is none. By RFC 3629: no
// overlong forms, no surrogates, nothing above U+10FFFF.
std::size_t Utf8Length(absl::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&byte](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    const char c = text[0];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (IsControl(c)) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      out.append(text.data(), length);
    }
    text.remove_prefix(length);
  }
  return out + "\"";
}

}  // namespace

std::string TextLine(const LogLine& line) {
  std::string fields;
  for (const LogField& field : line.fields) {
    const std::string value = ValueText(field);
    if (absl::StrContains(line.text, absl::StrCat(field.name, " ", value))) continue;
    absl::StrAppend(&fields, fields.empty() ? " [" : " ", field.name, "=", value);
  }
  if (!fields.empty()) fields += "]";
  std::string out = absl::StrFormat("%-5s %s: ", line.level, line.process);
  for (const char c : absl::StrCat(line.text, fields)) {
    if (IsControl(c)) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string JsonMembers(const LogLine& line) {
  std::string out =
      absl::StrCat("\"level\":", JsonString(line.level), ",\"process\":", JsonString(line.process),
                   ",\"msg\":", JsonString(line.text));
  for (const LogField& field : line.fields) {
    const bool is_text = std::holds_alternative<std::string>(field.value);
    absl::StrAppend(&out, ",", JsonString(field.name), ":",
                    is_text ? JsonString(ValueText(field)) : ValueText(field));
  }
  return out;
}

}  // namespace switchyard
