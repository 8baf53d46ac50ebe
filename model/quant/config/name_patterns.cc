#include "model/quant/config/name_patterns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "re2/re2.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"

namespace switchyard {
namespace {

// Each '*' first matches nothing and grows on a mismatch. Only the last '*' ever has to grow: an
// earlier one that matched more would leave less for it. That bounds the cost by |glob| * |name|,
// where naive backtracking is exponential in the number of '*'.
bool GlobMatches(absl::string_view glob, absl::string_view name) {
  std::size_t g = 0;
  std::size_t n = 0;
  std::size_t star = absl::string_view::npos;
  std::size_t star_end = 0;  // the end of the text that the last '*' matches
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_end = n;
    } else if (g < glob.size() && glob[g] == name[n]) {
      ++g;
      ++n;
    } else if (star != absl::string_view::npos) {
      g = star + 1;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return std::all_of(glob.begin() + static_cast<std::ptrdiff_t>(g), glob.end(),
                     [](char c) { return c == '*'; });
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-' || c == '/';
}

re2::RE2::Options RegexOptions(std::int64_t memory_bytes_max) {
  re2::RE2::Options options;
  // Errors go to the operator with the key; RE2 would print them without it.
  options.set_log_errors(false);
  options.set_max_mem(memory_bytes_max);
  return options;
}

// Looks up every run of whole parts instead of comparing every entry: real lists have thousands of
// entries, and a name has about eight parts.
std::string MatchComponents(const std::set<std::string, std::less<>>& components,
                            absl::string_view module) {
  for (std::size_t begin = 0; begin <= module.size();) {
    for (std::size_t end = module.find('.', begin);; end = module.find('.', end + 1)) {
      const absl::string_view run = module.substr(
          begin, end == absl::string_view::npos ? absl::string_view::npos : end - begin);
      if (const auto it = components.find(run); it != components.end()) return *it;
      if (end == absl::string_view::npos) break;
    }
    const std::size_t dot = module.find('.', begin);
    if (dot == absl::string_view::npos) break;
    begin = dot + 1;
  }
  return "";
}

absl::Status CheckEntry(absl::string_view entry, absl::string_view key) {
  if (entry.empty()) return BadConfig(key, "it is empty; remove it");
  if (entry.size() > kNamePatternLimits.bytes_max) {
    return BadConfig(key, absl::StrCat("its ", entry.size(), " bytes are above the limit of ",
                                       kNamePatternLimits.bytes_max));
  }
  return absl::OkStatus();
}

}  // namespace

NamePatterns::NamePatterns() = default;
NamePatterns::NamePatterns(NamePatterns&&) noexcept = default;
NamePatterns& NamePatterns::operator=(NamePatterns&&) noexcept = default;
NamePatterns::~NamePatterns() = default;

absl::Status NamePatterns::AddExact(absl::string_view name, absl::string_view key) {
  SY_RETURN_IF_ERROR(CheckEntry(name, key));
  exact_.insert(std::string(name));
  if (exact_.size() <= kNamePatternLimits.names_max) return absl::OkStatus();
  return BadConfig(key,
                   absl::StrCat("the list has more than ", kNamePatternLimits.names_max, " names"));
}

absl::Status NamePatterns::AddRegex(absl::string_view regex, absl::string_view key) {
  SY_RETURN_IF_ERROR(CheckEntry(regex, key));
  if (regexes_.size() == kNamePatternLimits.regexes_max) {
    return BadConfig(key, absl::StrCat("the list has more than ", kNamePatternLimits.regexes_max,
                                       " regular expressions"));
  }
  auto compiled =
      std::make_unique<re2::RE2>(re2::StringPiece(regex.data(), regex.size()),
                                 RegexOptions(kNamePatternLimits.regex_memory_bytes_max));
  if (!compiled->ok()) {
    return BadConfig(key, absl::StrCat("the regular expression '", PrintableName(regex),
                                       "' cannot be used: ", PrintableName(compiled->error()),
                                       "; look-around and back-references are not supported"));
  }
  regexes_.push_back(std::move(compiled));
  return absl::OkStatus();
}

absl::Status NamePatterns::AddGlob(absl::string_view glob, absl::string_view key) {
  SY_RETURN_IF_ERROR(CheckEntry(glob, key));
  const auto* bad = std::find_if(glob.begin(), glob.end(),
                                 [](char c) { return c != '*' && !IsNameCharacter(c); });
  if (bad != glob.end()) {
    return BadConfig(
        key, absl::StrCat("'", PrintableName(glob), "' holds '",
                          PrintableName(absl::string_view(bad, 1)), "'; the only wildcard is '*'"));
  }
  if (!absl::StrContains(glob, '*')) return AddExact(glob, key);
  globs_.emplace_back(glob);
  if (globs_.size() <= kNamePatternLimits.globs_max) return absl::OkStatus();
  return BadConfig(
      key, absl::StrCat("the list has more than ", kNamePatternLimits.globs_max, " wildcards"));
}

absl::Status NamePatterns::AddComponents(absl::string_view parts, absl::string_view key) {
  SY_RETURN_IF_ERROR(CheckEntry(parts, key));
  // Some writers end a name with a dot to mark a whole part.
  const absl::string_view whole = absl::StripSuffix(parts, ".");
  if (whole.empty()) return BadConfig(key, "it is a single dot; remove it");
  components_.insert(std::string(whole));
  if (components_.size() <= kNamePatternLimits.names_max) return absl::OkStatus();
  return BadConfig(key,
                   absl::StrCat("the list has more than ", kNamePatternLimits.names_max, " names"));
}

absl::Status NamePatterns::AddExactOrRegex(absl::string_view entry, absl::string_view key) {
  if (absl::ConsumePrefix(&entry, "re:")) return AddRegex(entry, key);
  return AddExact(entry, key);
}

std::string NamePatterns::Match(absl::string_view module) const {
  if (const auto it = exact_.find(module); it != exact_.end()) return *it;
  for (const std::string& glob : globs_) {
    if (GlobMatches(glob, module)) return glob;
  }
  const re2::StringPiece name(module.data(), module.size());
  for (const auto& regex : regexes_) {
    if (regex->Match(name, 0, name.size(), re2::RE2::ANCHOR_START, nullptr, 0)) {
      return absl::StrCat("re:", regex->pattern());
    }
  }
  return components_.empty() ? "" : MatchComponents(components_, module);
}

bool NamePatterns::empty() const {
  return exact_.empty() && components_.empty() && globs_.empty() && regexes_.empty();
}

}  // namespace switchyard
