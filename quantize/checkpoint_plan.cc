#include "quantize/checkpoint_plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/experts/expert_names.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/quant/config/name_patterns.h"
#include "model/quant/layout/expected_tensors.h"
#include "quantize/encode.h"

namespace switchyard {
namespace {

using Kind = CheckpointErrorKind;

constexpr std::int64_t kCountMax = 1'000'000;

// The sizes that every family's config.json has, under one of several names.
struct ModelSizes {
  std::string model_type;
  std::int32_t layers = 0;
  std::int32_t experts = 0;
};

absl::StatusOr<ModelSizes> ReadSizes(const std::string& config_json) {
  SY_ASSIGN_OR_RETURN(const ConfigReader config, ConfigReader::Parse(config_json));
  ModelSizes sizes;
  SY_RETURN_IF_ERROR(Require(config.String({"model_type"}), "model_type", sizes.model_type));
  SY_RETURN_IF_ERROR(
      Require(config.Int({"num_hidden_layers", "text_config.num_hidden_layers"}, {1, kCountMax}),
              "num_hidden_layers", sizes.layers));
  SY_RETURN_IF_ERROR(Require(
      config.Int({"num_experts", "num_local_experts", "n_routed_experts", "text_config.num_experts",
                  "text_config.num_local_experts", "text_config.n_routed_experts"},
                 {1, kCountMax}),
      "num_experts", sizes.experts));
  return sizes;
}

absl::Status WrongTensor(Kind kind, const CheckpointTensors& tensors, const std::string& name,
                         absl::string_view what) {
  return MakeCheckpointError(
      kind, {.file = tensors.FileOf(name), .tensor = name, .offset = std::nullopt}, what);
}

// Takes a layer's sizes from gate's tensor; LayerExperts::Check compares all others with them.
absl::StatusOr<MoeShape> ShapeFrom(const CheckpointTensors& tensors, const ExpertModules& modules) {
  const std::string gate = modules.Name(0, Projection::kGate);
  const std::string name = modules.packed ? gate : absl::StrCat(gate, ".weight");
  const TensorInfo* tensor = tensors.Find(name);
  // A container with other tensors: the experts are stored in a quantized layout.
  if (tensor == nullptr) {
    return WrongTensor(Kind::kTensorNotFound, tensors, name,
                       "experts have no such tensor; only BF16 checkpoints can be quantized");
  }
  const std::size_t rank = modules.packed ? 3 : 2;
  if (tensor->shape.size() != rank) {
    return WrongTensor(Kind::kWrongShape, tensors, name,
                       absl::StrCat("it has ", tensor->shape.size(), " dimensions, not ", rank));
  }
  // A packed tensor holds gate and up together.
  const std::int64_t rows = tensor->shape[rank - 2] / (modules.packed ? 2 : 1);
  const std::int64_t columns = tensor->shape[rank - 1];
  // Keeps the products of sizes within 64 bits.
  constexpr std::int64_t kSizeMax = std::int64_t{1} << 24;
  if (rows < 1 || columns < 1 || rows > kSizeMax || columns > kSizeMax) {
    return WrongTensor(Kind::kWrongShape, tensors, name,
                       "its dimensions are not those of an expert");
  }
  return MoeShape{.hidden = static_cast<std::int32_t>(columns),
                  .intermediate = static_cast<std::int32_t>(rows),
                  .experts = modules.experts};
}

bool IsOf(const ExpertNameMap& map, const std::string& model_type) {
  return std::any_of(map.model_types.begin(), map.model_types.end(),
                     [&](const char* type) { return type != nullptr && model_type == type; });
}

// A layer without experts that has a router lacks them: the checkpoint is incomplete, and copying
// it as a dense layer would hide that.
bool HasRouter(const CheckpointTensors& tensors, const std::string& model_type,
               std::int32_t layer) {
  const auto maps = ExpertNameMaps();
  return std::any_of(maps.begin(), maps.end(), [&](const ExpertNameMap& map) {
    if (!IsOf(map, model_type)) return false;
    const std::string container =
        absl::StrReplaceAll(map.container, {{"{layer}", absl::StrCat(layer)}});
    return tensors.HasPrefix(absl::StrCat(container.substr(0, container.rfind('.')), ".gate."));
  });
}

// The same experts with one tensor each.
absl::StatusOr<ExpertModules> Unpacked(const ExpertModules& from, const std::string& model_type) {
  if (!from.packed) return from;
  for (const ExpertNameMap& map : ExpertNameMaps()) {
    // "model.layers.{layer}.mlp.experts": the part behind the number distinguishes the families.
    const std::string container(map.container);
    const std::size_t at = container.find("{layer}");
    const bool same = absl::StartsWith(from.container, container.substr(0, at)) &&
                      absl::EndsWith(from.container, container.substr(at + 7));
    if (!IsOf(map, model_type) || map.packed || !same) continue;
    ExpertModules to = from;
    to.packed = false;
    std::copy(map.projections.begin(), map.projections.end(), to.projections.begin());
    return to;
  }
  return MakeError(
      absl::StatusCode::kUnimplemented, Reason::kUnsupported,
      absl::StrCat(from.container, ": packed experts of '", model_type,
                   "' have no names for single experts, under which quantized ones are stored"),
      {{"key", "model_type"}});
}

// Names of the tensors that hold the experts of `modules` in BF16.
std::set<std::string> TensorsOf(const ExpertModules& modules) {
  std::set<std::string> names;
  for (std::int32_t expert = 0; expert < (modules.packed ? 1 : modules.experts); ++expert) {
    for (const Projection projection : kAllProjections) {
      const std::string module = modules.Name(expert, projection);
      names.insert(modules.packed ? module : absl::StrCat(module, ".weight"));
    }
  }
  return names;
}

// Builds one plan.
class Planner {
 public:
  Planner(const CheckpointTensors& tensors, const PlanRequest& request)
      : tensors_(tensors), request_(request), names_(tensors.names()) {}

