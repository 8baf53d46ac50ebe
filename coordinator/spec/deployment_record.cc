#include "coordinator/spec/deployment_record.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "core/base/canonical_io.h"
#include "core/base/error.h"

namespace switchyard {
namespace {

// Format 1 has no wire dtypes. Format 2 has neither the coordinator's defaults nor the layers'
// storage, and writes "auto" for an unset dtype. Format 3 has no grant key, format 4 no time for
// which a former model is kept, format 5 no mark of a deletion, format 6 neither a revision nor
// whether a deletion waits. All are read and no longer written.
constexpr std::uint32_t kRecordFormat = 8;
constexpr auto kLastChoice = DtypeChoice::kNvfp4;
constexpr std::uint8_t kUnset = 255;  // stands for an enumerator that is not set

// An enumerator or none. The Walk functions serve writer and reader alike, so that the two cannot
// disagree about the order of fields; a reader's object is not const.
template <typename Io, typename Optional>
void WalkOptional(Io& io, Optional& optional) {
  std::uint8_t value = optional ? static_cast<std::uint8_t>(*optional) : kUnset;
  io.Int(value);
  if constexpr (!std::is_const_v<Optional>) {
    using Enum = typename Optional::value_type;
    if (value != kUnset) optional = static_cast<Enum>(value);
  }
}

// Read by way of a byte: a bool with any other value than 0 and 1 would be undefined behavior.
template <typename Io, typename Bool>
void WalkBool(Io& io, Bool& flag) {
  std::uint8_t value = flag ? 1 : 0;
  io.Int(value);
  if constexpr (!std::is_const_v<Bool>) flag = value != 0;
}

template <typename Io, typename SpecT>
void WalkDtypes(Io& io, SpecT& spec) {
  WalkOptional(io, spec.dispatcher_output_dtype);
  io.ForEach(spec.phases, [&io](auto& phase) { WalkOptional(io, phase.dispatcher_output_dtype); });
  io.ForEach(spec.layers, [&io](auto& layer) {
    io.Int(layer.layer.value);
    WalkOptional(io, layer.phase);
    io.Int(layer.dispatcher_output_dtype);
  });
}

template <typename Io, typename DefaultsT>
void WalkDefaults(Io& io, DefaultsT& defaults) {
  io.Int(defaults.dispatcher_output_dtype);
  io.String(defaults.bf16_dispatch_flag);
  io.String(defaults.npu_normal_int8_flag);
}

// As a number of nanoseconds, which does not depend on the library's type.
template <typename Io, typename DurationT>
void WalkDuration(Io& io, DurationT& duration) {
  std::int64_t nanoseconds = duration.count();
  io.Int(nanoseconds);
  if constexpr (!std::is_const_v<DurationT>) duration = Duration(nanoseconds);
}

template <typename Io, typename SpecT>
void WalkPools(Io& io, SpecT& spec) {
  io.ForEach(spec.pools, [&io](auto& pool) { io.String(pool); });
}

template <typename Io, typename RecordT>
void WalkSpec(Io& io, RecordT& record) {
  auto& spec = record.spec;
  io.String(spec.name);
  io.String(spec.model);
  io.String(spec.checkpoint);
  io.ForEach(spec.phases, [&io](auto& phase) {
    io.Int(phase.phase);
    WalkOptional(io, phase.mode);
  });
  io.Int(spec.min_workers);
  WalkDuration(io, spec.join_timeout);
  io.Int(spec.max_tokens_per_step);
}

template <typename Io, typename RecordT>
void WalkFacts(Io& io, RecordT& record) {
  auto& facts = record.facts;
  io.Int(facts.shape.hidden);
  io.Int(facts.shape.intermediate);
  io.Int(facts.shape.experts);
  io.Int(facts.shape.top_k);
  // Kept in its place for formats 1 and 2, which knew one scheme for all layers, and only this one.
  QuantScheme of_all = QuantScheme::kNone;
  io.Int(of_all);
  io.ForEach(facts.layers, [&io](auto& layer) { io.Int(layer.value); });
  io.ForEach(facts.manifest.tensors, [&io](auto& tensor) {
    io.Int(tensor.layer.value);
    io.Int(tensor.expert.value);
    io.Int(tensor.projection);
    io.Raw(tensor.sha256.bytes);
  });
}

// 0 stands for "no scale" in the stored form, which has no optional numbers.
template <typename Io, typename ConfigT>
void WalkQuantConfig(Io& io, ConfigT& config) {
  float scale = config.input_global_scale.value_or(0);
  io.Float(scale);
  WalkBool(io, config.global_scale_is_null);
  WalkOptional(io, config.dispatcher_output_dtype);
  WalkBool(io, config.bf16_dispatch);
  if constexpr (!std::is_const_v<ConfigT>) {
    if (scale != 0) config.input_global_scale = scale;  // No checkpoint's scale is 0.
  }
}

// One entry for each layer, in the order of facts.layers; the reader checks that the counts agree.
template <typename Io, typename FactsT>
void WalkStorage(Io& io, FactsT& facts) {
  io.ForEach(facts.storage, [&io](auto& layer) {
    io.Int(layer.scheme);
    io.Int(layer.role);
    WalkBool(io, layer.excluded);
    WalkBool(io, layer.power_of_two_scales);
    bool has_config = layer.quant_config.has_value();
    WalkBool(io, has_config);
    if constexpr (!std::is_const_v<FactsT>) {
      if (has_config) layer.quant_config.emplace();
    }
    if (has_config) WalkQuantConfig(io, *layer.quant_config);
    io.String(layer.why);
  });
}

// Damaged bytes must not become enumerators that no switch knows.
bool EnumsInRange(const DeploymentRecord& record) {
  const DeploymentSpec& spec = record.spec;
  const auto in_range = [](const LayerStorage& layer) {
    return layer.scheme <= kLastQuantScheme && layer.role <= LayerRole::kDraft &&
           (!layer.quant_config || layer.quant_config->dispatcher_output_dtype.value_or(
                                       DispatchDtype::kBf16) <= DispatchDtype::kNvfp4);
  };
  return std::all_of(record.facts.storage.begin(), record.facts.storage.end(), in_range) &&
         spec.dispatcher_output_dtype.value_or(kLastChoice) <= kLastChoice &&
         spec.coordinator_defaults.dispatcher_output_dtype <= kLastChoice &&
         spec.moe_runner_backend <= RunnerBackend::kHumming &&
         std::all_of(spec.phases.begin(), spec.phases.end(),
                     [](const PhaseSpec& phase) {
                       return phase.phase <= Phase::kMixed &&
                              (!phase.mode || *phase.mode <= DispatchMode::kLowLatency) &&
                              phase.dispatcher_output_dtype.value_or(kLastChoice) <= kLastChoice;
                     }) &&
         std::all_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
           return layer.phase.value_or(Phase::kMixed) <= Phase::kMixed &&
                  layer.dispatcher_output_dtype <= kLastChoice;
         });
}

}  // namespace

