#include "tests/tidy/mirror_rules.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace switchyard::tidy {
namespace {

// "worker/device/cpu/a.cc" -> "worker/device/cpu", "worker/device", "worker".
std::vector<std::string> FoldersUpwards(absl::string_view path) {
  std::vector<std::string> folders;
  for (std::size_t slash = path.rfind('/'); slash != absl::string_view::npos;
       slash = path.rfind('/')) {
    path = path.substr(0, slash);
    folders.emplace_back(path);
  }
  return folders;
}

bool HasTest(const SourceTree& tree, const SourceFile& source) {
  const absl::string_view stem =
      absl::StripSuffix(absl::string_view(source.path).substr(source.path.rfind('/') + 1), ".cc");
  const std::vector<std::string> folders = FoldersUpwards(source.path);
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return tree.Find(absl::StrCat("tests/", folder, "/", stem, "_test.cc")) != nullptr;
  });
}

// Every .cc that some CMakeLists.txt names, from the root.
std::set<std::string> BuiltSources(const SourceTree& tree) {
  std::set<std::string> built;
  for (const SourceFile& file : tree.files()) {
    const std::filesystem::path path(file.path);
    if (path.filename() != "CMakeLists.txt") continue;
    for (const std::string& line : file.lines) {
      for (absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" ()\"\t"))) {
        if (!absl::EndsWith(word, ".cc")) continue;
        built.insert((path.parent_path() / std::string(word)).lexically_normal().generic_string());
      }
    }
  }
  return built;
}

}  // namespace

std::map<std::string, std::string> ParseUntested(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> untested;
  for (const std::string& line : lines) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> columns = absl::StrSplit(line, absl::MaxSplits('\t', 1));
    untested[columns[0]] = columns.size() == 2 ? columns[1] : "";
  }
  return untested;
}

void CheckTestMirrorsSource(const SourceTree& tree, const Layers& layers,
                            const std::map<std::string, std::string>& untested,
                            std::vector<Finding>* findings) {
  const std::string list = "tests/tidy/untested.tsv";
  for (const SourceFile& file : tree.files()) {
    if (!absl::EndsWith(file.path, ".cc") || layers.LayerOf(file.path).empty()) continue;
    if (HasTest(tree, file) || untested.contains(file.path)) continue;
    findings->push_back({file.path, 0, "source-without-test",
                         absl::StrCat("no ", absl::StripSuffix(file.path, ".cc"),
                                      "_test.cc below tests/; write it, or say in ", list,
                                      " which test covers this file")});
  }
  for (const auto& [path, test] : untested) {
    const SourceFile* file = tree.Find(path);
    if (tree.Find(test) == nullptr) {
      findings->push_back({list, 0, "source-without-test",
                           absl::StrCat(path, " is covered by ", test, ", which does not exist")});
    } else if (file == nullptr || HasTest(tree, *file)) {
      findings->push_back({list, 0, "source-without-test",
                           absl::StrCat(path, " is gone or has a test now; take its row out")});
    }
  }
}

void CheckSourcesAreBuilt(const SourceTree& tree, std::vector<Finding>* findings) {
  const std::set<std::string> built = BuiltSources(tree);
  for (const SourceFile& file : tree.files()) {
    if (!absl::EndsWith(file.path, ".cc") || built.contains(file.path)) continue;
    findings->push_back({file.path, 0, "source-not-built",
                         "no CMakeLists.txt names it; add it to its folder's target or remove it"});
  }
}

}  // namespace switchyard::tidy
