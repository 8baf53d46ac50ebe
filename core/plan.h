// The plan: everything that one epoch of one deployment fixes. Its hash is the fence of the system:
// PREPARE, COMMIT, Bind and a session's grant all carry it.
//
// Canonical form: fields in the order below, integers little-endian and fixed width, strings and
// lists with a u32 length before them. CanonicalBytes is what is stored and hashed. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/hash.h"
#include "core/dispatch_config.h"
#include "core/ids.h"
#include "core/moe_shape.h"
#include "core/placement_map.h"

namespace switchyard {

// One worker of the plan. A restarted process has another incarnation and therefore needs another
// plan.
struct PlanWorker {
  std::string id;           // stable name, e.g. the pod's
  Incarnation incarnation;  // of the process that prepares this plan
  std::string endpoint;     // its ExpertService, "host:port"
  DeviceKind device = DeviceKind::kCpu;
  std::string kernel_family;
  friend bool operator==(const PlanWorker&, const PlanWorker&) = default;
};

// A value: compared and hashed as a whole, never changed once an epoch has it.
struct Plan {
  std::string deployment;
  std::string model;
  Epoch epoch;
  MoeShape shape;
  Sha256Digest manifest;                // hash of the model's weight manifest
  std::vector<PlanWorker> workers;      // index = WorkerOrdinal
  std::vector<LayerPlacement> layers;   // MoE layers, ascending
  std::vector<DispatchConfig> configs;  // ascending (layer, phase, edge)

  // nullptr when there is none.
  [[nodiscard]] const LayerPlacement* FindLayer(LayerId layer) const;
  // Linear in the configs: for binding a plan, not for steps.
  [[nodiscard]] const DispatchConfig* FindConfig(LayerId layer, Phase phase, Edge edge) const;
  // nullopt when no worker of the plan has that id, which says nothing about its incarnation.
  [[nodiscard]] std::optional<WorkerOrdinal> FindWorker(absl::string_view id) const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

// Starts with the number of the format, so that a store written by another version is recognized.
std::string CanonicalBytes(const Plan& plan);
// Checks the form and not the contents: use ValidatePlan as well. Errors: kDataLoss for anything
// that CanonicalBytes did not write; kInternal is never returned.
absl::StatusOr<Plan> ParsePlan(absl::string_view bytes);
// True when an earlier version's CanonicalBytes wrote these bytes, in a format that ParsePlan does
// not read.
bool IsOlderPlan(absl::string_view bytes);
// The SHA-256 of CanonicalBytes.
PlanHash HashOf(const Plan& plan);

// Checks everything that does not depend on a worker. Workers call it as well: a plan may come from
// another version. Errors: kInvalidArgument (BAD_CONFIG) for bad shapes, placements or a layer
// without a config.
absl::Status ValidatePlan(const Plan& plan);

}  // namespace switchyard