  absl::StatusOr<CheckpointPlan> Run(const std::string& config_json) {
    SY_ASSIGN_OR_RETURN(const ModelSizes sizes, ReadSizes(config_json));
    plan_.scheme = request_.scheme;
    plan_.model_type = sizes.model_type;
    SY_RETURN_IF_ERROR(FindLayers(sizes));
    SY_RETURN_IF_ERROR(Choose());
    for (const PlannedLayer& layer : plan_.layers) SY_RETURN_IF_ERROR(CheckLayer(layer));
    SY_RETURN_IF_ERROR(AddCopied());
    for (const PlannedLayer& layer : plan_.layers) {
      if (layer.quantized) SY_RETURN_IF_ERROR(AddQuantized(layer));
    }
    return std::move(plan_);
  }

 private:
  absl::Status FindLayers(const ModelSizes& sizes) {
    std::optional<absl::Status> none;
    for (std::int32_t layer = 0; layer < sizes.layers; ++layer) {
      auto modules = FindExpertModules(
          tensors_, {.model_type = sizes.model_type, .layer = layer, .experts = sizes.experts});
      // A model may have dense layers; any other error is one of the checkpoint.
      const bool dense = absl::IsNotFound(modules.status());
      if (dense && !HasRouter(tensors_, sizes.model_type, layer)) {
        none = modules.status();
        continue;
      }
      if (!modules.ok()) return modules.status();
      PlannedLayer planned{layer, *std::move(modules), {}, {}, true};
      SY_ASSIGN_OR_RETURN(planned.shape, ShapeFrom(tensors_, planned.from));
      planned.to = planned.from;
      plan_.layers.push_back(std::move(planned));
    }
    return plan_.layers.empty() ? *none : absl::OkStatus();
  }

