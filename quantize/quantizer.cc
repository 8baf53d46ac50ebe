#include "quantize/quantizer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "core/format/calc_diff.h"
#include "model/experts/expert_names.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/quant/config/quant_files.h"
#include "model/quant/layout/dequantize.h"
#include "quantize/calibration.h"
#include "quantize/checkpoint_plan.h"
#include "quantize/encode.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCopyBytes = std::size_t{8} << 20U;
constexpr std::uint64_t kTextBytesMax = std::uint64_t{256} << 20U;

absl::Status NeedsCalibration(const WriteScheme& scheme) {
  // The alternative has the same size, so that the advice is one that the user can take.
  const char* other = scheme.weight_bits() == 8 ? "fp8_tensor" : "compressed_tensors_int4";
  return BadOption(
      "calibrate",
      absl::StrCat("scheme ", scheme.name,
                   " stores a scale of the experts' inputs, which the weights do not contain. Run "
                   "'switchyard-quantize --scheme ",
                   scheme.name,
                   " --calibrate FILE ...' with the recorded magnitudes of the inputs ('--help' "
                   "shows the file's form), or '--scheme ",
                   other, "', which needs none"));
}

// One run. Nothing is written before Prepare has checked everything that can be checked, because a
// large checkpoint takes hours and a refusal at its end would waste them.
class Run {
 public:
  Run(const QuantizeOptions& options, const QuantizeObserver& observer)
      : options_(options), observer_(observer) {}

  absl::StatusOr<QuantizeSummary> Do() {
    SY_RETURN_IF_ERROR(Prepare());
    for (const std::string& name : plan_.copied) SY_RETURN_IF_ERROR(Copy(name));
    for (const PlannedLayer& layer : plan_.layers) {
      summary_.warnings.insert(summary_.warnings.end(), amax_[layer.layer].warnings.begin(),
                               amax_[layer.layer].warnings.end());
      (layer.quantized ? summary_.quantized_layers : summary_.bf16_layers).push_back(layer.layer);
      if (layer.quantized) SY_RETURN_IF_ERROR(QuantizeLayer(layer));
    }
    SY_RETURN_IF_ERROR(writer_->Finish());
    SY_RETURN_IF_ERROR(WriteTexts());
    // The folder gets its name only after it was read back: a name means a complete checkpoint.
    SY_RETURN_IF_ERROR(ReadBack());
    SY_RETURN_IF_ERROR(folder_->Commit());
    return Summary();
  }

 private:
  // Everything that can be refused without writing.
  absl::Status Prepare() {
    std::error_code error;
    // By file and not by name: a link or "./" would hide that both are the same.
    if (fs::equivalent(options_.in, options_.out, error)) {
      return BadOption("out", "it is also the folder of --in; choose another");
    }
    // Before the checkpoint is opened, which takes long on network storage.
    if (options_.scheme->needs_calibration() && !options_.calibration.has_value()) {
      return NeedsCalibration(*options_.scheme);
    }
    SY_ASSIGN_OR_RETURN(CheckpointTensors tensors, CheckpointTensors::Open(options_.in));
    tensors_ = std::make_unique<CheckpointTensors>(std::move(tensors));
    SY_RETURN_IF_ERROR(ReadConfig());
    SY_ASSIGN_OR_RETURN(plan_, PlanCheckpoint(*tensors_, config_json_,
                                              {.scheme = options_.scheme,
                                               .exclude = options_.exclude,
                                               .keep_bf16_layers = options_.keep_bf16_layers}));
    // Before the folder is created: a missing layer in the file must leave no trace.
    SY_RETURN_IF_ERROR(Calibrate());
    SY_ASSIGN_OR_RETURN(configs_, WriteQuantConfig({.scheme = options_.scheme,
                                                    .config_json = config_json_,
                                                    .tensors = plan_.described,
                                                    .quantized = plan_.QuantizedContainers()}));
    SY_ASSIGN_OR_RETURN(folder_, OutputFolder::Create(options_.out, options_.force));
    SY_ASSIGN_OR_RETURN(
        writer_, SafetensorsWriter::Create(folder_.get(), plan_.tensors, options_.shard_bytes));
    progress_.tensors_all = plan_.tensors.size();
    progress_.bytes_all = plan_.bytes_after;
    return absl::OkStatus();
  }

