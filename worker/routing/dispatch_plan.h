// The dispatch plan: which row goes to which worker, in which order. A pure function of the
// router's answer and the placement.
//
// normal: a worker gets a token once, with all its local (slot, weight) pairs, tokens ascending.
// low_latency: a worker gets a row for each (token, expert) it hosts, grouped by slot ascending,
// then by token, then by k. An id of -1 means "no expert". The same inputs give the same plan on
// every machine. Building allocates only while the plan's vectors grow to their largest size; reuse
// it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "core/dispatch_config.h"
#include "core/ids.h"
#include "core/placement_map.h"

namespace switchyard {

// One row on the wire. Its values are those of the token's row in x; only the routing is planned.
struct PlannedRow {
  std::uint32_t token = 0;
  std::uint32_t k = 0;     // low_latency: which of the token's experts; normal: 0
  std::int32_t slot = -1;  // low_latency: the worker's slot; normal: -1
};

// The rows for one worker, in wire order.
struct WorkerRows {
  WorkerOrdinal worker;
  std::vector<PlannedRow> rows;
  std::vector<std::uint32_t> slot_counts;  // low_latency: rows for each local slot
};

// The result: reused from step to step, so that building allocates nothing once it has grown.
struct DispatchPlan {
  DispatchMode mode = DispatchMode::kNormal;
  std::int32_t tokens = 0;
  std::int32_t top_k = 0;
  std::vector<WorkerRows> workers;  // index = ordinal; rows may be empty
  // normal: [tokens, top_k] the slot on the worker that got the pair, -1 for id -1.
  std::vector<std::int32_t> slot_of_pair;
  std::vector<std::int32_t> worker_of_pair;  // [tokens, top_k], -1 for id -1
};

// The router's answer for one step. Borrows.
struct RoutedBatch {
  std::span<const std::int32_t> ids;  // [tokens, top_k]
  std::int32_t tokens = 0;
  std::int32_t top_k = 0;
};

// Picks the copy of an expert that gets a row: the one on the lowest worker ordinal, so that every
// source picks the same one. `replicas` is not empty and ascends by worker, as
// PlacementMap::Replicas gives it.
const PhysicalExpert& PickReplica(std::span<const PhysicalExpert> replicas);

// Errors: kInvalidArgument, EXPERT_OUT_OF_RANGE or DUPLICATE_EXPERT, naming row, k and id. For
// steps whose rows others send. O(tokens * top_k^2).
absl::Status CheckRouting(const RoutedBatch& batch, std::int32_t experts);

// Errors: those of CheckRouting; kInvalidArgument,
// BAD_SHAPE when `ids` is not [tokens, top_k]. `plan` is unspecified after an error.
// O(tokens * top_k) and, in low_latency, a counting sort by slot.
absl::Status BuildDispatchPlan(const RoutedBatch& batch, const PlacementMap& placement,
                               DispatchMode mode, DispatchPlan* plan);

}  // namespace switchyard
