// What 'syctl model inspect' knows of a checkpoint: layers that are alike together, and how rows of
// each kind of layer would travel to kinds of workers. Nobody is asked. Thread-safe; no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/device_profile.h"
#include "core/ids.h"
#include "core/resolve/decision_trace.h"
#include "model/checkpoint_summary.h"

namespace switchyard::ctl {

// Layers that differ in their number, their names and the values of their input scales alone.
struct LayerGroup {
  std::vector<std::int32_t> layers;  // ascending; drafts in a list of their own begin at 0
  LayerSummary first;                // its input scales: the least and the most of the group
};

// What would be decided for rows to one worker of `profile`.
struct WouldTravel {
  const DeviceProfile* profile = nullptr;
  Phase phase = Phase::kPrefill;
  DecisionTrace trace;
};

// Layers that are the same to the resolver.
struct TravelGroup {
  std::vector<std::int32_t> layers;  // as in LayerGroup; base layers or drafts, as facts.role says
  LayerFacts facts;                  // of the first of them
  // The least and the most of their global scales; unset where they have none. Where these differ,
  // reasons in `would` name both.
  std::optional<std::pair<float, float>> global_scales;
  std::vector<WouldTravel> would;  // by profile, then phase: prefill, decode
};

struct Inspection {
  CheckpointSummary summary;  // of all layers
  std::vector<LayerGroup> layers;
  std::vector<TravelGroup> travel;
  std::int32_t broken = 0;  // layers of `layers` with something wrong
};

struct InspectOptions {
  std::string path;
  std::optional<std::int32_t> layer;  // only this one
  std::string worker_kind;            // as core/resolve/what_if.h takes it
};

// Errors, all with metadata {checkpoint}: those of SummarizeCheckpoint, ProfilesNamed and FactsOf;
// kNotFound (UNKNOWN_LAYER) when `layer` has no experts, naming those that have.
absl::StatusOr<Inspection> Inspect(const InspectOptions& options);

// kFailedPrecondition (CHECKPOINT) when layers are broken, naming the first; OK when none is.
absl::Status Verdict(const Inspection& inspection);

}  // namespace switchyard::ctl
