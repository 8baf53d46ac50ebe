#include "tests/tidy/blocks.h"

#include <algorithm>
#include <array>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace switchyard::tidy {
namespace {

bool IsWordByte(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool HasAnyWord(absl::string_view text, std::span<const char* const> words) {
  return std::any_of(words.begin(), words.end(),
                     [text](const char* word) { return HasWord(text, word); });
}

// `template <class T = int> void F()` names types and defaults that are not F's.
absl::string_view WithoutTemplateParameters(absl::string_view head) {
  if (!absl::StartsWith(head, "template")) return head;
  int depth = 0;
  for (std::size_t i = 0; i < head.size(); ++i) {
    if (head[i] == '<') ++depth;
    if (head[i] == '>' && --depth == 0) {
      return WithoutTemplateParameters(absl::StripLeadingAsciiWhitespace(head.substr(i + 1)));
    }
  }
  return head;
}

// What a brace after `head` opens, when it stands inside a block of kind `outer`.
BlockKind KindOf(absl::string_view head, BlockKind outer) {
  constexpr std::array<const char*, 4> kTypes{"class", "struct", "union", "enum"};
  if (outer == BlockKind::kExpression) return BlockKind::kExpression;
  if (HasWord(head, "namespace") || absl::EndsWith(head, "extern \"")) return BlockKind::kNamespace;
  if (outer == BlockKind::kFunction || outer == BlockKind::kInner) return BlockKind::kInner;
  if (HasWord(head, "extern") && absl::StrContains(head, '"')) return BlockKind::kNamespace;
  head = WithoutTemplateParameters(head);
  const absl::string_view before_parenthesis = head.substr(0, head.find('('));
  const bool is_call = before_parenthesis.size() < head.size();
  const bool assigns = absl::StrContains(before_parenthesis, '=') &&
                       !absl::StrContains(before_parenthesis, "operator");
  if (assigns) return BlockKind::kExpression;
  if (is_call && !absl::EndsWith(head, ",")) {
    return BlockKind::kFunction;
  }
  return HasAnyWord(head, kTypes) ? BlockKind::kType : BlockKind::kExpression;
}

class Walker {
 public:
  explicit Walker(const std::vector<std::string>& code) : code_(code) {}

  Blocks Walk() {
    bool continues = false;
    for (std::size_t i = 0; i < code_.size(); ++i) {
      line_ = static_cast<int>(i) + 1;
      const std::string& text = code_[i];
      const bool preprocessor =
          continues || absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "#");
      continues = preprocessor && absl::EndsWith(text, "\\");
      if (preprocessor) continue;
      for (std::size_t column = 0; column < text.size(); ++column) Byte(text, i, column);
      if (!head_.empty()) head_ += ' ';
    }
    return std::move(blocks_);
  }

 private:
  struct Open {
    BlockKind kind;
    std::string head;  // of the statement that the brace belongs to
    int head_line;
    int line;
  };

  void Byte(const std::string& text, std::size_t row, std::size_t column) {
    const char c = text[column];
    if (c == '{') {
      OpenBlock();
    } else if (c == '}') {
      CloseBlock(NextByte(row, column + 1));
    } else if (c == ';' && parentheses_ == 0) {
      EndStatement();
    } else {
      if (c == '(') ++parentheses_;
      if (c == ')') --parentheses_;
      if (head_.empty() && absl::ascii_isspace(static_cast<unsigned char>(c))) return;
      if (head_.empty()) head_line_ = line_;
      head_ += c;
      const absl::string_view trimmed = head_;
      if (c == ':' && (trimmed == "public:" || trimmed == "private:" || trimmed == "protected:")) {
        head_.clear();
      }
    }
  }

  // The next byte that is not white space, or 0.
  [[nodiscard]] char NextByte(std::size_t row, std::size_t column) const {
    for (; row < code_.size(); ++row, column = 0) {
      for (; column < code_[row].size(); ++column) {
        if (!absl::ascii_isspace(static_cast<unsigned char>(code_[row][column]))) {
          return code_[row][column];
        }
      }
    }
    return 0;
  }

  [[nodiscard]] BlockKind Outer() const {
    return open_.empty() ? BlockKind::kNamespace : open_.back().kind;
  }

  void OpenBlock() {
    const absl::string_view head = absl::StripTrailingAsciiWhitespace(head_);
    // Inside parentheses a brace is an argument or a lambda; either belongs to the statement.
    BlockKind kind = KindOf(head, Outer());
    if (parentheses_ > 0 && kind != BlockKind::kInner) kind = BlockKind::kExpression;
    open_.push_back({kind, std::string(head), head_line_, line_});
    saved_parentheses_.push_back(parentheses_);
    parentheses_ = 0;
    head_.clear();
  }

  void CloseBlock(char next) {
    if (open_.empty()) return;
    const Open closed = std::move(open_.back());
    open_.pop_back();
    parentheses_ = saved_parentheses_.back();
    saved_parentheses_.pop_back();
    head_.clear();
    const bool statement_goes_on = next == ',' || next == '{' || next == ')' || next == ';' ||
                                   next == '}' || next == '.' || next == '(';
    // `: a_{x}, b_{y} {` and `array<T, Size()> a{x};` look like a body until what follows is seen.
    const bool initializer =
        closed.kind == BlockKind::kFunction && (next == ',' || next == '{' || next == ';');
    if (closed.kind == BlockKind::kFunction && !initializer) {
      blocks_.functions.push_back({closed.head, closed.line, line_});
    } else if (initializer || closed.kind == BlockKind::kExpression ||
               ((closed.kind == BlockKind::kInner || closed.kind == BlockKind::kType) &&
                statement_goes_on && next != '}')) {
      head_ = closed.head;
      head_line_ = closed.head_line;
    }
  }

  void EndStatement() {
    if (!head_.empty()) {
      blocks_.statements.push_back(
          {std::string(absl::StripAsciiWhitespace(head_)), head_line_, Outer()});
    }
    head_.clear();
  }

  const std::vector<std::string>& code_;
  Blocks blocks_;
  std::vector<Open> open_;
  std::vector<int> saved_parentheses_;
  std::string head_;
  int head_line_ = 0;
  int line_ = 0;
  int parentheses_ = 0;
};

}  // namespace

bool HasWord(absl::string_view text, absl::string_view word) {
  for (std::size_t at = text.find(word); at != absl::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || !IsWordByte(text[at - 1]) || !IsWordByte(word.front());
    const bool ends = end == text.size() || !IsWordByte(text[end]) || !IsWordByte(word.back());
    if (begins && ends) return true;
  }
  return false;
}

Blocks FindBlocks(const std::vector<std::string>& code) { return Walker(code).Walk(); }

}  // namespace switchyard::tidy
