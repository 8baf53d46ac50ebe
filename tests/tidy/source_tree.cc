#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace switchyard::tidy {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 4> kSkippedAnywhere{".git", ".cache", "__pycache__",
                                                      "node_modules"};
constexpr std::array<const char*, 4> kSkippedFolders{"build", "out", "models",
                                                     "tests/tidy/fixtures"};

bool IsSkipped(const std::string& path, const std::string& name) {
  return std::find(kSkippedAnywhere.begin(), kSkippedAnywhere.end(), name) !=
             kSkippedAnywhere.end() ||
         std::find(kSkippedFolders.begin(), kSkippedFolders.end(), path) != kSkippedFolders.end();
}

std::vector<std::string> ReadLines(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool IsText(const std::vector<std::string>& lines) {
  return std::none_of(lines.begin(), lines.end(),
                      [](const std::string& line) { return absl::StrContains(line, '\0'); });
}

// Walks one file's characters and remembers what it is inside of.
class Blanker {
 public:
  std::string Line(const std::string& line) {
    if (state_ == State::kCode && absl::StartsWith(line, "#include")) return line;
    std::string out;
    std::size_t i = 0;
    while (i < line.size()) i += Step(line, i, &out);
    if (state_ == State::kLineComment || state_ == State::kString || state_ == State::kChar) {
      state_ = State::kCode;
    }
    return out;
  }

 private:
  enum class State { kCode, kLineComment, kBlockComment, kString, kChar, kRawString };

  // Appends what stands for line[i...] and returns how many characters it took.
  std::size_t Step(absl::string_view line, std::size_t i, std::string* out) {
    const absl::string_view rest = line.substr(i);
    switch (state_) {
      case State::kCode:
        return StepInCode(line, i, out);
      case State::kBlockComment:
        return Leave(rest, "*/", "  ", out);
      case State::kRawString:
        return Leave(rest, raw_end_, "\"", out);
      case State::kString:
      case State::kChar:
        if (rest[0] == '\\' && rest.size() > 1) return Blank(2, out);
        return Leave(rest, state_ == State::kString ? "\"" : "'",
                     state_ == State::kString ? "\"" : "'", out);
      case State::kLineComment:
        break;
    }
    return Blank(rest.size(), out);
  }

  std::size_t StepInCode(absl::string_view line, std::size_t i, std::string* out) {
    const absl::string_view rest = line.substr(i);
    if (absl::StartsWith(rest, "//")) {
      state_ = State::kLineComment;
      return Blank(2, out);
    }
    if (absl::StartsWith(rest, "/*")) {
      state_ = State::kBlockComment;
      return Blank(2, out);
    }
    if (absl::StartsWith(rest, "R\"")) {
      state_ = State::kRawString;
      const std::size_t open = rest.find('(');
      raw_end_ = absl::StrCat(")", rest.substr(2, open - 2), "\"");
      *out += '"';
      return 1 + Blank(open, out);
    }
    const bool digit_separator = rest[0] == '\'' && i > 0 && absl::ascii_isalnum(Byte(line[i - 1]));
    if (rest[0] == '"') state_ = State::kString;
    if (rest[0] == '\'' && !digit_separator) state_ = State::kChar;
    *out += rest[0];
    return 1;
  }

  static unsigned char Byte(char c) { return static_cast<unsigned char>(c); }

  static std::size_t Blank(std::size_t count, std::string* out) {
    out->append(count, ' ');
    return count;
  }

  std::size_t Leave(absl::string_view rest, absl::string_view end, absl::string_view instead,
                    std::string* out) {
    if (!absl::StartsWith(rest, end)) return Blank(1, out);
    state_ = State::kCode;
    out->append(end.size() - instead.size(), ' ');
    *out += std::string(instead);
    return end.size();
  }

  State state_ = State::kCode;
  std::string raw_end_;
};

}  // namespace

bool SourceFile::IsHeader() const { return absl::EndsWith(path, ".h"); }
bool SourceFile::IsCpp() const { return IsHeader() || absl::EndsWith(path, ".cc"); }
bool SourceFile::IsDeviceCode() const {
  return absl::EndsWith(path, ".cu") || absl::EndsWith(path, ".cuh");
}

std::string Finding::ToString() const {
  return absl::StrCat(path, ":", line, ": [", rule, "] ", message);
}

SourceTree::SourceTree(const std::string& root) {
  for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
    const std::string path = fs::relative(it->path(), root).generic_string();
    if (IsSkipped(path, it->path().filename().string())) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    SourceFile file{path, ReadLines(it->path()), {}};
    if (!IsText(file.lines)) continue;
    if (file.IsCpp() || file.IsDeviceCode()) file.code = BlankCommentsAndLiterals(file.lines);
    files_.push_back(std::move(file));
  }
  std::sort(files_.begin(), files_.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
}

const SourceFile* SourceTree::Find(absl::string_view path) const {
  const auto it = std::lower_bound(
      files_.begin(), files_.end(), path,
      [](const SourceFile& file, absl::string_view wanted) { return file.path < wanted; });
  return it != files_.end() && it->path == path ? &*it : nullptr;
}

bool IsBelow(absl::string_view path, absl::string_view folder) {
  return absl::StartsWith(path, folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

std::vector<std::string> BlankCommentsAndLiterals(const std::vector<std::string>& lines) {
  Blanker blanker;
  std::vector<std::string> out;
  out.reserve(lines.size());
  for (const std::string& line : lines) out.push_back(blanker.Line(line));
  return out;
}

}  // namespace switchyard::tidy