  absl::Status Choose() {
    for (const std::int32_t kept : request_.keep_bf16_layers) {
      const auto layer = std::find_if(plan_.layers.begin(), plan_.layers.end(),
                                      [&](const PlannedLayer& one) { return one.layer == kept; });
      if (layer == plan_.layers.end()) {
        return BadOption("keep-bf16-layers", absl::StrCat("the model has no MoE layer ", kept));
      }
      layer->quantized = false;
    }
    for (const std::string& pattern : request_.exclude) SY_RETURN_IF_ERROR(Exclude(pattern));
    for (PlannedLayer& layer : plan_.layers) {
      if (!layer.quantized) continue;
      SY_ASSIGN_OR_RETURN(layer.to, Unpacked(layer.from, plan_.model_type));
    }
    if (std::any_of(plan_.layers.begin(), plan_.layers.end(),
                    [](const PlannedLayer& layer) { return layer.quantized; })) {
      return absl::OkStatus();
    }
    return NothingLeft();
  }

  // The error names the options that the caller used.
  [[nodiscard]] absl::Status NothingLeft() const {
    const bool kept = !request_.keep_bf16_layers.empty();
    const bool both = kept && !request_.exclude.empty();
    return BadOption(kept ? "keep-bf16-layers" : "exclude",
                     absl::StrCat(both ? "with --exclude, " : "",
                                  "every MoE layer would stay in BF16, so nothing is left to "
                                  "quantize; name fewer"));
  }

  absl::Status Exclude(const std::string& pattern) {
    const std::string key = absl::StrCat("exclude ", PrintableName(pattern));
    NamePatterns patterns;
    SY_RETURN_IF_ERROR(absl::StartsWith(pattern, "re:") ? patterns.AddExactOrRegex(pattern, key)
                                                        : patterns.AddGlob(pattern, key));
    // A pattern that names nothing is mostly a typing error, so it is refused.
    bool any = std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
      return !patterns.Match(name).empty() ||
             !patterns.Match(name.substr(0, name.rfind('.'))).empty();
    });
    for (PlannedLayer& layer : plan_.layers) {
      SY_ASSIGN_OR_RETURN(const bool matches, NamesAllOf(patterns, layer.from, key));
      if (matches) layer.quantized = false;
      any = any || matches;
    }
    return any ? absl::OkStatus() : BadOption(key, "no module of the checkpoint has such a name");
  }

  // True when the patterns name all experts of a layer. Experts of one layer are stored alike, so
  // naming only some of them is an error.
  static absl::StatusOr<bool> NamesAllOf(const NamePatterns& patterns, const ExpertModules& modules,
                                         const std::string& key) {
    if (!patterns.Match(modules.container).empty()) return true;
    std::int64_t named = 0;
    std::int64_t all = 0;
    std::string left;
    for (std::int32_t expert = 0; expert < modules.experts; ++expert) {
      const bool whole =
          !modules.packed && !patterns.Match(absl::StrCat(modules.container, ".", expert)).empty();
      for (const Projection projection : kAllProjections) {
        const std::string module = modules.Name(expert, projection);
        const bool match = whole || !patterns.Match(module).empty();
        named += match ? 1 : 0;
        ++all;
        if (!match) left = module;
      }
    }
    if (named == 0 || named == all) return named == all;
    return BadOption(key, absl::StrCat("it names ", named, " of ", all, " modules of ",
                                       modules.container, " and not '", left,
                                       "'; the experts of a layer are stored alike, so name '",
                                       modules.container, "' to keep it in BF16"));
  }

  absl::Status CheckLayer(const PlannedLayer& layer) {
    if (!layer.quantized) return absl::OkStatus();
    SY_RETURN_IF_ERROR(LayerExperts(tensors_, layer.from, LayerQuant{}, layer.shape).Check());
    const std::set<std::string> known = TensorsOf(layer.from);
    const std::string prefix = absl::StrCat(layer.from.container, ".");
    for (auto name = std::lower_bound(names_.begin(), names_.end(), prefix);
         name != names_.end() && absl::StartsWith(*name, prefix); ++name) {
      if (known.contains(*name)) continue;
      return WrongTensor(Kind::kUnexpectedTensor, tensors_, *name,
                         "it belongs to the experts but is not one of their weights, and no quant "
                         "layout can store it; keep this layer in BF16");
    }
    // These are not copied: their quantized forms take their places.
    replaced_.insert(known.begin(), known.end());
    const LayerSizes sizes{layer.shape.hidden, layer.shape.intermediate};
    for (const Projection projection : kAllProjections) {
      SY_RETURN_IF_ERROR(
          CheckSizes(*plan_.scheme, projection, sizes, layer.to.Name(0, projection)));
    }
    return absl::OkStatus();
  }