std::string CanonicalBytes(const DeploymentRecord& record) {
  // New fields are appended: a reader of an older format stops where that format ends.
  CanonicalWriter writer;
  writer.Int(kRecordFormat);
  WalkSpec(writer, record);
  WalkFacts(writer, record);
  WalkDtypes(writer, record.spec);
  WalkDefaults(writer, record.spec.coordinator_defaults);
  WalkStorage(writer, record.facts);
  writer.Int(record.spec.moe_runner_backend);
  writer.Raw(record.grant_key.bytes);
  WalkDuration(writer, record.spec.former_model_kept);
  WalkBool(writer, record.deleting);
  WalkBool(writer, record.deleting_at_once);
  writer.Int(record.revision);
  WalkPools(writer, record.spec);
  return writer.Take();
}

absl::StatusOr<DeploymentRecord> ParseDeploymentRecord(absl::string_view bytes) {
  CanonicalReader reader(bytes);
  std::uint32_t format = 0;
  reader.Int(format);
  DeploymentRecord record;
  WalkSpec(reader, record);
  WalkFacts(reader, record);
  // WalkDtypes writes the phases' count again. If it differs, the bytes are damaged.
  const std::size_t phases = record.spec.phases.size();
  if (format >= 2) WalkDtypes(reader, record.spec);
  if (format >= 3) {
    WalkDefaults(reader, record.spec.coordinator_defaults);
    WalkStorage(reader, record.facts);
    reader.Int(record.spec.moe_runner_backend);
  } else {
    record.facts.storage.resize(record.facts.layers.size());  // All unquantized.
  }
  if (format >= 4) reader.Raw(record.grant_key.bytes);
  if (format >= 5) WalkDuration(reader, record.spec.former_model_kept);
  if (format >= 6) WalkBool(reader, record.deleting);
  if (format >= 7) {
    WalkBool(reader, record.deleting_at_once);
    reader.Int(record.revision);
  }
  if (format >= 8) WalkPools(reader, record.spec);
  // Otherwise it would override the coordinator's default, which it never meant to do.
  if (format == 2 && record.spec.dispatcher_output_dtype == DtypeChoice::kAuto) {
    record.spec.dispatcher_output_dtype.reset();
  }
  // A later version may have written it: its fields are unknown, so that nothing is guessed.
  const bool known = format >= 1 && format <= kRecordFormat &&
                     record.spec.phases.size() == phases &&
                     record.facts.storage.size() == record.facts.layers.size();
  // A record is used only as a whole: a damaged field could deploy something that was never
  // applied.
  if (!known || !reader.ok() || !EnumsInRange(record)) {
    return MakeError(absl::StatusCode::kDataLoss, Reason::kStoreWrite,
                     "a stored deployment is damaged, or a later version wrote it; restore the "
                     "store from a copy or start with an empty one");
  }
  return record;
}

}  // namespace switchyard
