// Matches module names against a list in a checkpoint's quant config. There are four ways to match:
//
//   exact       compressed-tensors: "lm_head" names that module only
//   regex       compressed-tensors: "re:.*self_attn.*", anchored at the start of the name as
//               Python's re.match is, not at its end
//   glob        ModelOpt: '*' stands for any text, dots too; the rest of the name literally
//   components  AWQ, FP8: a run of whole dotted parts anywhere in the name, so "mlp.gate" names
//               "model.layers.0.mlp.gate" and not "...mlp.gate_proj", and "shared_expert" does not
//               name "shared_experts"
//
// The lists come from untrusted files. Regular expressions run on RE2: time linear in
// the name, memory bounded for each, no look-around and no back-references (refused by name). A
// match costs O(parts^2 log n) for exact and components, O(name * pattern) for each glob and regex.
// Thread-safe once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace re2 {
class RE2;
}  // namespace re2

namespace switchyard {

// The limits of a list. Real lists hold thousands of exact names and a dozen patterns.
struct NamePatternLimits {
  std::size_t names_max = 65'536;
  std::size_t globs_max = 4'096;
  std::size_t regexes_max = 64;
  std::size_t bytes_max = 1'024;                    // of one entry
  std::int64_t regex_memory_bytes_max = 128 << 10;  // of one regular expression, compiled
};
inline constexpr NamePatternLimits kNamePatternLimits;

class NamePatterns {
 public:
  NamePatterns();
  NamePatterns(NamePatterns&&) noexcept;
  NamePatterns& operator=(NamePatterns&&) noexcept;
  ~NamePatterns();

  // Each adds one entry. `key` names its place in errors.
  // Errors: kInvalidArgument (BAD_CONFIG), metadata {key}: empty, too long, too many, a glob with
  // another wildcard than '*', a regular expression that RE2 does not support.
  absl::Status AddExact(absl::string_view name, absl::string_view key);
  absl::Status AddRegex(absl::string_view regex, absl::string_view key);
  absl::Status AddGlob(absl::string_view glob, absl::string_view key);
  absl::Status AddComponents(absl::string_view parts, absl::string_view key);
  // "re:..." is a regular expression, anything else exact.
  absl::Status AddExactOrRegex(absl::string_view entry, absl::string_view key);

  // The entry that names `module`, as it was written; empty when there is none.
  [[nodiscard]] std::string Match(absl::string_view module) const;
  [[nodiscard]] bool empty() const;

 private:
  std::set<std::string, std::less<>> exact_;
  std::set<std::string, std::less<>> components_;
  std::vector<std::string> globs_;
  std::vector<std::unique_ptr<re2::RE2>> regexes_;
};

}  // namespace switchyard
