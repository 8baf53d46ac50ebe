#include "ctl/output/json_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard::ctl {
namespace {

constexpr char kSupported[] =
    "supported are .field, ['field'], [0], [-1], [*], {range PATH}...{end} and {\"text\"}; for "
    "more, pipe -o json into jq";

}  // namespace

class JsonPathParser {
 public:
  explicit JsonPathParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<JsonPath> Parse() {
    JsonPath path;
    if (text_.find('{') == absl::string_view::npos) {
      SY_ASSIGN_OR_RETURN(path.pieces_.emplace_back(), ReadPath(text_, 0));
      return path;
    }
    SY_RETURN_IF_ERROR(ReadPieces(/*in_range=*/false, &path.pieces_));
    return path;
  }

 private:
  using Piece = JsonPath::Piece;
  using Step = JsonPath::Step;

  static absl::Status Bad(std::size_t at, absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrCat("JSONPath, character ", at + 1, ": ", what));
  }

  // Up to the end of the template, or to the {end} of a range.
  absl::Status ReadPieces(bool in_range, std::vector<Piece>* out) {
    while (at_ < text_.size()) {
      if (text_[at_] != '{') {
        const std::size_t end = std::min(text_.find('{', at_), text_.size());
        out->push_back(TextPiece(text_.substr(at_, end - at_)));
        at_ = end;
        continue;
      }
      const std::size_t begin = at_ + 1;
      SY_ASSIGN_OR_RETURN(const std::size_t close, CloseOf(begin));
      const absl::string_view inside = text_.substr(begin, close - begin);
      const absl::string_view word = absl::StripAsciiWhitespace(inside);
      at_ = close + 1;
      if (word == "end") {
        return in_range ? absl::OkStatus() : Bad(begin, "{end} without {range}");
      }
      SY_RETURN_IF_ERROR(ReadExpression(word, begin, out));
    }
    return in_range ? Bad(text_.size(), "{range} without {end}") : absl::OkStatus();
  }

  // The brace that ends what began at `begin`; one in quotes does not.
  [[nodiscard]] absl::StatusOr<std::size_t> CloseOf(std::size_t begin) const {
    char quote = '\0';
    for (std::size_t i = begin; i < text_.size(); ++i) {
      const char c = text_[i];
      if (quote != '\0' && c == '\\') {
        ++i;
      } else if (quote != '\0') {
        if (c == quote) quote = '\0';
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '}') {
        return i;
      }
    }
    return Bad(begin - 1, "\"{\" without \"}\"");
  }

  absl::Status ReadExpression(absl::string_view word, std::size_t at, std::vector<Piece>* out) {
    if (!word.empty() && (word.front() == '"' || word.front() == '\'')) {
      std::string text;
      const bool whole = word.size() > 1 && word.back() == word.front();
      if (!whole || !absl::CUnescape(word.substr(1, word.size() - 2), &text)) {
        return Bad(at, absl::StrCat(word, " is not a text in quotes"));
      }
      out->push_back(TextPiece(text));
      return absl::OkStatus();
    }
    const bool range = absl::ConsumePrefix(&word, "range ");
    SY_ASSIGN_OR_RETURN(Piece piece, ReadPath(absl::StripLeadingAsciiWhitespace(word), at));
    if (range) {
      if (++depth_ > kDepthMax) return Bad(at, "too many ranges in ranges");
      piece.kind = Piece::Kind::kRange;
      SY_RETURN_IF_ERROR(ReadPieces(/*in_range=*/true, &piece.body));
      --depth_;
    }
    out->push_back(std::move(piece));
    return absl::OkStatus();
  }

  static Piece TextPiece(absl::string_view text) {
    Piece piece;
    piece.text = std::string(text);
    return piece;
  }

  static absl::StatusOr<Piece> ReadPath(absl::string_view path, std::size_t at) {
    Piece piece;
    piece.kind = Piece::Kind::kPath;
    absl::string_view rest = path;
    piece.from_root = absl::ConsumePrefix(&rest, "$");
    if (!piece.from_root) absl::ConsumePrefix(&rest, "@");
    // "state" for ".state", as kubectl's --sort-by takes it.
    if (!rest.empty() && absl::ascii_isalpha(static_cast<unsigned char>(rest.front())) != 0) {
      SY_RETURN_IF_ERROR(ReadName(&rest, at, &piece.steps));
    }
    while (!rest.empty()) {
      if (absl::StartsWith(rest, "..")) {
        return Bad(at, absl::StrCat("\"..\" is not supported; ", kSupported));
      }
      if (absl::ConsumePrefix(&rest, ".")) {
        // "." alone is the whole document.
        if (rest.empty() && piece.steps.empty()) break;
        SY_RETURN_IF_ERROR(ReadName(&rest, at, &piece.steps));
      } else if (absl::ConsumePrefix(&rest, "[")) {
        SY_RETURN_IF_ERROR(ReadBracket(&rest, at, &piece.steps));
      } else {
        return Bad(at, absl::StrCat("\"", path, "\" is not a path; ", kSupported));
      }
    }
    return piece;
  }

  static absl::Status ReadName(absl::string_view* rest, std::size_t at, std::vector<Step>* steps) {
    Step step;
    const std::size_t end = std::min(rest->find_first_of(".[ "), rest->size());
    step.name = std::string(rest->substr(0, end));
    if (step.name.empty()) return Bad(at, "a field needs a name");
    if (step.name == "*") step.kind = Step::Kind::kAll;
    rest->remove_prefix(end);
    steps->push_back(std::move(step));
    return absl::OkStatus();
  }

  static absl::Status ReadBracket(absl::string_view* rest, std::size_t at,
                                  std::vector<Step>* steps) {
    const std::size_t end = rest->find(']');
    if (end == absl::string_view::npos) return Bad(at, "\"[\" without \"]\"");
    const absl::string_view inside = rest->substr(0, end);
    rest->remove_prefix(end + 1);
    Step step;
    if (inside == "*") {
      step.kind = Step::Kind::kAll;
    } else if (absl::SimpleAtoi(inside, &step.index)) {
      step.kind = Step::Kind::kIndex;
    } else if (inside.size() > 2 && (inside.front() == '\'' || inside.front() == '"') &&
               inside.find(inside.front(), 1) == inside.size() - 1) {
      step.name = std::string(inside.substr(1, inside.size() - 2));
    } else {
      return Bad(at, absl::StrCat("\"[", inside, "]\" is not supported; ", kSupported));
    }
    steps->push_back(std::move(step));
    return absl::OkStatus();
  }

  static constexpr int kDepthMax = 8;

  const absl::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

