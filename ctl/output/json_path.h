// Templates of '-o jsonpath=' and '--sort-by': the part of kubectl's JSONPath that picks fields.
//
//   {.workers[0].id}   {.workers[*].state}   {.workers[-1]['id']}
//   {range .workers[*]}{.id}{"\t"}{.state}{"\n"}{end}
//
// Text outside of braces is printed as it is; a template without braces is one path. In a range,
// paths begin at the element, and {$.x} at the whole document. What is missing prints nothing.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace switchyard::ctl {

using Json = nlohmann::ordered_json;

class JsonPath {
 public:
  // Errors: kInvalidArgument (BAD_REQUEST) with the place, for what is not a template, and for
  // JSONPath that is not supported: '..', filters, slices, lists of names.
  static absl::StatusOr<JsonPath> Parse(absl::string_view text);

  // Texts as they are, numbers and flags as JSON, objects and lists as compact JSON. Several values
  // of one path are separated by spaces.
  [[nodiscard]] std::string Print(const Json& document) const;
  // The first value of the first path; null if there is none.
  [[nodiscard]] const Json* First(const Json& document) const;

 private:
  friend class JsonPathParser;

  struct Step {
    enum class Kind { kField, kIndex, kAll } kind = Kind::kField;
    std::string name;        // of a field
    std::int64_t index = 0;  // from the end if negative
  };
  struct Piece {
    enum class Kind { kText, kPath, kRange } kind = Kind::kText;
    std::string text;
    bool from_root = false;
    std::vector<Step> steps;
    std::vector<Piece> body;  // of a range
  };

  static std::vector<const Json*> Find(const Piece& piece, const Json& root, const Json& current);
  static void PrintPieces(const std::vector<Piece>& pieces, const Json& root, const Json& current,
                          std::string* out);

  std::vector<Piece> pieces_;
};

}  // namespace switchyard::ctl