  // Quantizing twice would round the rounded weights again.
  absl::Status ReadConfig() {
    SY_ASSIGN_OR_RETURN(const QuantConfig config, LoadQuantConfig(*tensors_));
    if (config.family != "none") {
      return BadOption("in", absl::StrCat(options_.in, " is quantized already (", config.family,
                                          "); quantize the BF16 checkpoint that it was made from"));
    }
    SY_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                        tensors_->ReadText("config.json", kTextBytesMax));
    config_json_ = text.value_or("");
    return absl::OkStatus();
  }

  absl::Status Calibrate() {
    if (!options_.scheme->needs_calibration()) return absl::OkStatus();
    for (const PlannedLayer& layer : plan_.layers) {
      if (!layer.quantized) continue;
      SY_ASSIGN_OR_RETURN(amax_[layer.layer],
                          InputAmaxOf(*options_.calibration, layer.layer, layer.shape.experts));
      SY_RETURN_IF_ERROR(CheckScales(layer));
    }
    return absl::OkStatus();
  }

  // Checks that every magnitude gives a scale that the layout can store.
  absl::Status CheckScales(const PlannedLayer& layer) {
    for (std::int32_t expert = 0; expert < layer.shape.experts; ++expert) {
      for (const Projection projection : kAllProjections) {
        const absl::Status usable = CheckInputAmax(options_.scheme->of(projection),
                                                   amax_[layer.layer].of(expert, projection),
                                                   layer.to.Name(expert, projection));
        if (!usable.ok()) return Annotate(usable, "--calibrate");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Wrote() {
    ++progress_.tensors;
    // An error of the observer ends the run: that is how an interrupt arrives.
    return observer_ == nullptr ? absl::OkStatus() : observer_(progress_);
  }

  // In pieces, because one embedding of a large model has gigabytes.
  absl::Status Copy(const std::string& name) {
    const std::uint64_t bytes = tensors_->Find(name)->bytes;
    std::vector<std::byte> piece;
    for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
      piece.resize(std::min<std::uint64_t>(kCopyBytes, bytes - at));
      SY_RETURN_IF_ERROR(tensors_->ReadRange(name, at, piece));
      SY_RETURN_IF_ERROR(writer_->Write(name, piece));
      progress_.bytes += piece.size();
    }
    return Wrote();
  }

  // One expert is in memory at a time; layers of large models have hundreds.
  absl::Status QuantizeLayer(const PlannedLayer& layer) {
    const LayerExperts experts(*tensors_, layer.from, LayerQuant{}, layer.shape);
    for (std::int32_t expert = 0; expert < layer.shape.experts; ++expert) {
      // Loading checks every value, so a NaN is refused here and not encoded.
      SY_ASSIGN_OR_RETURN(const RawExpert raw, experts.Load(expert));
      std::array<std::vector<float>, 3> weights;
      std::array<float, 3> amax{};
      for (const Projection projection : kAllProjections) {
        const auto p = static_cast<std::size_t>(projection);
        weights[p] = FloatsOf(*raw.of(projection).Find(TensorRole::kWeight));
        amax[p] = AmaxOf(weights[p]);
      }
      amax[0] = amax[1] = std::max(amax[0], amax[1]);  // kernels compute the two together
      for (const Projection projection : kAllProjections) {
        const auto p = static_cast<std::size_t>(projection);
        SY_RETURN_IF_ERROR(QuantizeOne(layer, expert, projection, weights[p], amax[p]));
      }
      ++summary_.experts;
    }
    return absl::OkStatus();
  }

  absl::Status QuantizeOne(const PlannedLayer& layer, std::int32_t expert, Projection projection,
                           const std::vector<float>& weights, float amax) {
    const LayerSizes sizes{layer.shape.hidden, layer.shape.intermediate};
    const ProjectionQuant& quant = options_.scheme->of(projection);
    const std::string module = layer.to.Name(expert, projection);
    const bool calibrated = options_.scheme->needs_calibration();
    SY_ASSIGN_OR_RETURN(
        const RawProjection encoded,
        Encode({.quant = quant,
                .projection = projection,
                .size = sizes.of(projection),
                .weights = weights,
                .module = module,
                .global_amax = amax,
                .input_amax = calibrated ? amax_[layer.layer].of(expert, projection) : 0}));
    // Measured on the encoded tensors as readers decode them, so it covers the encoder too.
    double& worst = summary_.diff_max[static_cast<std::size_t>(projection)];
    worst = std::max(worst, CalcDiff(weights, Dequantize(encoded)));
    for (const RawTensor& tensor : encoded.tensors) {
      const std::string suffix = SuffixOf(quant, projection, tensor.role);
      SY_RETURN_IF_ERROR(writer_->Write(absl::StrCat(module, ".", suffix), tensor.bytes));
      progress_.bytes += tensor.bytes.size();
      SY_RETURN_IF_ERROR(Wrote());
    }
    return absl::OkStatus();
  }

  absl::Status WriteTexts() {
    for (const ConfigFile& file : configs_) {
      SY_RETURN_IF_ERROR(folder_->WriteFile(file.name, file.text));
      summary_.files.push_back(file.name);
    }
    for (const char* name : kTokenizerFiles) {
      SY_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                          tensors_->ReadText(name, kTextBytesMax));
      // No checkpoint has all of these files.
      if (!text.has_value()) continue;
      SY_RETURN_IF_ERROR(folder_->WriteFile(name, *text));
      summary_.files.emplace_back(name);
    }
    return absl::OkStatus();
  }

  // Reads the new folder with the readers that workers use. A mistake of the writers is found here,
  // and not by an engine that computes with wrong weights.
  absl::Status ReadBack() {
    SY_ASSIGN_OR_RETURN(const CheckpointTensors tensors,
                        CheckpointTensors::Open(folder_->partial()));
    SY_ASSIGN_OR_RETURN(const QuantConfig config, LoadQuantConfig(tensors));
    for (const PlannedLayer& layer : plan_.layers) {
      SY_ASSIGN_OR_RETURN(const ExpertModules modules,
                          FindExpertModules(tensors, {.model_type = plan_.model_type,
                                                      .layer = layer.layer,
                                                      .experts = layer.shape.experts}));
      SY_ASSIGN_OR_RETURN(const LayerQuant quant, ResolveLayerQuant(config, modules));
      for (const Projection projection : kAllProjections) {
        const ProjectionQuant wanted =
            layer.quantized ? options_.scheme->of(projection) : ProjectionQuant{};
        if (quant.of(projection) == wanted) continue;
        return MakeError(
            absl::StatusCode::kInternal, Reason::kInternal,
            absl::StrCat(modules.Name(0, projection), " reads back as layout ",
                         QuantLayoutInfoOf(quant.of(projection).layout).name, " (", quant.why,
                         "), which is not the layout that was written; report this"));
      }
      SY_RETURN_IF_ERROR(LayerExperts(tensors, modules, quant, layer.shape).Check());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<QuantizeSummary> Summary() {
    summary_.scheme = options_.scheme;
    summary_.out = options_.out;
    summary_.tensors = plan_.tensors.size();
    summary_.bytes_before = plan_.bytes_before;
    summary_.bytes_after = plan_.bytes_after;
    for (const std::string& name : writer_->files()) summary_.files.push_back(name);
    // The index exists only with several shards.
    if (writer_->files().size() > 1) summary_.files.emplace_back("model.safetensors.index.json");
    std::sort(summary_.files.begin(), summary_.files.end());
    summary_.left_out = LeftOut();
    return std::move(summary_);
  }

  // The files of `in` that were neither copied nor replaced by new ones.
  [[nodiscard]] std::vector<std::string> LeftOut() const {
    std::set<std::string> carried(summary_.files.begin(), summary_.files.end());
    carried.insert("model.safetensors.index.json");
    for (const std::string& tensor : tensors_->names()) {
      carried.insert(fs::path(tensors_->FileOf(tensor)).filename().string());
    }
    std::vector<std::string> left;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(options_.in, error)) {
      const std::string name = entry.path().filename().string();
      if (!carried.contains(name)) left.push_back(name);
    }
    std::sort(left.begin(), left.end());
    return left;
  }

  const QuantizeOptions& options_;
  const QuantizeObserver& observer_;
  std::unique_ptr<CheckpointTensors> tensors_;
  std::string config_json_;
  CheckpointPlan plan_;
  std::map<std::int32_t, LayerInputAmax> amax_;  // by layer; of static scales
  std::vector<ConfigFile> configs_;
  std::unique_ptr<OutputFolder> folder_;
  std::unique_ptr<SafetensorsWriter> writer_;
  QuantizeProgress progress_;
  QuantizeSummary summary_;
};

}  // namespace

absl::StatusOr<QuantizeSummary> Quantize(const QuantizeOptions& options,
                                         const QuantizeObserver& observer) {
  return Run(options, observer).Do();
}

}  // namespace switchyard
