#include "model/model_family.h"

#include <array>

#include "absl/strings/str_join.h"

#include "model/qwen3_moe_config.h"

namespace switchyard {
namespace {

constexpr std::array<ModelFamily, 1> kFamilies{{
    {"qwen3_moe",
     "Qwen3MoeForCausalLM",
     &ParseQwen3MoeConfig,
     {"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
      "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
      "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"}},
}};

}  // namespace

std::span<const ModelFamily> ModelFamilies() { return kFamilies; }

const ModelFamily* FindModelFamily(absl::string_view model_type) {
  for (const ModelFamily& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
}

std::string SupportedModelTypes() {
  return absl::StrJoin(kFamilies, ", ", [](std::string* out, const ModelFamily& family) {
    out->append(family.model_type);
  });
}

}  // namespace switchyard
