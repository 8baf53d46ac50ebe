#include "model/experts/moe_outline.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_json.h"
#include "model/io/config_reader.h"
#include "model/io/json_view.h"

namespace switchyard {
namespace {

using internal::JsonView;

// Bounds far above real models: a hostile config must not make a reader loop or allocate for long.
constexpr std::int64_t kLayersMax = 4096;
constexpr std::int64_t kExpertsMax = 65'536;
constexpr std::int64_t kSizeMax = 1 << 20;
constexpr std::int64_t kDraftsMax = 64;

// Models with such a key write hidden_act "silu" and compute another function: gpt-oss, for one,
// clamps gate and up and multiplies by up + 1.
constexpr std::array kOtherActivationKeys{"swiglu_limit", "swiglu_limits", "swiglu_alpha"};

// The rule that says which layers have experts.
enum class Rule : std::uint8_t {
  kAll,
  kAfterDense,  // from first_k_dense_replace on, each moe_layer_freq-th
  kSparseStep,  // each decoder_sparse_step-th, except mlp_only_layers
};

struct Family {
  std::array<const char*, 4> model_types;  // nullptr for none
  const char* experts;
  const char* intermediate;
  std::array<const char*, 2> drafts;  // spellings of their number; nullptr for none
  bool drafts_follow;  // drafts continue the list of the other layers instead of having one of
                       // their own
  Rule rule;
};

constexpr Family kFamilies[] = {
    {{"deepseek_v3", "deepseek_v2", "kimi_k2", "kimi_k25"},
     "n_routed_experts",
     "moe_intermediate_size",
     {"num_nextn_predict_layers"},
     true,
     Rule::kAfterDense},
    {{"qwen3_moe", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next"},
     "num_experts",
     "moe_intermediate_size",
     {"mtp_num_hidden_layers", "num_nextn_predict_layers"},
     false,
     Rule::kSparseStep},
    {{"mixtral"}, "num_local_experts", "intermediate_size", {}, true, Rule::kAll},
};

absl::StatusOr<const Family*> FindFamily(absl::string_view model_type) {
  std::set<std::string> known;
  for (const Family& family : kFamilies) {
    for (const char* type : family.model_types) {
      if (type == nullptr) continue;
      if (model_type == type) return &family;
      known.insert(type);
    }
  }
  return internal::UnsupportedConfig(
      "model_type", absl::StrCat("models of type '", PrintableName(model_type),
                                 "' are not supported; supported: ", absl::StrJoin(known, ", ")));
}

// Since version 5, transformers writes num_local_experts for every family.
absl::Status ReadExperts(const JsonView& text, const Family& family, MoeOutline& out) {
  constexpr char kNew[] = "num_local_experts";
  const bool is_old = text.Has(family.experts);
  const char* key = is_old || !text.Has(kNew) ? family.experts : kNew;
  SY_RETURN_IF_ERROR(Require(text.Int(key, 1, kExpertsMax), text.PathOf(key), out.shape.experts));
  std::int32_t other = out.shape.experts;
  SY_RETURN_IF_ERROR(Optional(text.Int(kNew, 1, kExpertsMax), other));
  if (other == out.shape.experts) return absl::OkStatus();
  return BadConfig(text.PathOf(kNew), absl::StrCat("it is ", other, " and ", family.experts, " is ",
                                                   out.shape.experts, "; remove the wrong one"));
}

absl::Status ReadDrafts(const JsonView& text, const Family& family, MoeOutline& out) {
  const char* first = nullptr;
  for (const char* key : family.drafts) {
    if (key == nullptr || !text.Has(key)) continue;
    std::int32_t drafts = 0;
    SY_RETURN_IF_ERROR(Optional(text.Int(key, 0, kDraftsMax), drafts));
    if (first != nullptr && drafts != out.drafts) {
      return BadConfig(text.PathOf(key), absl::StrCat("it is ", drafts, " and ", first, " is ",
                                                      out.drafts, "; remove the wrong one"));
    }
    first = key;
    out.drafts = drafts;
  }
  out.first_draft = family.drafts_follow ? out.layers : 0;
  return absl::OkStatus();
}

absl::Status ReadSizes(const JsonView& text, const Family& family, MoeOutline& out) {
  struct Wanted {
    const char* key;
    std::int64_t max;
    std::int32_t* value;
  };
  const std::array wanted{Wanted{"hidden_size", kSizeMax, &out.shape.hidden},
                          Wanted{"num_hidden_layers", kLayersMax, &out.layers},
                          Wanted{family.intermediate, kSizeMax, &out.shape.intermediate}};
  for (const Wanted& one : wanted) {
    SY_RETURN_IF_ERROR(Require(text.Int(one.key, 1, one.max), text.PathOf(one.key), *one.value));
  }
  SY_RETURN_IF_ERROR(ReadExperts(text, family, out));
  SY_RETURN_IF_ERROR(
      Optional(text.Int("num_experts_per_tok", 1, out.shape.experts), out.shape.top_k));
  // Each size may be within its bound and the product still not.
  if (std::int64_t{out.shape.hidden} * out.shape.intermediate > kExpertTensorValuesMax) {
    return BadConfig(
        text.PathOf(family.intermediate),
        absl::StrCat(out.shape.intermediate, " times hidden_size is more than the ",
                     kExpertTensorValuesMax, " values that an expert's tensor may have"));
  }
  SY_RETURN_IF_ERROR(Optional(text.String("hidden_act"), out.activation));
  for (const char* key : kOtherActivationKeys) {
    if (text.Has(key)) out.activation_changed_by = text.PathOf(key);
  }
  return ReadDrafts(text, family, out);
}

absl::Status ReadLayers(const JsonView& text, Rule rule, MoeOutline& out) {
  std::int32_t dense = 0;
  std::int32_t step = 1;
  std::vector<std::int32_t> without;
  if (rule == Rule::kAfterDense) {
    SY_RETURN_IF_ERROR(Optional(text.Int("first_k_dense_replace", 0, kLayersMax), dense));
    SY_RETURN_IF_ERROR(Optional(text.Int("moe_layer_freq", 1, kLayersMax), step));
  } else if (rule == Rule::kSparseStep) {
    SY_RETURN_IF_ERROR(Optional(text.Int("decoder_sparse_step", 1, kLayersMax), step));
    SY_RETURN_IF_ERROR(Optional(text.Ints("mlp_only_layers", 0, out.layers - 1), without));
  }
  // DeepSeek's layers count from 0, Qwen's step rule from 1 (transformers' model classes).
  const std::int32_t offset = rule == Rule::kSparseStep ? 1 : 0;
  for (std::int32_t layer = dense; layer < out.layers; ++layer) {
    if ((layer + offset) % step != 0) continue;
    if (std::find(without.begin(), without.end(), layer) != without.end()) continue;
    out.moe_layers.push_back(LayerId{layer});
  }
  if (!out.moe_layers.empty()) return absl::OkStatus();
  return BadConfig(text.PathOf("num_hidden_layers"), "no layer of the model has experts");
}

}  // namespace

absl::StatusOr<MoeOutline> ParseMoeOutline(absl::string_view config_json) {
  absl::StatusOr<nlohmann::json> root = internal::ParseJsonTree(config_json);
  if (!root.ok()) return BadConfig("config.json", root.status().message());
  if (!root->is_object()) return BadConfig("config.json", "the text is not a JSON object");
  const JsonView top(*root, "");
  MoeOutline out;
  SY_RETURN_IF_ERROR(Require(top.String("model_type"), "model_type", out.model_type));
  SY_ASSIGN_OR_RETURN(const Family* family, FindFamily(out.model_type));
  SY_ASSIGN_OR_RETURN(const std::optional<JsonView> nested, top.Object("text_config"));
  const JsonView& text = nested.has_value() ? *nested : top;
  SY_RETURN_IF_ERROR(ReadSizes(text, *family, out));
  SY_RETURN_IF_ERROR(ReadLayers(text, family->rule, out));
  return out;
}

}  // namespace switchyard
