#include "tests/fuzz/quant_parsers.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "core/error.h"
#include "model/quant/expected_tensors.h"
#include "model/quant/layer_quant.h"
#include "model/quant/name_patterns.h"
#include "model/quant/quant_config.h"

namespace switchyard::fuzz {
namespace {

void Check(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

void CheckRefusal(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  Check(reason == Reason::kBadConfig || reason == Reason::kUnsupported, "a refusal has its reason");
  Check(MetadataOf(status).contains("key"), "a refusal names its key");
  Check(status.message().size() < 4'096, "a refusal is short");
}

void CheckTensors(const LayerQuant& quant) {
  for (const Projection projection : {Projection::kGate, Projection::kUp, Projection::kDown}) {
    const auto tensors = ExpectedTensors(quant.of(projection), projection, {256, 512});
    if (!tensors.ok()) {
      CheckRefusal(tensors.status());
      continue;
    }
    Check(!tensors->empty() && tensors->front().role == TensorRole::kWeight,
          "a layout has a weight");
    for (const ExpectedTensor& tensor : *tensors) {
      Check(!tensor.dtypes.empty(), "a tensor has a dtype");
      for (const std::int64_t dim : tensor.shape) Check(dim > 0, "dimensions are above 0");
    }
  }
}

void Apply(const absl::StatusOr<QuantConfig>& config) {
  if (!config.ok()) return CheckRefusal(config.status());
  Check(!config->family.empty(), "a config has a family");
  for (const bool draft : {false, true}) {
    const auto quant =
        ResolveLayerQuant(*config, {.container = "model.layers.0.mlp.experts",
                                    .projections = {"gate_proj", "up_proj", "down_proj"},
                                    .experts = 3,
                                    .draft = draft,
                                    .stored_in_bf16 = draft});
    if (!quant.ok()) {
      CheckRefusal(quant.status());
      continue;
    }
    Check(!quant->why.empty(), "a layer's scheme has a reason");
    Check(quant->scheme == SchemeOf(quant->of(Projection::kGate)), "gate's layout is the scheme's");
    Check(!draft || quant->scheme == QuantScheme::kNone, "a draft stored in BF16 is BF16");
    CheckTensors(*quant);
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
    if (!status.ok()) CheckRefusal(status);
  }
  for (const NamePatterns* patterns : {&exact, &globs, &components}) {
    Check(!patterns->empty() || patterns->Match(module).empty(), "no entry names nothing");
  }
}

}  // namespace

void ParseQuantPart(absl::string_view input) {
  if (input.empty()) return;
  const std::string rest(input.substr(1));
  switch (input[0]) {
    case 'c':
      return Apply(ParseQuantConfig({.config_json = rest}));
    case 'h':
      return Apply(ParseQuantConfig({.config_json = "{}", .hf_quant_config = rest}));
    case 'd':
      return Apply(ParseQuantConfig({.config_json = "{}", .quant_model_description = rest}));
    case 'p':
      return MatchOne(rest);
    default:
      return;
  }
}

}  // namespace switchyard::fuzz
