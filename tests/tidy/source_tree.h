// The repository's text files as the tidy rules see them: lines, and lines with comments and
// literals blanked out. Generated files live below build/ and are never seen.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard::tidy {

struct SourceFile {
  std::string path;                // from the root, with '/'
  std::vector<std::string> lines;  // as written
  // C++ and CUDA only: same lines and columns, with comments and the insides of string and
  // character literals replaced by blanks. Paths of #include lines stay.
  std::vector<std::string> code;

  [[nodiscard]] bool IsHeader() const;
  [[nodiscard]] bool IsCpp() const;         // .h or .cc
  [[nodiscard]] bool IsDeviceCode() const;  // .cu or .cuh: rules of includes and words only
};

// What a rule has found. Line 0 means the file as a whole.
struct Finding {
  std::string path;
  int line = 0;
  std::string rule;
  std::string message;  // what, and what to do instead

  // "core/x.h:7: [banned-word] ..."
  [[nodiscard]] std::string ToString() const;
};

class SourceTree {
 public:
  // Reads every text file below `root` but build output, models, the repository's own metadata and
  // fixtures, which break rules on purpose.
  explicit SourceTree(const std::string& root);

  [[nodiscard]] const std::vector<SourceFile>& files() const { return files_; }
  [[nodiscard]] const SourceFile* Find(absl::string_view path) const;  // nullptr: no such file

 private:
  std::vector<SourceFile> files_;  // ascending path
};

// True when `path` is `folder` or below it.
bool IsBelow(absl::string_view path, absl::string_view folder);

// `lines` with comments and literals blanked; see SourceFile::code.
std::vector<std::string> BlankCommentsAndLiterals(const std::vector<std::string>& lines);

}  // namespace switchyard::tidy
