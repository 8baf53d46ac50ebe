#include "tests/tidy/chain_rule.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "tests/tidy/blocks.h"

namespace switchyard::tidy {
namespace {

constexpr char kRule[] = "step-chain";
constexpr std::size_t kClassesMax = 4;

bool Holds(const SourceFile& file, const Function& function, const std::string& call) {
  for (int line = function.first_line; line <= function.last_line; ++line) {
    if (absl::StrContains(file.code[static_cast<std::size_t>(line) - 1], call)) return true;
  }
  return false;
}

// What is wrong with one row; an empty message when nothing is.
Finding CheckRow(const SourceTree& tree, const ChainRow& row) {
  Finding finding{row.file, 0, kRule, ""};
  const SourceFile* file = tree.Find(row.file);
  if (file != nullptr) {
    for (const Function& function : FindBlocks(file->code).functions) {
      if (!absl::StrContains(function.head, row.function)) continue;
      if (Holds(*file, function, row.call)) return finding;
      finding.line = function.first_line;
    }
  }
  finding.message =
      absl::StrCat("a step's way is ", row.name, ": ", row.function, ") -> ", row.call,
                   "); take out what is between them, or mend "
                   "tests/tidy/step_chain.tsv");
  return finding;
}

}  // namespace

std::vector<ChainRow> ParseChain(const std::vector<std::string>& lines) {
  std::vector<ChainRow> chain;
  for (const std::string& line : lines) {
    const std::vector<std::string> columns = absl::StrSplit(line, '\t');
    if (line.empty() || line[0] == '#' || columns.size() != 4) continue;
    chain.push_back({columns[0], columns[1], columns[2], columns[3]});
  }
  return chain;
}

void CheckStepChain(const SourceTree& tree, const std::vector<ChainRow>& chain,
                    std::vector<Finding>* findings) {
  if (chain.empty() || tree.Find(chain.front().file) == nullptr) return;
  std::set<std::string> classes;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (i > 0) classes.insert(chain[i].name);
    Finding finding = CheckRow(tree, chain[i]);
    if (!finding.message.empty()) findings->push_back(std::move(finding));
  }
  if (classes.size() > kClassesMax) {
    findings->push_back({chain.front().file, 0, kRule,
                         absl::StrCat("a step passes ", classes.size(), " classes, at most ",
                                      kClassesMax, "; one of them only passes calls on")});
  }
}

}  // namespace switchyard::tidy
