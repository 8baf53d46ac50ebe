#include "ctl/doctor/check.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "report/text_table.h"

namespace switchyard::ctl {
namespace {

// A line is for a terminal and a log; an error of a peer may have any length and any bytes.
constexpr std::size_t kTextBytesMax = 600;

std::string OneLine(std::string text) {
  for (char& each : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(each))) each = ' ';
  }
  if (text.size() <= kTextBytesMax) return text;
  std::size_t end = kTextBytesMax;
  // A cut inside of a character would leave bytes that are no UTF-8.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

Check Made(absl::string_view name, Verdict verdict, std::string found, std::string next) {
  return {std::string(name), verdict, OneLine(std::move(found)), OneLine(std::move(next))};
}

}  // namespace

Check Good(absl::string_view name, std::string found) {
  return Made(name, Verdict::kOk, std::move(found), "");
}

Check Warning(absl::string_view name, std::string found, std::string next) {
  return Made(name, Verdict::kWarn, std::move(found), std::move(next));
}

Check Failure(absl::string_view name, std::string found, std::string next) {
  return Made(name, Verdict::kFail, std::move(found), std::move(next));
}

Check Skipped(absl::string_view name, std::string found, std::string next) {
  return Made(name, Verdict::kSkip, std::move(found), std::move(next));
}

absl::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "OK";
    case Verdict::kWarn:
      return "WARN";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kSkip:
      break;
  }
  return "SKIP";
}

absl::string_view PageOf(absl::string_view name) {
  const auto* row = std::find_if(std::begin(kCheckPages), std::end(kCheckPages),
                                 [name](const CheckPage& each) { return name == each.check; });
  return row == std::end(kCheckPages) ? "" : row->page;
}

std::size_t CountOf(const std::vector<Check>& checks, Verdict verdict) {
  return static_cast<std::size_t>(
      std::count_if(checks.begin(), checks.end(),
                    [verdict](const Check& check) { return check.verdict == verdict; }));
}

std::string ChecksText(const std::vector<Check>& checks, std::size_t width) {
  TextTable table({"CHECK", "STATE", "FOUND"});
  for (const Check& check : checks) {
    std::string found = check.found;
    if (!check.next.empty()) {
      absl::StrAppend(&found, ". Next: ", check.next, " (", PageOf(check.name), ")");
    }
    table.Add({check.name, std::string(VerdictName(check.verdict)), std::move(found)});
  }
  return table.Print("", width);
}

nlohmann::ordered_json ChecksJson(const std::vector<Check>& checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    list.push_back({{"check", check.name},
                    {"state", std::string(VerdictName(check.verdict))},
                    {"found", check.found},
                    {"next", check.next},
                    {"page", std::string(PageOf(check.name))}});
  }
  return {{"checks", std::move(list)},
          {"failed", CountOf(checks, Verdict::kFail)},
          {"warned", CountOf(checks, Verdict::kWarn)}};
}

}  // namespace switchyard::ctl
