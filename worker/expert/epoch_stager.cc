#include "worker/expert/epoch_stager.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/parallel_each.h"
#include "core/base/status_macros.h"
#include "core/held_expert_bytes.h"
#include "worker/device/expert_view.h"

namespace switchyard {
namespace {

using PackedByKey = absl::flat_hash_map<ExpertKey, std::shared_ptr<const PackedExpert>>;

// Returns the bytes that one expert of the layer takes. Computed from the plan, so that a refusal
// for memory comes before the checkpoint is opened.
std::int64_t ExpertBytesIn(const Plan& plan, LayerId layer) {
  QuantScheme scheme = QuantScheme::kNone;
  for (const DispatchConfig& config : plan.configs) {
    if (config.layer == layer) scheme = config.scheme;
  }
  return HeldExpertBytes(plan.shape, scheme);
}

// Returns what has to be loaded: the experts of `runtime` that no resident epoch holds.
StagingProgress BeginOf(const EpochRuntime& runtime) {
  StagingProgress progress;
  for (const LayerRuntime& layer : runtime.layers) {
    const auto missing = static_cast<std::int32_t>(
        std::count_if(layer.slots.begin(), layer.slots.end(),
                      [](const ExpertSlot& slot) { return !slot.weights; }));
    progress.experts += layer.local_slots();
    progress.experts_shared += layer.local_slots() - missing;
    progress.bytes += missing * ExpertBytesIn(runtime.plan, layer.layer);
  }
  progress.experts_done = progress.experts_shared;
  return progress;
}

bool SameExpertShape(const MoeShape& a, const MoeShape& b) {
  return a.hidden == b.hidden && a.intermediate == b.intermediate;
}

// Returns the experts that may be shared. An expert of other sizes is left out even if its hashes
// are the same: equal bytes of another shape are packed in another order.
PackedByKey PackedIn(std::span<const std::shared_ptr<const EpochRuntime>> resident,
                     const MoeShape& shape) {
  PackedByKey packed;
  for (const auto& runtime : resident) {
    if (!SameExpertShape(runtime->shape(), shape)) continue;
    for (const LayerRuntime& layer : runtime->layers) {
      for (const ExpertSlot& slot : layer.slots) packed.emplace(slot.key, slot.weights);
    }
  }
  return packed;
}

bool ByExpert(const TensorHash& a, const TensorHash& b) {
  return std::tie(a.layer, a.expert) < std::tie(b.layer, b.expert);
}

// `tensors` are those of one expert.
absl::StatusOr<ExpertKey> KeyOf(std::span<const TensorHash> tensors, LayerId layer,
                                ExpertId expert) {
  ExpertKey key;
  for (const Projection projection : kAllProjections) {
    const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const TensorHash& row) {
      return row.projection == projection;
    });
    if (at == tensors.end()) {
      return MakeError(
          absl::StatusCode::kDataLoss, Reason::kWeightHash,
          absl::StrFormat("PREPARE has no hash for %s of layer %d, expert %d",
                          std::string(ProjectionName(projection)), layer.value, expert.value),
          {{"layer", absl::StrCat(layer.value)}, {"expert", absl::StrCat(expert.value)}});
    }
    key.tensors[static_cast<std::size_t>(projection)] = at->sha256;
  }
  return key;
}

