// The data behind 'syctl model inspect': groups of identical layers of a checkpoint, and how rows
// of each group would travel to each kind of worker. Needs no coordinator. Stateless; thread-safe.
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

// Groups keep the report short: a large model has dozens of identical layers.
// Layers that only differ in their number, their names and the values of their input scales.
struct LayerGroup {
  std::vector<std::int32_t> layers;  // ascending; drafts that are stored separately start at 0
  LayerSummary first;                // with the smallest and largest input scales of the group
};

// The decision for rows to one worker of `profile`.
struct WouldTravel {
  const DeviceProfile* profile = nullptr;
  Phase phase = Phase::kPrefill;
  DecisionTrace trace;
};

// Layers that the resolver treats identically.
struct TravelGroup {
  std::vector<std::int32_t> layers;  // as in LayerGroup; base layers or drafts, see facts.role
  LayerFacts facts;                  // of the first layer
  // The smallest and largest global scale; unset if they have none. If the two differ, reasons in
  // `would` mention both.
  std::optional<std::pair<float, float>> global_scales;
  std::vector<WouldTravel> would;  // by profile, then phase: prefill, decode
};

// The result of an inspection.
struct Inspection {
  CheckpointSummary summary;  // of all layers
  std::vector<LayerGroup> layers;
  std::vector<TravelGroup> travel;  // only layers whose scheme is known
  std::int32_t broken = 0;          // layers with an error
};

// The arguments of 'syctl model inspect'.
struct InspectOptions {
  std::string path;
  std::optional<std::int32_t> layer;  // unset: all layers
  std::string worker_kind;            // see core/resolve/what_if.h
};

// Errors, all with metadata {checkpoint}: those of SummarizeCheckpoint, ProfilesNamed and FactsOf;
// kNotFound (UNKNOWN_LAYER) if `layer` has no experts, with the layers that have.
absl::StatusOr<Inspection> Inspect(const InspectOptions& options);

// OK if every layer can be served; otherwise kFailedPrecondition (CHECKPOINT) with the first layer
// that cannot.
absl::Status CheckServable(const Inspection& inspection);

}  // namespace switchyard::ctl
