#include "model/experts/expert_names.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "core/base/error.h"
#include "model/io/checkpoint_error.h"
#include "model/io/json_view.h"

namespace switchyard {
namespace {

constexpr std::array kParts{"gate_proj", "up_proj", "down_proj"};
constexpr std::array kPackedParts{"gate_up_proj", "gate_up_proj", "down_proj"};
constexpr std::array kMixtralParts{"w1", "w3", "w2"};

// Model types that share their names with others have one row in the table for all of them.
constexpr std::array<const char*, 4> kQwen3{"qwen3_moe", "qwen3_next"};
constexpr std::array<const char*, 4> kQwen35{"qwen3_5_moe", "qwen3_5_moe_text"};
constexpr std::array<const char*, 4> kDeepseek{"deepseek_v3", "deepseek_v2", "kimi_k2"};
constexpr std::array<const char*, 4> kKimi{"kimi_k25"};
constexpr std::array<const char*, 4> kMixtral{"mixtral"};

constexpr char kLayers[] = "model.layers.{layer}.mlp.experts";
constexpr char kLanguageLayers[] = "model.language_model.layers.{layer}.mlp.experts";
constexpr char kMtpLayers[] = "mtp.layers.{layer}.mlp.experts";
constexpr char kKimiLayers[] = "language_model.model.layers.{layer}.mlp.experts";
constexpr char kMixtralLayers[] = "model.layers.{layer}.block_sparse_moe.experts";

// Sources: the checkpoints' indices. Draft layers of DeepSeek and Kimi follow the others in one
// list; Qwen has a list of its own for them. Text-only Qwen3.5 checkpoints drop "language_model".
constexpr std::array<ExpertNameMap, 11> kMaps{{
    {"qwen3_moe", kQwen3, kLayers, kMtpLayers, kParts, false},
    {"qwen3_moe packed", kQwen3, kLayers, kMtpLayers, kPackedParts, true},
    {"qwen3_5_moe", kQwen35, kLanguageLayers, kMtpLayers, kParts, false},
    {"qwen3_5_moe packed", kQwen35, kLanguageLayers, kMtpLayers, kPackedParts, true},
    {"qwen3_5_moe text", kQwen35, kLayers, kMtpLayers, kParts, false},
    {"qwen3_5_moe text packed", kQwen35, kLayers, kMtpLayers, kPackedParts, true},
    {"deepseek_v3", kDeepseek, kLayers, kLayers, kParts, false},
    {"deepseek_v3 packed", kDeepseek, kLayers, kLayers, kPackedParts, true},
    {"kimi_k25", kKimi, kKimiLayers, kKimiLayers, kParts, false},
    {"mixtral", kMixtral, kMixtralLayers, kMixtralLayers, kMixtralParts, false},
    {"mixtral packed", kMixtral, kLayers, kLayers, kPackedParts, true},
}};

bool IsOf(const ExpertNameMap& map, absl::string_view model_type) {
  return std::any_of(map.model_types.begin(), map.model_types.end(),
                     [&](const char* type) { return type != nullptr && model_type == type; });
}

ExpertModules ModulesOf(const ExpertNameMap& map, const ExpertLayer& layer) {
  ExpertModules modules;
  modules.container = absl::StrReplaceAll(layer.draft ? map.draft_container : map.container,
                                          {{"{layer}", absl::StrCat(layer.layer)}});
  std::copy(map.projections.begin(), map.projections.end(), modules.projections.begin());
  modules.experts = layer.experts;
  modules.packed = map.packed;
  modules.draft = layer.draft;
  return modules;
}

absl::Status NoMap(absl::string_view model_type) {
  std::set<std::string> known;
  for (const ExpertNameMap& map : kMaps) {
    for (const char* type : map.model_types) {
      if (type != nullptr) known.insert(type);
    }
  }
  return internal::UnsupportedConfig(
      "model_type", absl::StrCat("models of type '", PrintableName(model_type),
                                 "' are not supported; supported: ", absl::StrJoin(known, ", ")));
}

}  // namespace

std::span<const ExpertNameMap> ExpertNameMaps() { return kMaps; }

bool DraftsCountApart(absl::string_view model_type) {
  return std::any_of(kMaps.begin(), kMaps.end(), [&](const ExpertNameMap& map) {
    return IsOf(map, model_type) &&
           absl::string_view(map.draft_container) != absl::string_view(map.container);
  });
}

std::optional<ExpertModules> UsualExpertModules(const ExpertLayer& layer) {
  for (const ExpertNameMap& map : kMaps) {
    if (IsOf(map, layer.model_type)) return ModulesOf(map, layer);
  }
  return std::nullopt;
}

absl::StatusOr<ExpertModules> FindExpertModules(const CheckpointTensors& tensors,
                                                const ExpertLayer& layer) {
  // The first row whose names exist wins. Separate experts come before packed ones in the table,
  // and a checkpoint never has both.
  std::vector<std::string> tried;
  for (const ExpertNameMap& map : kMaps) {
    if (!IsOf(map, layer.model_type)) continue;
    ExpertModules modules = ModulesOf(map, layer);
    const std::string gate = modules.Name(0, Projection::kGate);
    // A prefix, because quantized experts have no tensor called "weight" in every layout.
    const bool there =
        map.packed ? tensors.Find(gate) != nullptr : tensors.HasPrefix(absl::StrCat(gate, "."));
    if (!there) {
      tried.push_back(map.packed ? gate : absl::StrCat(gate, ".*"));
      continue;
    }
    const TensorInfo* weight = tensors.Find(map.packed ? gate : absl::StrCat(gate, ".weight"));
    modules.stored_in_bf16 = weight != nullptr && weight->dtype == TensorDtype::kBf16;
    return modules;
  }
  if (tried.empty()) return NoMap(layer.model_type);
  return MakeCheckpointError(
      CheckpointErrorKind::kTensorNotFound,
      {.file = tensors.dir(), .tensor = tried.front(), .offset = std::nullopt},
      absl::StrCat("the checkpoint has no expert of this name; tried ", absl::StrJoin(tried, ", "),
                   "; is it complete?"));
}

}  // namespace switchyard
