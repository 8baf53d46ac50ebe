#include "services/config/yaml_text.h"

#include <algorithm>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/utf8.h"

namespace switchyard {
namespace {

// Far more than any deployment needs; the YAML parser takes a multiple of it in memory.
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

}  // namespace

absl::Status BadConfigAt(absl::string_view file, int line, absl::string_view field,
                         absl::string_view what) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrCat(file, ":", line, ": ", field, field.empty() ? "" : ": ", what),
      {{"file", std::string(file)}, {"line", absl::StrCat(line)}, {"field", std::string(field)}});
}

std::string DidYouMean(absl::string_view nearest, const std::vector<std::string>& known) {
  return absl::StrCat(nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"),
                      " (known: ", absl::StrJoin(known, ", "), ")");
}

absl::StatusOr<std::string> ReadConfigBytes(const std::string& path) {
  // One byte more than the limit, so that ParseYaml can refuse a larger file.
  std::string text(kFileBytesMax + 1, '\0');
  if (path == kStdin) {
    std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::cin.gcount()));
    return text;
  }
  std::ifstream in(path, std::ios::binary);
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) {
    return MakeError(
        absl::StatusCode::kNotFound, Reason::kBadConfig,
        absl::StrCat("cannot read ", path, "; check that the file exists and is readable"),
        {{"file", path}});
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

absl::StatusOr<std::vector<YAML::Node>> ParseYaml(const std::string& text, absl::string_view file,
                                                  bool quote) {
  if (text.size() > kFileBytesMax) {
    return BadConfigAt(file, 1, "", absl::StrCat("has more than ", kFileBytesMax, " bytes"));
  }
  // yaml-cpp takes any bytes, and messages that carry them do not.
  if (const std::size_t good = FindInvalidUtf8(text); good < text.size()) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(good);
    return BadConfigAt(file, static_cast<int>(std::count(text.begin(), end, '\n')) + 1, "",
                       "has a byte that is not UTF-8 text; save the file as UTF-8");
  }
  try {
    std::vector<YAML::Node> documents;
    for (const YAML::Node& document : YAML::LoadAll(text)) {
      if (!document.IsNull()) documents.push_back(document);
    }
    return documents;
    // yaml-cpp reports by exceptions; they end here.
  } catch (const YAML::Exception& error) {
    return BadConfigAt(file, error.mark.line + 1, "",
                       quote ? absl::StrCat("is not YAML: ", error.msg) : "is not YAML");
  }
}

int LineOf(const YAML::Node& node) { return node.Mark().line + 1; }

std::string NameOfFile(const std::string& path) { return path == kStdin ? "stdin" : path; }

}  // namespace switchyard
