// Rules that look at one file at a time: words, lengths, mutable state.
#pragma once

#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace switchyard::tidy {

// A row of banned_words.tsv.
struct BannedWord {
  std::string word;                 // as a whole word (a letter or digit beside it: another word)
  bool code_only = false;           // comments and literals do not count
  std::vector<std::string> exempt;  // path prefixes, and "=text" for lines that hold it
  std::string instead;
};
std::vector<BannedWord> ParseBannedWords(const std::vector<std::string>& lines);

void CheckBannedWords(const SourceTree& tree, const std::vector<BannedWord>& words,
                      std::vector<Finding>* findings);

// Headers <= 200 lines, sources <= 500, tests <= 800, functions <= 70.
void CheckLengths(const SourceTree& tree, std::vector<Finding>* findings);

// No variable that outlives a call and can change: at namespace scope, `static` in a function or a
// class, or thread_local. Product code only.
void CheckMutableStatics(const SourceTree& tree, std::vector<Finding>* findings);

// No comment of product code begins a sentence without a subject, as in "Of one that ..." or "What
// a worker holds." Only words that begin a line are seen.
void CheckSubjects(const SourceTree& tree, std::vector<Finding>* findings);

// Every header begins its code with #pragma once.
void CheckPragmaOnce(const SourceTree& tree, std::vector<Finding>* findings);

}  // namespace switchyard::tidy
