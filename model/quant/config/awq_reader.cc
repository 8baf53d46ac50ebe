// quant_method "awq": AutoAWQ's "gemm" layout, INT4 with zero points.
//
//   {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm",
//    "modules_to_not_convert": ["gate"]}
#include <array>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/quant/config/quant_families.h"

namespace switchyard::internal {
namespace {

constexpr std::array kKeys{"quant_method",   "bits",           "w_bit",   "group_size",
                           "q_group_size",   "zero_point",     "version", "modules_to_not_convert",
                           "ignored_layers", "backend",        "do_fuse", "fuse_max_seq_len",
                           "exllama_config", "modules_to_fuse"};

// Keys that say how the weights were found, or what holds for other modules than experts. None of
// them changes what the stored integers and scales mean. From transformers 5.23 (AwqConfig, which
// is a GPTQConfig), GPTQModel 7.7 (AWQConfig.to_dict) and auto-round 0.16 (export_to_awq).
constexpr std::array kHistory{
    // transformers
    "tokenizer", "dataset", "damp_percent", "act_group_aware", "true_sequential", "meta",
    "model_seqlen", "block_name_to_quantize", "module_name_preceding_first_block", "batch_size",
    "pad_token_id", "max_input_length", "cache_block_outputs",
    // GPTQModel; `sym` says whether all zero points are equal, and they are stored in both cases
    "sym", "lm_head", "method", "static_groups", "is_marlin_format",
    // auto-round
    "provider", "autoround_version", "amp", "enable_minmax_tuning", "enable_norm_bias_tuning",
    "enable_quanted_input", "enable_alg_ext", "gradient_accumulate_steps", "iters", "lr",
    "low_gpu_mem_usage", "minmax_lr", "nsamples", "seqlen", "scale_dtype", "to_quant_block_names",
    "static_kv_dtype", "static_kv_granularity", "static_attention_dtype",
    "static_attention_granularity"};

// Options of the same writers that change what the weights or inputs are. Off is served.
struct Option {
  const char* key;
  const char* why;
};
constexpr std::array kMustBeOff{
    Option{"desc_act", "weights in the order of activations are not served"},
    Option{"dynamic", "other bits for some modules are not served"},
    Option{"extra_config", "other bits for some modules are not served"},
    Option{"rotation", "rotated weights are not served"},
    Option{"modules_in_block_to_quantize", "a list of what is quantized is not read"},
    Option{"super_bits", "quantized scales are not served"},
    Option{"super_group_size", "quantized scales are not served"},
    Option{"act_bits", "quantized inputs are not served with AWQ"},
};

// Keys that have one served value.
struct Fixed {
  const char* key;
  const char* value;
};
constexpr std::array kFixed{
    Fixed{"version", "gemm"},     Fixed{"format", "gemm"},   Fixed{"checkpoint_format", "gemm"},
    Fixed{"pack_dtype", "int32"}, Fixed{"data_type", "int"},
};

absl::Status CheckKeys(const JsonView& view) {
  std::vector<const char*> more(DispatchKeyNames().begin(), DispatchKeyNames().end());
  more.insert(more.end(), kHistory.begin(), kHistory.end());
  for (const Option& option : kMustBeOff) more.push_back(option.key);
  for (const Fixed& fixed : kFixed) more.push_back(fixed.key);
  SY_RETURN_IF_ERROR(view.OnlyKeys(kKeys, more));
  for (const Option& option : kMustBeOff) {
    SY_RETURN_IF_ERROR(view.MustBeOff(option.key, option.why));
  }
  for (const Fixed& fixed : kFixed) {
    std::string value = fixed.value;
    SY_RETURN_IF_ERROR(Optional(view.String(fixed.key), value));
    if (absl::AsciiStrToLower(value) == fixed.value) continue;
    return UnsupportedConfig(
        view.PathOf(fixed.key),
        absl::StrCat("'", PrintableName(value), "' is not served, only '", fixed.value, "'"));
  }
  return absl::OkStatus();
}

// One number under either of two spellings (AutoAWQ's own and transformers'), which must not
// disagree.
absl::StatusOr<std::int32_t> EitherInt(const JsonView& view, const char* key, const char* older) {
  SY_ASSIGN_OR_RETURN(const std::optional<std::int32_t> value, view.Int(key, -1, 65'536));
  SY_ASSIGN_OR_RETURN(const std::optional<std::int32_t> other, view.Int(older, -1, 65'536));
  if (value.has_value() && other.has_value() && *value != *other) {
    return BadConfig(view.PathOf(older),
                     absl::StrCat("it contradicts '", key,
                                  "', which has the same meaning; remove the wrong one"));
  }
  if (!value.has_value() && !other.has_value()) {
    return BadConfig(view.PathOf(key), "it is missing");
  }
  return value.has_value() ? *value : *other;
}

absl::Status ReadGroups(const JsonView& view, ProjectionQuant& quant) {
  SY_ASSIGN_OR_RETURN(const std::int32_t bits, EitherInt(view, "bits", "w_bit"));
  if (bits != 4) {
    return UnsupportedConfig(view.PathOf("bits"),
                             absl::StrCat(bits, " bits are not served, only 4"));
  }
  SY_ASSIGN_OR_RETURN(const std::int32_t group, EitherInt(view, "group_size", "q_group_size"));
  if (group == 0) return BadConfig(view.PathOf("group_size"), "it must be above 0, or -1 for K");
  quant.group_size = group < 0 ? 0 : group;
  // With `false` all zero points are equal, but the layout stores them all the same (8 in each
  // nibble): auto-round and GPTQModel write that by default. So the key changes nothing here.
  bool varies = true;
  SY_RETURN_IF_ERROR(Require(view.Bool("zero_point"), view.PathOf("zero_point"), varies));
  quant.zero_points = true;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadAwq(const QuantSources& sources, QuantConfig& config) {
  const JsonView& view = *sources.quantization_config;
  SY_RETURN_IF_ERROR(CheckKeys(view));
  ProjectionQuant quant{.layout = QuantLayout::kAwq};
  SY_RETURN_IF_ERROR(ReadGroups(view, quant));
  SY_RETURN_IF_ERROR(ReadModulesToNotConvert(view, config));
  AddEveryLinear(view, quant, config);
  return ReadDispatchKeys(view, config.dispatch);
}

}  // namespace switchyard::internal
