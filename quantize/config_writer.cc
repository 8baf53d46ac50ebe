#include "quantize/config_writer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "core/base/status_macros.h"
#include "model/io/config_json.h"
#include "model/io/config_reader.h"
#include "model/quant/config/modelslim_description.h"

namespace switchyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kExperts[] = ".experts.";
constexpr std::size_t kExpertsLength = sizeof(kExperts) - 1;

std::string Print(const Json& json) {
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

// "model.layers.0.mlp.experts.7.gate_proj" to "model.layers.0.mlp.experts"; others are returned
// unchanged.
std::string ContainerOrModule(const std::string& module) {
  const std::size_t at = module.find(kExperts);
  return at == std::string::npos ? module : module.substr(0, at + kExpertsLength - 1);
}

std::string ParentOf(const std::string& module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string::npos ? "" : module.substr(0, dot);
}

// Engines fuse neighbors (q, k and v become qkv_proj) and look up the fused name, which a list of
// the parts does not contain. So where nothing below a module's parent is quantized, the parent is
// listed.
std::vector<std::string> Parents(const ConfigRequest& request, absl::string_view wildcard) {
  std::set<std::string> out;
  for (const std::string& module : ExcludedModules(request.tensors)) {
    const std::string parent = ParentOf(module);
    const bool holds_experts =
        parent.empty() || std::any_of(request.quantized.begin(), request.quantized.end(),
                                      [&](const std::string& container) {
                                        return absl::StartsWith(container, parent);
                                      });
    out.insert(holds_experts ? module : absl::StrCat(parent, wildcard));
  }
  return {out.begin(), out.end()};
}

Json Fp8Config(const ConfigRequest& request) {
  const ProjectionQuant& quant = request.scheme->gate_up;
  Json out{{"quant_method", "fp8"},
           {"fmt", "e4m3"},
           {"activation_scheme", quant.static_inputs ? "static" : "dynamic"}};
  if (quant.layout == QuantLayout::kFp8Block) out["weight_block_size"] = {128, 128};
  if (quant.power_of_two_scales) out["scale_fmt"] = "ue8m0";
  out["modules_to_not_convert"] = ExcludedModules(request.tensors);
  return out;
}

Json W4Afp8Config(const ConfigRequest& request) {
  return Json{{"quant_method", "w4afp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"moe_activation_scheme", "static"},
              {"weight_block_size", {128, 128}},
              {"group_size", request.scheme->gate_up.group_size},
              {"modules_to_not_convert", ExcludedModules(request.tensors)}};
}

Json AwqConfig(const ConfigRequest& request) {
  return Json{{"quant_method", "awq"},
              {"bits", 4},
              {"group_size", request.scheme->gate_up.group_size},
              {"zero_point", true},
              {"version", "gemm"},
              {"modules_to_not_convert", Parents(request, "")}};
}

struct Arguments {
  int bits;
  const char* type;
  const char* strategy;
  int group_size = 0;  // 0: null
};

Json ArgumentsJson(const Arguments& arguments, const Json& dynamic) {
  Json out{{"num_bits", arguments.bits},
           {"type", arguments.type},
           {"symmetric", true},
           {"strategy", arguments.strategy},
           {"dynamic", dynamic}};
  out["group_size"] = arguments.group_size == 0 ? Json(nullptr) : Json(arguments.group_size);
  return out;
}

enum class Dynamic : std::uint8_t { kNo, kYes, kLocal };

Json DynamicJson(Dynamic dynamic) {
  return dynamic == Dynamic::kLocal ? Json("local") : Json(dynamic == Dynamic::kYes);
}

// The words of compressed-tensors for one layout.
struct CompressedForm {
  QuantLayout layout;
  const char* format;
  Arguments weights;
  std::optional<Arguments> inputs;  // nullopt: rows stay as they are
  Dynamic dynamic_inputs = Dynamic::kYes;
};
constexpr std::array kCompressedForms{
    CompressedForm{QuantLayout::kFp8BlockCompressed,
                   "float-quantized",
                   {8, "float", "block"},
                   Arguments{8, "float", "group", 128}},
    CompressedForm{QuantLayout::kFp8Channel,
                   "float-quantized",
                   {8, "float", "channel"},
                   Arguments{8, "float", "token"}},
    CompressedForm{QuantLayout::kNvfp4Compressed,
                   "nvfp4-pack-quantized",
                   {4, "float", "tensor_group", 16},
                   Arguments{4, "float", "tensor_group", 16},
                   Dynamic::kLocal},
    CompressedForm{QuantLayout::kInt8Channel,
                   "int-quantized",
                   {8, "int", "channel"},
                   Arguments{8, "int", "token"}},
    CompressedForm{
        QuantLayout::kPackQuantized, "pack-quantized", {4, "int", "group", 32}, std::nullopt},
};

// `layout` is that of a scheme whose form is kCompressedTensors.
const CompressedForm& CompressedFormOf(QuantLayout layout) {
  return *std::find_if(kCompressedForms.begin(), kCompressedForms.end(),
                       [&](const CompressedForm& form) { return form.layout == layout; });
}

Json CompressedConfig(const ConfigRequest& request) {
  const ProjectionQuant& quant = request.scheme->gate_up;
  const CompressedForm& form = CompressedFormOf(quant.layout);
  Json group;
  group["targets"] = Json::array({"Linear"});
  group["weights"] = ArgumentsJson(form.weights, DynamicJson(Dynamic::kNo));
  if (quant.block[0] > 0) group["weights"]["block_structure"] = quant.block;
  group["input_activations"] =
      form.inputs ? ArgumentsJson(*form.inputs, DynamicJson(form.dynamic_inputs)) : Json(nullptr);
  group["output_activations"] = nullptr;
  Json out{{"quant_method", "compressed-tensors"},
           {"format", form.format},
           {"quantization_status", "compressed"}};
  out["config_groups"]["group_0"] = std::move(group);
  out["kv_cache_scheme"] = nullptr;
  out["ignore"] = ExcludedModules(request.tensors);
  return out;
}

Json ModelOptFlat(const ConfigRequest& request) {
  const Json arguments{{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  Json group;
  group["input_activations"] = arguments;
  group["weights"] = arguments;
  group["targets"] = Json::array({"Linear"});
  Json out{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  out["config_groups"]["group_0"] = std::move(group);
  out["ignore"] = Parents(request, "*");
  return out;
}

Json ModelOptFile(const ConfigRequest& request) {
  Json out;
  out["producer"]["name"] = "switchyard-quantize";
  out["quantization"] = {{"quant_algo", "NVFP4"},
                         {"kv_cache_quant_algo", nullptr},
                         {"group_size", 16},
                         {"exclude_modules", Parents(request, "*")}};
  return out;
}

// `layout` is that of a scheme whose form is kModelSlim.
const char* ModelSlimTypeOf(QuantLayout layout) {
  const auto* row = std::find_if(kModelSlimTypes.begin(), kModelSlimTypes.end(),
                                 [&](const ModelSlimType& type) { return type.layout == layout; });
  return row->name;
}

Json ModelSlimDescriptionOf(const ConfigRequest& request) {
  const ProjectionQuant& quant = request.scheme->gate_up;
  Json out{{"version", "1.0.0"}, {"model_quant_type", ModelSlimTypeOf(quant.layout)}};
  if (quant.layout == QuantLayout::kModelSlimW4A8) out["group_size"] = quant.group_size;
  for (const DescribedTensor& tensor : request.tensors) {
    const char* type =
        tensor.quantized ? ModelSlimTypeOf(request.scheme->of(tensor.projection).layout) : "FLOAT";
    // operator[] of an ordered_json would search all names for each new one; they are known to
    // differ.
    out.get_ref<Json::object_t&>().emplace_back(tensor.name, type);
  }
  return out;
}

// The value of quantization_config in config.json; null for forms with a file of their own.
Json QuantizationConfig(const ConfigRequest& request) {
  switch (request.scheme->form) {
    case QuantConfigForm::kFp8:
      return Fp8Config(request);
    case QuantConfigForm::kCompressedTensors:
      return CompressedConfig(request);
    case QuantConfigForm::kModelOptFlat:
      return ModelOptFlat(request);
    case QuantConfigForm::kW4Afp8:
      return W4Afp8Config(request);
    case QuantConfigForm::kAwq:
      return AwqConfig(request);
    case QuantConfigForm::kModelOptFile:
    case QuantConfigForm::kModelSlim:
      break;
  }
  return nullptr;
}

// `config` with "quantization_config" where its kind of model keeps it.
absl::StatusOr<std::string> WithQuantizationConfig(absl::string_view config, const Json& quant) {
  // The tree's reader bounds depth and size and refuses a key that occurs twice.
  const auto checked = internal::ParseJsonTree(config);
  if (!checked.ok() || !checked->is_object()) {
    return BadConfig("config.json",
                     checked.ok() ? "it is not a JSON object" : checked.status().message());
  }
  Json json = Json::parse(config.begin(), config.end(), nullptr, /*allow_exceptions=*/false);
  for (Json* part : {&json, json.contains("text_config") ? &json["text_config"] : &json}) {
    if (part->is_object() && part->contains("quantization_config")) {
      return BadConfig("quantization_config",
                       "the checkpoint is already quantized; quantize the "
                       "BF16 one that it was made from");
    }
  }
  if (quant.is_null()) return std::string(config);
  json["quantization_config"] = quant;
  return Print(json);
}

}  // namespace

std::vector<std::string> ExcludedModules(const std::vector<DescribedTensor>& tensors) {
  std::set<std::string> modules{"lm_head"};  // listed even when it is tied and has no tensor
  for (const DescribedTensor& tensor : tensors) {
    if (tensor.quantized || !tensor.is_matrix) continue;
    modules.insert(ContainerOrModule(std::string(absl::StripSuffix(tensor.name, ".weight"))));
  }
  return {modules.begin(), modules.end()};
}

absl::StatusOr<std::vector<ConfigFile>> WriteQuantConfig(const ConfigRequest& request) {
  SY_ASSIGN_OR_RETURN(std::string config,
                      WithQuantizationConfig(request.config_json, QuantizationConfig(request)));
  std::vector<ConfigFile> files;
  files.push_back({"config.json", std::move(config)});
  if (request.scheme->form == QuantConfigForm::kModelOptFile) {
    files.push_back({"hf_quant_config.json", Print(ModelOptFile(request))});
  }
  if (request.scheme->form == QuantConfigForm::kModelSlim) {
    files.push_back({"quant_model_description.json", Print(ModelSlimDescriptionOf(request))});
  }
  return files;
}

}  // namespace switchyard