  absl::Status Add(PlannedTensor tensor, DescribedTensor described) {
    SY_ASSIGN_OR_RETURN(const std::uint64_t bytes, BytesOf(tensor));
    plan_.bytes_after += bytes;
    described.name = tensor.name;
    described.is_matrix = tensor.shape.size() > 1;
    plan_.tensors.push_back(std::move(tensor));
    plan_.described.push_back(std::move(described));
    return absl::OkStatus();
  }

  absl::Status AddCopied() {
    for (const std::string& name : names_) {
      const TensorInfo& tensor = *tensors_.Find(name);
      plan_.bytes_before += tensor.bytes;
      if (replaced_.contains(name)) continue;
      plan_.copied.push_back(name);
      SY_RETURN_IF_ERROR(Add({name, tensor.dtype, tensor.shape}, {}));
    }
    return absl::OkStatus();
  }

  // All experts of one shape have tensors of the same dtypes and shapes, so an expert of zeros is
  // encoded once and serves as their model.
  absl::Status MakeModels(const MoeShape& shape) {
    if (shape == model_shape_) return absl::OkStatus();
    const LayerSizes sizes{shape.hidden, shape.intermediate};
    const std::vector<float> zeros(static_cast<std::size_t>(shape.hidden) *
                                   static_cast<std::size_t>(shape.intermediate));
    for (const Projection projection : kAllProjections) {
      SY_ASSIGN_OR_RETURN(RawProjection model, Encode({.quant = plan_.scheme->of(projection),
                                                       .projection = projection,
                                                       .size = sizes.of(projection),
                                                       .weights = zeros,
                                                       .module = "zeros",
                                                       .input_amax = 1}));
      // Only dtypes and shapes are needed from now on.
      for (RawTensor& tensor : model.tensors) tensor.bytes.clear();
      models_[static_cast<std::size_t>(projection)] = std::move(model);
    }
    model_shape_ = shape;
    return absl::OkStatus();
  }

  absl::Status AddQuantized(const PlannedLayer& layer) {
    SY_RETURN_IF_ERROR(MakeModels(layer.shape));
    for (std::int32_t expert = 0; expert < layer.shape.experts; ++expert) {
      for (const Projection projection : kAllProjections) {
        const std::string module = layer.to.Name(expert, projection);
        for (const RawTensor& tensor : models_[static_cast<std::size_t>(projection)].tensors) {
          const std::string suffix =
              SuffixOf(plan_.scheme->of(projection), projection, tensor.role);
          SY_RETURN_IF_ERROR(Add({absl::StrCat(module, ".", suffix), tensor.dtype, tensor.shape},
                                 {.name = "", .quantized = true, .projection = projection}));
        }
      }
    }
    return absl::OkStatus();
  }

  const CheckpointTensors& tensors_;
  const PlanRequest& request_;
  const std::vector<std::string> names_;  // ascending
  std::set<std::string> replaced_;
  std::array<RawProjection, 3> models_;  // by Projection, of model_shape_
  MoeShape model_shape_;
  CheckpointPlan plan_;
};

}  // namespace

std::vector<std::string> CheckpointPlan::QuantizedContainers() const {
  std::vector<std::string> containers;
  for (const PlannedLayer& layer : layers) {
    if (layer.quantized) containers.push_back(layer.to.container);
  }
  return containers;
}

absl::StatusOr<CheckpointPlan> PlanCheckpoint(const CheckpointTensors& tensors,
                                              const std::string& config_json,
                                              const PlanRequest& request) {
  return Planner(tensors, request).Run(config_json);
}

std::string SuffixOf(const ProjectionQuant& quant, Projection projection, TensorRole role) {
  // Suffixes do not depend on sizes; these fit every layout.
  const auto expected = ExpectedTensors(quant, projection, {1 << 16, 1 << 16});
  for (const ExpectedTensor& tensor : *expected) {
    if (tensor.role == role) return tensor.suffix;
  }
  return "";
}

}  // namespace switchyard
