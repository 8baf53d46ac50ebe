#include <string>
#include <variant>

#include "core/base/error.h"
#include "model/model_spec.h"
#include "model/quant/config/name_patterns.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/targets.h"

namespace switchyard::fuzz {
namespace {

void ParseSpec(absl::string_view text) {
  const auto spec = ParseModelSpec(text);
  if (!spec.ok()) {
    Check(ReasonOf(spec.status()) == Reason::kBadConfig, "a refusal has its reason");
    return;
  }
  if (const auto* model = std::get_if<SyntheticModel>(&*spec)) {
    const auto again = ParseSyntheticModel(ToString(*model));
    Check(again.ok() && *again == *model, "a synthetic model's text round-trips");
  }
}

void MatchOne(absl::string_view input) {
  const std::size_t line = input.find('\n');
  if (line == absl::string_view::npos) return;
  const absl::string_view entry = input.substr(0, line);
  const absl::string_view module = input.substr(line + 1);
  NamePatterns exact;
  NamePatterns globs;
  NamePatterns components;
  for (const auto& status : {exact.AddExactOrRegex(entry, "k"), globs.AddGlob(entry, "k"),
                             components.AddComponents(entry, "k")}) {
    if (status.ok()) continue;
    const Reason reason = ReasonOf(status);
    Check(reason == Reason::kBadConfig || reason == Reason::kUnsupported,
          "a refusal has its reason");
    Check(status.message().size() < 4'096, "a refusal is short");
  }
  for (const NamePatterns* patterns : {&exact, &globs, &components}) {
    Check(!patterns->empty() || patterns->Match(module).empty(), "no entry names nothing");
  }
}

}  // namespace

void FuzzNames(absl::string_view input) {
  if (input.empty()) return;
  if (input[0] == 's') ParseSpec(input.substr(1));
  if (input[0] == 'p') MatchOne(input.substr(1));
}

}  // namespace switchyard::fuzz