// Fills the slots with keys, and with weights where `packed` has them. The slots follow the
// placement map's order, which the source uses too when it addresses an expert by slot.
absl::Status PlaceExperts(const Prepare& prepare, const PackedByKey& packed,
                          EpochRuntime* runtime) {
  std::vector<TensorHash> tensors = prepare.tensors;
  // PREPARE promises no order. Sorted once, each expert's three rows are found by binary search; a
  // large model's PREPARE has thousands of them.
  std::sort(tensors.begin(), tensors.end(), ByExpert);
  for (const LayerPlacement& placement : runtime->plan.layers) {
    LayerRuntime layer;
    layer.layer = placement.layer;
    layer.index = static_cast<std::int32_t>(runtime->layers.size());
    const PlacementMap map(placement, runtime->shape().experts,
                           static_cast<std::int32_t>(runtime->plan.workers.size()));
    for (const PhysicalExpert& physical : map.OnWorker(runtime->self)) {
      const auto [first, last] = std::equal_range(
          tensors.begin(), tensors.end(),
          TensorHash{.layer = layer.layer, .expert = physical.expert, .sha256 = {}}, ByExpert);
      SY_ASSIGN_OR_RETURN(const ExpertKey key,
                          KeyOf(std::span(first, last), layer.layer, physical.expert));
      const auto held = packed.find(key);
      layer.slots.push_back({.expert = physical.expert,
                             .key = key,
                             .weights = held == packed.end() ? nullptr : held->second});
    }
    layer.load = std::make_shared<LayerLoad>(layer.slots.size());
    runtime->layers.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

// A frame does not say its global scale, so a layer's rows of one dtype have one codec.
absl::Status CheckSameCodec(LayerId layer, const CodecSpec& taken, const CodecSpec& spec) {
  if (taken == spec) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrFormat("layer %d: the plan has %s rows with two different scales (%s, %g and %s, "
                      "%g) to one kind of worker",
                      layer.value, DispatchDtypeName(spec.format.dtype),
                      WireFormatName(taken.format), taken.global_scale, WireFormatName(spec.format),
                      spec.global_scale),
      {{"layer", absl::StrCat(layer.value)}});
}

// Adds the wire dtypes of the edges that end at workers of this kind, each with its codec.
absl::Status MakeCodecs(const DeviceBackend& device, EpochRuntime* runtime) {
  const Plan& plan = runtime->plan;
  const DeviceKind own = plan.workers[static_cast<std::size_t>(runtime->self.value)].device;
  for (LayerRuntime& layer : runtime->layers) {
    for (const DispatchConfig& config : plan.configs) {
      // Edges that end at other kinds of workers may use dtypes that this device has no codec for.
      if (config.layer != layer.layer || config.edge.worker != own) continue;
      const CodecSpec spec{config.format(), config.global_scale};
      if (const WireDtype* taken = layer.Find(config.wire_dtype); taken != nullptr) {
        SY_RETURN_IF_ERROR(CheckSameCodec(layer.layer, taken->spec, spec));
        continue;
      }
      WireDtype added{.spec = spec, .codec = nullptr};
      if (config.wire_dtype != DispatchDtype::kBf16) {
        SY_ASSIGN_OR_RETURN(added.codec, device.MakeCodec(spec));
      }
      layer.wire_dtypes.push_back(std::move(added));
    }
  }
  return absl::OkStatus();
}

// A table points at packed experts, so it is made after the last one is loaded.
absl::Status MakeTables(DeviceBackend* device, EpochRuntime* runtime) {
  for (LayerRuntime& layer : runtime->layers) {
    std::vector<TableEntry> entries;
    entries.reserve(layer.slots.size());
    for (const ExpertSlot& slot : layer.slots) {
      entries.push_back({.expert = slot.expert, .weights = slot.weights});
    }
    SY_ASSIGN_OR_RETURN(layer.table, device->MakeTable(std::move(entries)));
  }
  return absl::OkStatus();
}

// Refuses a checkpoint of another scheme than the coordinator planned with: its experts would
// receive rows in a dtype that they do not take.
absl::Status CheckScheme(const Plan& plan, LayerId layer, const WeightSource& source) {
  for (const DispatchConfig& config : plan.configs) {
    if (config.layer != layer || config.scheme == source.SchemeOf(layer)) continue;
    return MakeError(
        absl::StatusCode::kDataLoss, Reason::kCheckpoint,
        absl::StrFormat(
            "layer %d of %s is stored as %s, but the plan of %s says %s; give this worker "
            "the checkpoint that was applied",
            layer.value, source.describe(), QuantSchemeInfoOf(source.SchemeOf(layer)).name,
            plan.deployment, QuantSchemeInfoOf(config.scheme).name),
        {{"layer", absl::StrCat(layer.value)}});
  }
  return absl::OkStatus();
}

}  // namespace

