#include "ctl/output/format.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "ctl/output/json_path.h"

namespace switchyard::ctl {
namespace {

// The lists of documents, and where the name of each element is.
struct NamedList {
  const char* list;
  const char* kind;
  const char* name;  // JSON pointer
};
constexpr NamedList kLists[] = {{"deployments", "deployment", "/spec/name"},
                                {"models", "model", "/name"},
                                {"workers", "worker", "/id"},
                                {"layers", "layer", "/layer"},
                                {"revisions", "revision", "/number"},
                                {"sessions", "session", "/name"},
                                {"events", "event", "/number"},
                                {"applied", "deployment", "/deployment/spec/name"},
                                {"contexts", "context", "/name"},
                                {"checks", "check", "/check"}};

const NamedList* ListOf(const Json& document) {
  for (const NamedList& each : kLists) {
    if (document.is_object() && document.contains(each.list) && document[each.list].is_array()) {
      return &each;
    }
  }
  return nullptr;
}

std::string OneLine(const Json& json) {
  return absl::StrCat(json.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
}

std::string Lines(const Json& document) {
  const NamedList* const list = ListOf(document);
  if (list == nullptr) return OneLine(document);
  std::string out;
  for (const Json& each : document[list->list]) out += OneLine(each);
  return out;
}

std::string Names(const Json& document) {
  const NamedList* const list = ListOf(document);
  std::string out;
  if (list == nullptr) return out;
  for (const Json& each : document[list->list]) {
    const Json name = each.value(Json::json_pointer(list->name), Json());
    absl::StrAppend(&out, list->kind, "/", name.is_string() ? name.get<std::string>() : name.dump(),
                    "\n");
  }
  return out;
}

// A YAML reader takes some plain words for flags, numbers or times, so only words that begin with a
// letter and are none of these go without quotes. A JSON text in quotes is a YAML text.
std::string YamlScalar(const Json& value) {
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  constexpr std::array<absl::string_view, 9> kWords{"true", "false", "null", "yes", "no",
                                                    "on",   "off",   "y",    "n"};
  const bool plain =
      !text.empty() && absl::ascii_isalpha(static_cast<unsigned char>(text[0])) != 0 &&
      std::all_of(text.begin(), text.end(),
                  [](unsigned char c) {
                    return absl::ascii_isalnum(c) != 0 || c == '_' || c == '-' || c == '.' ||
                           c == '/';
                  }) &&
      std::find(kWords.begin(), kWords.end(), absl::AsciiStrToLower(text)) == kWords.end();
  return plain ? text : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AppendYaml(const Json& value, const std::string& indent, bool in_list, std::string* out) {
  const std::string further = indent + "  ";
  // The first line of an element follows its "- ".
  std::string before = in_list ? "" : indent;
  const auto append = [&](const std::string& mark, const Json& child) {
    absl::StrAppend(out, before, mark);
    before = indent;
    if (child.empty() && child.is_structured()) {
      absl::StrAppend(out, " ", child.is_array() ? "[]" : "{}", "\n");
    } else if (!child.is_structured()) {
      absl::StrAppend(out, " ", YamlScalar(child), "\n");
    } else if (mark == "-") {
      *out += " ";
      AppendYaml(child, further, /*in_list=*/true, out);
    } else {
      *out += "\n";
      AppendYaml(child, further, /*in_list=*/false, out);
    }
  };
  if (value.is_array()) {
    for (const Json& child : value) append("-", child);
    return;
  }
  for (const auto& [key, child] : value.items()) append(YamlScalar(key) + ":", child);
}

std::string Yaml(const Json& document) {
  if (!document.is_structured() || document.empty()) return OneLine(document);
  std::string out;
  AppendYaml(document, "", /*in_list=*/false, &out);
  return out;
}

std::string FormatOne(const Json& document, OutputFormat format, const std::string& path) {
  switch (format) {
    case OutputFormat::kYaml:
      return Yaml(document);
    case OutputFormat::kJsonLines:
      return Lines(document);
    case OutputFormat::kName:
      return Names(document);
    case OutputFormat::kJsonPath: {
      std::string text = JsonPath::Parse(path)->Print(document);
      // kubectl leaves the end of the line to the template; a prompt behind the last value helps
      // nobody.
      if (!text.empty() && text.back() != '\n') text += "\n";
      return text;
    }
    default:
      return OneLine(document);
  }
}

constexpr char kBold[] = "\x1b[1m";
constexpr char kRed[] = "\x1b[31m";
constexpr char kGreen[] = "\x1b[32m";
constexpr char kYellow[] = "\x1b[33m";
constexpr char kPlain[] = "\x1b[0m";

// Heads are in capitals.
bool IsHead(absl::string_view line) {
  return std::any_of(line.begin(), line.end(),
                     [](unsigned char c) { return absl::ascii_isupper(c) != 0; }) &&
         std::none_of(line.begin(), line.end(),
                      [](unsigned char c) { return absl::ascii_islower(c) != 0; });
}

const char* ColorOf(absl::string_view state) {
  constexpr std::array<absl::string_view, 4> kGood{"serving", "live", "normal", "OK"};
  constexpr std::array<absl::string_view, 6> kWrong{"stuck",       "refused",      "unreachable",
                                                    "unavailable", "disconnected", "FAIL"};
  constexpr std::array<absl::string_view, 4> kQuiet{"former", "unused", "SKIP", "-"};
  const auto is_in = [state](const auto& words) {
    return std::find(words.begin(), words.end(), state) != words.end();
  };
  if (is_in(kGood)) return kGreen;
  if (is_in(kWrong)) return kRed;
  return is_in(kQuiet) ? kPlain : kYellow;
}

// The byte that begins the character `index`; npos if the line is shorter.
std::size_t ByteOf(absl::string_view line, std::size_t index) {
  for (std::size_t at = 0; at < line.size(); ++at) {
    if ((static_cast<unsigned char>(line[at]) & 0xC0U) == 0x80U) continue;
    if (index-- == 0) return at;
  }
  return absl::string_view::npos;
}

}  // namespace

bool IsText(OutputFormat format) {
  return format == OutputFormat::kTable || format == OutputFormat::kWide;
}

std::string FormatDocuments(absl::string_view documents, OutputFormat format,
                            const std::string& path) {
  if (format == OutputFormat::kJson || IsText(format)) return std::string(documents);
  std::string out;
  std::istringstream in{std::string(documents)};
  const char* separator = "";
  while (!(in >> std::ws).eof()) {
    Json document;
    in >> document;
    if (format == OutputFormat::kYaml) out += separator;
    separator = "---\n";
    out += FormatOne(document, format, path);
  }
  return out;
}

std::string WithoutHead(absl::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of('\n'), text.size());
  const std::size_t end = std::min(text.find('\n', begin), text.size());
  if (!IsHead(text.substr(begin, end - begin))) return std::string(text);
  return absl::StrCat(text.substr(0, begin), absl::ClippedSubstr(text, end + 1));
}

std::string Colored(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  std::string out;
  std::size_t column = absl::string_view::npos;  // of the state, in characters
  for (std::size_t l = 0; l < lines.size(); ++l) {
    const absl::string_view line = lines[l];
    if (l > 0) out += '\n';
    if ((l == 0 || lines[l - 1].empty()) && IsHead(line)) {
      const std::size_t state = line.find("STATE");
      column = state == absl::string_view::npos ? line.find("TYPE") : state;
      absl::StrAppend(&out, kBold, line, kPlain);
      continue;
    }
    if (line.empty()) column = absl::string_view::npos;  // the end of the table
    const std::size_t at = column == absl::string_view::npos ? column : ByteOf(line, column);
    if (at == absl::string_view::npos || line[at] == ' ') {
      out += std::string(line);
      continue;
    }
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const absl::string_view state = line.substr(at, end - at);
    absl::StrAppend(&out, line.substr(0, at), ColorOf(state), state, kPlain, line.substr(end));
  }
  return out;
}

std::string ColoredError(absl::string_view text) {
  const std::size_t end = text.find(' ');
  if (end == absl::string_view::npos) return std::string(text);
  return absl::StrCat(kRed, text.substr(0, end), kPlain, text.substr(end));
}

}  // namespace switchyard::ctl