absl::StatusOr<JsonPath> JsonPath::Parse(absl::string_view text) {
  return JsonPathParser(text).Parse();
}

std::vector<const Json*> JsonPath::Find(const Piece& piece, const Json& root, const Json& current) {
  std::vector<const Json*> found{piece.from_root ? &root : &current};
  for (const Step& step : piece.steps) {
    std::vector<const Json*> next;
    for (const Json* const at : found) {
      if (step.kind == Step::Kind::kAll) {
        if (!at->is_structured()) continue;
        for (const Json& each : *at) next.push_back(&each);
      } else if (step.kind == Step::Kind::kField) {
        if (at->is_object() && at->contains(step.name)) next.push_back(&at->at(step.name));
      } else if (at->is_array()) {
        const auto size = static_cast<std::int64_t>(at->size());
        const std::int64_t index = step.index < 0 ? size + step.index : step.index;
        if (index < 0 || index >= size) continue;
        next.push_back(&at->at(static_cast<std::size_t>(index)));
      }
    }
    found = std::move(next);
  }
  return found;
}

void JsonPath::PrintPieces(const std::vector<Piece>& pieces, const Json& root, const Json& current,
                           std::string* out) {
  for (const Piece& piece : pieces) {
    if (piece.kind == Piece::Kind::kText) {
      *out += piece.text;
      continue;
    }
    const char* separator = "";
    for (const Json* const each : Find(piece, root, current)) {
      if (piece.kind == Piece::Kind::kRange) {
        PrintPieces(piece.body, root, *each, out);
        continue;
      }
      absl::StrAppend(out, separator,
                      each->is_string()
                          ? each->get<std::string>()
                          : each->dump(-1, ' ', false, Json::error_handler_t::replace));
      separator = " ";
    }
  }
}

std::string JsonPath::Print(const Json& document) const {
  std::string out;
  PrintPieces(pieces_, document, document, &out);
  return out;
}

const Json* JsonPath::First(const Json& document) const {
  for (const Piece& piece : pieces_) {
    if (piece.kind != Piece::Kind::kPath) continue;
    const std::vector<const Json*> found = Find(piece, document, document);
    return found.empty() ? nullptr : found.front();
  }
  return nullptr;
}

}  // namespace switchyard::ctl
