// Plans and PREPAREs of a small synthetic model.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/control_messages.h"
#include "core/grant_signature.h"
#include "core/plan.h"
#include "core/rng.h"
#include "model/model_spec.h"
#include "model/synthetic_model.h"
#include "tests/testing/fake_device.h"
#include "worker/expert/epoch_stager.h"
#include "worker/weights/weight_source_registry.h"

namespace switchyard::testing {

inline SyntheticModel TestModel() {
  return {.seed = 5,
          .shape = {.hidden = 24, .intermediate = 10, .experts = 6, .top_k = 3},
          .layers = 2};
}

inline Incarnation IncarnationOf(std::int32_t worker) {
  return {.high = 77, .low = static_cast<std::uint64_t>(worker) + 1};
}

// Epoch `epoch` of "demo": expert e of layer l lives on worker (e + l) % workers, "w0", "w1" ...
inline Plan MakePlan(std::uint64_t epoch, std::int32_t workers) {
  const SyntheticModel model = TestModel();
  Plan plan;
  plan.deployment = "demo";
  plan.model = "m";
  plan.epoch = Epoch{epoch};
  plan.shape = model.shape;
  for (std::int32_t w = 0; w < workers; ++w) {
    plan.workers.push_back({.id = absl::StrCat("w", w),
                            .incarnation = IncarnationOf(w),
                            .endpoint = absl::StrCat("127.0.0.1:", 1000 + w),
                            .device = DeviceKind::kCpu,
                            .kernel_family = "fake"});
  }
  for (std::int32_t l = 0; l < model.layers; ++l) {
    LayerPlacement placement{.layer = LayerId{l}, .experts = {}};
    for (std::int32_t w = 0; w < workers; ++w) {
      std::int32_t slot = 0;
      for (std::int32_t e = 0; e < model.shape.experts; ++e) {
        if ((e + l) % workers != w) continue;
        placement.experts.push_back({ExpertId{e}, WorkerOrdinal{w}, SlotId{slot++}});
      }
    }
    plan.layers.push_back(std::move(placement));
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
      DispatchConfig config;
      config.layer = LayerId{l};
      config.phase = phase;
      plan.configs.push_back(config);
    }
  }
  return plan;
}

// The key of the grants of "demo".
inline GrantKey TestGrantKey() {
  SeededRng rng(31);
  return GrantKey::Random(&rng);
}

inline Prepare MakePrepare(Plan plan) {
  static const WeightManifest manifest = [] {
    auto built = BuildManifest(TestModel());
    if (!built.ok()) std::abort();
    return *std::move(built);
  }();
  Prepare prepare;
  prepare.nonce = 9;
  prepare.plan = std::move(plan);
  prepare.hash = HashOf(prepare.plan);
  prepare.checkpoint = ToString(TestModel());
  prepare.tensors = manifest.tensors;  // More than a worker needs does no harm.
  prepare.grant_keys = {TestGrantKey()};
  return prepare;
}

inline StagerOptions StagerOf(std::int32_t worker, DeviceBackend* device) {
  return {.worker_id = absl::StrCat("w", worker),
          .incarnation = IncarnationOf(worker),
          .device = device,
          .open_weights = [](absl::string_view checkpoint,
                             WeightCheck check) { return MakeWeightSource(checkpoint, check); },
          .weight_bytes_max = 0,
          .batch = {.pairs_max = 64}};
}

// The packed bytes of all experts, shared ones included.
inline std::int64_t WeightBytes(const EpochRuntime& runtime) {
  std::int64_t bytes = 0;
  for (const LayerRuntime& layer : runtime.layers) {
    for (const ExpertSlot& slot : layer.slots) bytes += slot.weights->bytes();
  }
  return bytes;
}

// Stages without anything resident; aborts on error.
inline StagedEpoch MakeStaged(std::int32_t worker, const Plan& plan, DeviceBackend* device) {
  const Prepare prepare = MakePrepare(plan);
  auto staged = EpochStager(StagerOf(worker, device))
                    .Stage({.prepare = &prepare, .resident = {}, .stop = {}, .on_progress = {}});
  if (!staged.ok()) std::abort();
  return *std::move(staged);
}

}  // namespace switchyard::testing
