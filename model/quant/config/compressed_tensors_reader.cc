// quant_method "compressed-tensors": groups of modules, each with its weights' and inputs' numbers.
//
//   {"quant_method": "compressed-tensors", "format": "pack-quantized",
//    "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null,
//      "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32,
//                  "symmetric": true, "dynamic": false}}},
//    "ignore": ["lm_head", "re:.*self_attn.*"], "kv_cache_scheme": null}
//
// A target is the class "Linear", the exact name of a module or "re:" and a regular expression;
// names take precedence over the class, as in compressed-tensors itself.
#include <array>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/quant/config/quant_families.h"

namespace switchyard::internal {
namespace {

constexpr std::array kKeys{"quant_method",    "format",
                           "config_groups",   "ignore",
                           "kv_cache_scheme", "quantization_status",
                           "version",         "global_compression_ratio",
                           "sparsity_config", "transform_config"};
constexpr std::array kGroupKeys{"targets", "weights", "input_activations", "output_activations",
                                "format"};
constexpr std::array kArgumentKeys{
    "num_bits",        "type",     "strategy", "group_size",      "symmetric",   "dynamic",
    "block_structure", "actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"};
constexpr std::size_t kGroupsMax = 16;

// The contents of "weights" or "input_activations".
struct Arguments {
  std::int32_t bits = 0;
  std::string type = "int";
  std::string strategy;
  std::int32_t group_size = 0;  // 0: not given, or -1
  bool symmetric = true;
  bool dynamic = false;  // "local" counts as true
  std::vector<std::int32_t> block;
};

// true, false, or "local" (NVFP4 inputs: scales measured for each group).
absl::Status ReadDynamic(const JsonView& view, bool& dynamic) {
  const auto flag = view.Bool("dynamic");
  if (flag.ok()) return Optional(flag, dynamic);
  SY_ASSIGN_OR_RETURN(const std::optional<std::string> text, view.String("dynamic"));
  if (text != "local") {
    return BadConfig(view.PathOf("dynamic"), "it must be true, false or \"local\"");
  }
  dynamic = true;
  return absl::OkStatus();
}

// Columns of weights in another order than those of x need g_idx, which no kernel here applies. The
// orders "static" and "weight" need none: their groups follow the stored order.
absl::Status CheckOrder(const JsonView& view) {
  if (!view.Has("actorder")) return absl::OkStatus();
  const auto order = view.String("actorder");
  if (order.ok() && (*order == "static" || *order == "weight")) return absl::OkStatus();
  return view.MustBeOff("actorder", "weights in the order of activations are not served");
}

absl::StatusOr<Arguments> ReadArguments(const JsonView& view) {
  SY_RETURN_IF_ERROR(view.OnlyKeys(kArgumentKeys));
  Arguments out;
  SY_RETURN_IF_ERROR(Require(view.Int("num_bits", 1, 64), view.PathOf("num_bits"), out.bits));
  SY_RETURN_IF_ERROR(Optional(view.String("type"), out.type));
  SY_RETURN_IF_ERROR(Optional(view.Int("group_size", -1, 65'536), out.group_size));
  if (out.group_size < 0) out.group_size = 0;
  out.strategy = out.group_size > 0 ? "group" : "tensor";
  SY_RETURN_IF_ERROR(Optional(view.String("strategy"), out.strategy));
  SY_RETURN_IF_ERROR(Optional(view.Bool("symmetric"), out.symmetric));
  SY_RETURN_IF_ERROR(Optional(view.Ints("block_structure", 1, 65'536), out.block));
  SY_RETURN_IF_ERROR(ReadDynamic(view, out.dynamic));
  SY_RETURN_IF_ERROR(CheckOrder(view));
  return out;
}

std::string TextOf(const std::optional<Arguments>& arguments) {
  if (!arguments.has_value()) return "none";
  return absl::StrCat(arguments->bits, "-bit ", PrintableName(arguments->type), ", strategy ",
                      PrintableName(arguments->strategy), ", groups of ", arguments->group_size,
                      arguments->symmetric ? ", symmetric" : ", asymmetric",
                      arguments->dynamic ? ", dynamic" : ", static");
}

bool Are(const std::optional<Arguments>& arguments, std::int32_t bits, absl::string_view type,
         absl::string_view strategy) {
  return arguments.has_value() && arguments->bits == bits && arguments->type == type &&
         arguments->strategy == strategy && arguments->symmetric;
}

struct Rule {
  const char* format;
  bool (*holds)(const Arguments& weights, const std::optional<Arguments>& inputs);
  ProjectionQuant (*quant)(const Arguments& weights, const std::optional<Arguments>& inputs);
};

using Inputs = std::optional<Arguments>;

bool IsFp8Tensor(const Arguments& weights, const Inputs& inputs) {
  return Are(weights, 8, "float", "tensor") && inputs.has_value() &&
         Are(inputs, 8, "float", inputs->dynamic ? inputs->strategy : "tensor");
}
bool IsFp8Channel(const Arguments& weights, const Inputs& inputs) {
  return Are(weights, 8, "float", "channel") && Are(inputs, 8, "float", "token") && inputs->dynamic;
}
bool IsFp8Block(const Arguments& weights, const Inputs& inputs) {
  return Are(weights, 8, "float", "block") &&
         weights.block == std::vector<std::int32_t>{128, 128} && Are(inputs, 8, "float", "group") &&
         inputs->group_size == 128 && inputs->dynamic;
}
bool IsNvfp4(const Arguments& weights, const Inputs& inputs) {
  return Are(weights, 4, "float", "tensor_group") && weights.group_size == 16 &&
         Are(inputs, 4, "float", "tensor_group") && inputs->group_size == 16;
}
bool IsInt8(const Arguments& weights, const Inputs& inputs) {
  return Are(weights, 8, "int", "channel") && Are(inputs, 8, "int", "token") && inputs->dynamic;
}
bool IsInt4(const Arguments& weights, const Inputs& inputs) {
  return !inputs.has_value() && ((Are(weights, 4, "int", "group") && weights.group_size > 0) ||
                                 Are(weights, 4, "int", "channel"));
}

// The combinations that are served, by format. The first rule that holds decides. A combination
// that is close to a rule is refused, not rounded to it: it would be read as other weights.
constexpr std::array<Rule, 6> kRules{{
    {"float-quantized", &IsFp8Tensor,
     [](const Arguments&, const Inputs& inputs) {
       return ProjectionQuant{.layout = QuantLayout::kFp8Tensor, .static_inputs = !inputs->dynamic};
     }},
    {"float-quantized", &IsFp8Channel,
     [](const Arguments&, const Inputs&) {
       return ProjectionQuant{.layout = QuantLayout::kFp8Channel};
     }},
    {"float-quantized", &IsFp8Block,
     [](const Arguments&, const Inputs&) {
       return ProjectionQuant{.layout = QuantLayout::kFp8BlockCompressed, .block = {128, 128}};
     }},
    {"nvfp4-pack-quantized", &IsNvfp4,
     [](const Arguments&, const Inputs&) {
       return ProjectionQuant{
           .layout = QuantLayout::kNvfp4Compressed, .group_size = 16, .static_inputs = true};
     }},
    {"int-quantized", &IsInt8,
     [](const Arguments&, const Inputs&) {
       return ProjectionQuant{.layout = QuantLayout::kInt8Channel};
     }},
    {"pack-quantized", &IsInt4,
     [](const Arguments& weights, const Inputs&) {
       return ProjectionQuant{.layout = QuantLayout::kPackQuantized,
                              .group_size = weights.group_size};
     }},
}};

absl::StatusOr<ProjectionQuant> QuantOf(const JsonView& group, absl::string_view format) {
  SY_ASSIGN_OR_RETURN(const std::optional<JsonView> weights, group.Object("weights"));
  if (!weights.has_value()) return BadConfig(group.PathOf("weights"), "it is missing");
  SY_ASSIGN_OR_RETURN(const Arguments weight_arguments, ReadArguments(*weights));
  if (weight_arguments.dynamic) {
    return BadConfig(weights->PathOf("dynamic"), "stored weights cannot have measured scales");
  }
  std::optional<Arguments> inputs;
  SY_ASSIGN_OR_RETURN(const std::optional<JsonView> input_view, group.Object("input_activations"));
  if (input_view.has_value()) {
    SY_ASSIGN_OR_RETURN(inputs, ReadArguments(*input_view));
  }
  // Versions before 0.7 wrote "naive-quantized" for every format of unpacked numbers.
  const bool naive = format == "naive-quantized";
  for (const Rule& rule : kRules) {
    const bool packed = absl::string_view(rule.format).find("pack") != absl::string_view::npos;
    if ((format == rule.format || (naive && !packed)) && rule.holds(weight_arguments, inputs)) {
      return rule.quant(weight_arguments, inputs);
    }
  }
  return UnsupportedConfig(
      group.path(),
      absl::StrCat("format '", PrintableName(format), "' with weights (", TextOf(weight_arguments),
                   ") and inputs (", TextOf(inputs), ") is not served"));
}

absl::Status ReadGroup(const JsonView& view, std::string format, QuantConfig& config) {
  SY_RETURN_IF_ERROR(view.OnlyKeys(kGroupKeys));
  SY_RETURN_IF_ERROR(view.MustBeOff("output_activations", "quantized outputs are not served"));
  SY_RETURN_IF_ERROR(Optional(view.String("format"), format));
  if (format.empty()) return BadConfig(view.PathOf("format"), "it is missing");
  QuantGroup group;
  group.key = view.path();
  SY_ASSIGN_OR_RETURN(group.quant, QuantOf(view, format));
  std::vector<std::string> targets;
  SY_RETURN_IF_ERROR(Require(view.Strings("targets"), view.PathOf("targets"), targets));
  for (const std::string& target : targets) {
    if (target == "Linear") {
      group.every_linear = true;
      continue;
    }
    SY_RETURN_IF_ERROR(group.targets.AddExactOrRegex(target, view.PathOf("targets")));
  }
  config.groups.push_back(std::move(group));
  return absl::OkStatus();
}

absl::Status ReadGroups(const JsonView& view, const std::string& format, QuantConfig& config) {
  SY_ASSIGN_OR_RETURN(const std::optional<JsonView> groups, view.Object("config_groups"));
  if (!groups.has_value() || groups->keys().empty()) {
    return BadConfig(view.PathOf("config_groups"), "it is missing or empty");
  }
  if (groups->keys().size() > kGroupsMax) {
    return BadConfig(groups->path(), absl::StrCat("it has more than ", kGroupsMax, " groups"));
  }
  for (const std::string& name : groups->keys()) {
    SY_ASSIGN_OR_RETURN(const std::optional<JsonView> group, groups->Object(name.c_str()));
    if (!group.has_value()) return BadConfig(groups->PathOf(name), "it is null; remove it");
    SY_RETURN_IF_ERROR(ReadGroup(*group, format, config));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadCompressedTensors(const QuantSources& sources, QuantConfig& config) {
  const JsonView& view = *sources.quantization_config;
  SY_RETURN_IF_ERROR(view.OnlyKeys(kKeys, DispatchKeyNames()));
  SY_RETURN_IF_ERROR(view.MustBeOff("transform_config", "transformed weights are not served"));
  SY_ASSIGN_OR_RETURN(const std::optional<JsonView> sparsity, view.Object("sparsity_config"));
  if (sparsity.has_value()) {
    std::string format = sparsity->keys().empty() ? "dense" : "";
    SY_RETURN_IF_ERROR(Optional(sparsity->String("format"), format));
    if (format != "dense") {
      return UnsupportedConfig(sparsity->path(), "sparse weights are not served");
    }
  }
  std::string format;
  SY_RETURN_IF_ERROR(Optional(view.String("format"), format));
  SY_RETURN_IF_ERROR(ReadGroups(view, format, config));
  std::vector<std::string> ignored;
  SY_RETURN_IF_ERROR(Optional(view.Strings("ignore"), ignored));
  for (const std::string& entry : ignored) {
    SY_RETURN_IF_ERROR(config.excluded.AddExactOrRegex(entry, view.PathOf("ignore")));
  }
  return ReadDispatchKeys(view, config.dispatch);
}

}  // namespace switchyard::internal