std::int64_t ResidentBytes(std::span<const std::shared_ptr<const EpochRuntime>> resident) {
  std::unordered_set<const PackedExpert*> seen;
  std::int64_t bytes = 0;
  for (const auto& runtime : resident) {
    for (const LayerRuntime& layer : runtime->layers) {
      for (const ExpertSlot& slot : layer.slots) {
        if (seen.insert(slot.weights.get()).second) bytes += slot.weights->bytes();
      }
    }
  }
  return bytes;
}

absl::StatusOr<StagedEpoch> EpochStager::Stage(const StageRequest& request) {
  const Plan& plan = request.prepare->plan;
  SY_RETURN_IF_ERROR(CheckPlan(plan));
  auto runtime = std::make_shared<EpochRuntime>();
  runtime->plan = plan;
  runtime->hash = request.prepare->hash;
  runtime->grant_keys = request.prepare->grant_keys;
  // CheckPlan has found it.
  runtime->self = *plan.FindWorker(options_.worker_id);
  SY_RETURN_IF_ERROR(
      PlaceExperts(*request.prepare, PackedIn(request.resident, plan.shape), runtime.get()));
  // Codecs before weights: a plan that this device cannot decode is refused before minutes of
  // loading.
  SY_RETURN_IF_ERROR(MakeCodecs(*options_.device, runtime.get()));
  SY_RETURN_IF_ERROR(LoadExperts(request, runtime.get()));
  SY_RETURN_IF_ERROR(MakeTables(options_.device, runtime.get()));
  // The scratch is allocated here and not at the first batch, because a commit must not fail.
  SY_ASSIGN_OR_RETURN(auto memory, MemoryFor(plan.shape));
  return StagedEpoch{.runtime = std::move(runtime), .memory = std::move(memory)};
}

absl::StatusOr<std::shared_ptr<EpochMemory>> EpochStager::MemoryFor(const MoeShape& shape) {
  // Weak references: the scratch goes with the last epoch of its shape.
  std::erase_if(memories_, [](const auto& memory) { return memory.expired(); });
  for (const std::weak_ptr<EpochMemory>& held : memories_) {
    if (auto memory = held.lock(); memory != nullptr && memory->shape == shape) return memory;
  }
  SY_ASSIGN_OR_RETURN(auto memory, EpochMemory::Create(options_.device, shape, options_.batch));
  memories_.push_back(memory);
  return memory;
}

absl::Status EpochStager::CheckPlan(const Plan& plan) const {
  SY_RETURN_IF_ERROR(ValidatePlan(plan));
  const std::optional<WorkerOrdinal> self = plan.FindWorker(options_.worker_id);
  // A worker that restarted keeps its name and has lost its rings, so a plan for its former life
  // would bind sources to nothing.
  if (!self.has_value() ||
      plan.workers[static_cast<std::size_t>(self->value)].incarnation != options_.incarnation) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kIncarnation,
                     absl::StrFormat("epoch %d of %s names another incarnation of worker %s",
                                     plan.epoch.value, plan.deployment, options_.worker_id),
                     {{"worker", options_.worker_id}});
  }
  for (const DispatchConfig& config : plan.configs) {
    if (config.combine_dtype != DispatchDtype::kBf16) {
      return MakeError(
          absl::StatusCode::kUnimplemented, Reason::kUnsupported,
          absl::StrFormat("layer %d: worker %s returns BF16 only, but the plan says %s",
                          config.layer.value, options_.worker_id,
                          DispatchDtypeName(config.combine_dtype)),
          {{"layer", absl::StrCat(config.layer.value)}});
    }
    if (!options_.device->capabilities().Takes(config.scheme)) {
      const char* scheme = QuantSchemeInfoOf(config.scheme).name;
      return MakeError(
          absl::StatusCode::kUnimplemented, Reason::kUnsupported,
          absl::StrFormat(
              "layer %d: worker %s does not accept weights of scheme %s: their self-test did "
              "not pass; place the model on other workers",
              config.layer.value, options_.worker_id, scheme),
          {{"layer", absl::StrCat(config.layer.value)}, {"scheme", scheme}});
    }
  }
  return absl::OkStatus();
}

