#include <string>
#include <vector>

#include "absl/strings/str_split.h"

#include "core/base/error.h"
#include "model/quant/config/layer_quant.h"
#include "model/quant/config/quant_config.h"
#include "model/quant/layout/expected_tensors.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/targets.h"

namespace switchyard::fuzz {
namespace {

void CheckRefusal(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  Check(reason == Reason::kBadConfig || reason == Reason::kUnsupported, "a refusal has its reason");
  Check(MetadataOf(status).contains("key"), "a refusal names its key");
  Check(status.message().size() < 4'096, "a refusal is short");
}

void CheckTensors(const LayerQuant& quant) {
  for (const Projection projection : kAllProjections) {
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

// The three files, parted by 0x1e.
QuantConfigFiles AllFiles(absl::string_view input) {
  const std::vector<std::string> parts = absl::StrSplit(input, absl::MaxSplits('\x1e', 2));
  QuantConfigFiles files{.config_json = parts[0]};
  if (parts.size() > 1) files.hf_quant_config = parts[1];
  if (parts.size() > 2) files.quant_model_description = parts[2];
  return files;
}

}  // namespace

void FuzzQuantConfig(absl::string_view input) {
  if (input.empty()) return;
  const std::string rest(input.substr(1));
  switch (input[0]) {
    case 'c':
      return Apply(ParseQuantConfig({.config_json = rest}));
    case 'h':
      return Apply(ParseQuantConfig({.config_json = "{}", .hf_quant_config = rest}));
    case 'd':
      return Apply(ParseQuantConfig({.config_json = "{}", .quant_model_description = rest}));
    case 'a':
      return Apply(ParseQuantConfig(AllFiles(rest)));
    default:
      return;
  }
}

}  // namespace switchyard::fuzz
