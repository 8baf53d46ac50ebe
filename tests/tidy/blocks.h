// The blocks of a C++ file: what each pair of braces holds, found without a compiler.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard::tidy {

enum class BlockKind {
  kNamespace,   // namespace, extern "C"
  kType,        // class, struct, union, enum
  kFunction,    // a function's body
  kInner,       // if, for, lambda, bare block: within a function
  kExpression,  // initializer list
};

struct Function {
  std::string head;    // its text before the brace, in one line
  int first_line = 0;  // of the opening brace
  int last_line = 0;   // of the closing brace
  [[nodiscard]] int length() const { return last_line - first_line + 1; }
};

// A declaration or statement that ends with ';', outside or inside of functions.
struct Statement {
  std::string text;  // with initializers in braces left out
  int line = 0;      // where it begins
  BlockKind inside = BlockKind::kNamespace;
};

struct Blocks {
  std::vector<Function> functions;
  std::vector<Statement> statements;
};

// `code` comes from BlankCommentsAndLiterals. Preprocessor lines are skipped.
Blocks FindBlocks(const std::vector<std::string>& code);

// True when `text` holds `word` with no letter, digit or '_' on either side.
bool HasWord(absl::string_view text, absl::string_view word);

}  // namespace switchyard::tidy