absl::Status EpochStager::LoadExperts(const StageRequest& request, EpochRuntime* runtime) const {
  const Plan& plan = runtime->plan;
  StagingProgress progress = BeginOf(*runtime);
  // The old epochs serve until the new one is committed, so both must fit at the same time.
  const std::int64_t bytes = ResidentBytes(request.resident) + progress.bytes;
  if (options_.weight_bytes_max > 0 && bytes > options_.weight_bytes_max) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
        absl::StrFormat("epoch %d of %s would raise expert weights to %d bytes; worker %s "
                        "may hold %d",
                        plan.epoch.value, plan.deployment, bytes, options_.worker_id,
                        options_.weight_bytes_max),
        {{"worker", options_.worker_id}});
  }
  if (request.on_begin) request.on_begin(progress);
  // Without opening the checkpoint: a re-plan that moves no expert of this worker needs no storage.
  if (progress.experts_shared == progress.experts) return absl::OkStatus();
  SY_ASSIGN_OR_RETURN(
      const auto source,
      options_.open_weights(request.prepare->checkpoint, {.expected = request.prepare->tensors}));
  // The coordinator read its own copy of the checkpoint; this worker's may be another model in the
  // same place.
  if (!SameExpertShape(source->shape(), plan.shape) ||
      source->shape().experts != plan.shape.experts) {
    return MakeError(absl::StatusCode::kDataLoss, Reason::kCheckpoint,
                     absl::StrFormat("the sizes of %s differ from those in the plan of %s",
                                     source->describe(), plan.deployment));
  }
  struct Missing {
    LayerId layer;
    ExpertSlot* slot;
    std::int64_t bytes;
  };
  std::vector<Missing> missing;
  for (LayerRuntime& layer : runtime->layers) {
    SY_RETURN_IF_ERROR(CheckScheme(plan, layer.layer, *source));
    const std::int64_t expert_bytes = ExpertBytesIn(plan, layer.layer);
    for (ExpertSlot& slot : layer.slots) {
      // Otherwise shared with a resident epoch: the hashes are equal, so nothing has to be read or
      // verified again.
      if (!slot.weights) missing.push_back({layer.layer, &slot, expert_bytes});
    }
  }
  Mutex mutex;  // of progress
  return ParallelEach(missing.size(), options_.load_threads, [&](std::size_t i) -> absl::Status {
    // An expert is the smallest unit that leaves nothing half packed, so a stop is seen between
    // two.
    if (request.stop.stop_requested()) {
      return MakeError(absl::StatusCode::kCancelled, Reason::kEpochChanged,
                       absl::StrFormat("staging of epoch %d of %s was stopped", plan.epoch.value,
                                       plan.deployment));
    }
    const auto& [layer, slot, expert_bytes] = missing[i];
    SY_ASSIGN_OR_RETURN(const ExpertWeights raw, source->Load(layer, slot->expert));
    SY_ASSIGN_OR_RETURN(slot->weights, options_.device->Pack(plan.shape, ViewOf(raw)));
    const MutexLock lock(mutex);
    ++progress.experts_done;
    progress.bytes_done += expert_bytes;
    if (request.on_progress) request.on_progress(progress);
    return absl::OkStatus();
  });
}

}  // namespace switchyard
