#include "tests/docs/configuration_page.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace switchyard::docs {
namespace {

std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string DefaultOf(const Option& option) {
  if (option.required) return "required";
  return option.unset.empty() ? absl::StrCat("`", option.fallback, "`") : option.unset;
}

}  // namespace

std::vector<std::string> OptionLines(const OptionTable& table) {
  std::vector<std::string> lines;
  for (const OptionSection& section : table.sections) {
    lines.insert(lines.end(),
                 {absl::StrCat("**", section.name, "**: ", section.about, ".", ""), "",
                  "| key | flag | type | default | meaning |", "|---|---|---|---|---|"});
    for (const Option& option : table.options) {
      if (!absl::StartsWith(option.key, section.name + ".")) continue;
      const std::string range = option.range.empty() ? "" : absl::StrCat(", ", option.range);
      lines.push_back(absl::StrCat("| `", option.key, "` | `", option.flag, "` | ", option.type,
                                   Cell(range), " | ", Cell(DefaultOf(option)), " | ",
                                   Cell(option.help), " |"));
    }
    lines.emplace_back();
  }
  return lines;
}

std::vector<std::string> WithOptions(const std::vector<std::string>& page,
                                     const OptionTable& table) {
  std::vector<std::string> out;
  bool inside = false;
  for (const std::string& line : page) {
    if (inside && line == "<!-- end -->") inside = false;
    if (!inside) out.push_back(line);
    if (line != absl::StrCat("<!-- options of ", table.program, " -->")) continue;
    inside = true;
    out.emplace_back();
    for (std::string& each : OptionLines(table)) out.push_back(std::move(each));
  }
  return out;
}

}  // namespace switchyard::docs
