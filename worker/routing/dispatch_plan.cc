#include "worker/routing/dispatch_plan.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status BadPair(Reason reason, std::int32_t token, std::int32_t k, std::int32_t id,
                     absl::string_view why) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, reason,
      absl::StrFormat("ids[%d][%d] is expert %d: %s", token, k, id, std::string(why)),
      {{"row", absl::StrCat(token)}, {"k", absl::StrCat(k)}, {"expert", absl::StrCat(id)}});
}

// A row's slots are keyed by expert, so a repeated id would make two pairs one (R64).
absl::Status CheckRow(std::span<const std::int32_t> row, std::int32_t token, std::int32_t experts) {
  for (std::size_t k = 0; k < row.size(); ++k) {
    const std::int32_t id = row[k];
    if (id < -1 || id >= experts) {
      return BadPair(Reason::kExpertOutOfRange, token, static_cast<std::int32_t>(k), id,
                     absl::StrCat("the layer has experts 0 to ", experts - 1, ", -1 means none"));
    }
    if (id == -1) continue;
    // Quadratic in the top-k, which is small; a set would have to be cleared for each row.
    for (std::size_t earlier = 0; earlier < k; ++earlier) {
      if (row[earlier] == id) {
        return BadPair(Reason::kDuplicateExpert, token, static_cast<std::int32_t>(k), id,
                       absl::StrCat("it is already at k ", earlier, "; add the weights instead"));
      }
    }
  }
  return absl::OkStatus();
}

std::span<const std::int32_t> RowOf(const RoutedBatch& batch, std::int32_t token) {
  const auto top_k = static_cast<std::size_t>(batch.top_k);
  return batch.ids.subspan(static_cast<std::size_t>(token) * top_k, top_k);
}

void ClearFor(const RoutedBatch& batch, const PlacementMap& placement, DispatchMode mode,
              DispatchPlan* plan) {
  plan->mode = mode;
  plan->tokens = batch.tokens;
  plan->top_k = batch.top_k;
  // resize and clear keep the capacity, so that a plan that is reused allocates nothing.
  plan->slot_of_pair.resize(batch.ids.size());
  plan->worker_of_pair.resize(batch.ids.size());
  plan->workers.resize(static_cast<std::size_t>(placement.workers()));
  for (std::int32_t w = 0; w < placement.workers(); ++w) {
    WorkerRows& to = plan->workers[static_cast<std::size_t>(w)];
    to.worker = WorkerOrdinal{w};
    to.rows.clear();
    const std::size_t slots = placement.OnWorker(WorkerOrdinal{w}).size();
    to.slot_counts.assign(mode == DispatchMode::kLowLatency ? slots : 0, 0);
  }
}

// Fills slot_of_pair and worker_of_pair.
absl::Status AssignPairs(const RoutedBatch& batch, const PlacementMap& placement,
                         DispatchPlan* plan) {
  const auto top_k = static_cast<std::size_t>(batch.top_k);
  for (std::int32_t token = 0; token < batch.tokens; ++token) {
    const std::size_t first = static_cast<std::size_t>(token) * top_k;
    const auto row = RowOf(batch, token);
    SY_RETURN_IF_ERROR(CheckRow(row, token, placement.experts()));
    for (std::size_t k = 0; k < top_k; ++k) {
      if (row[k] == -1) {
        plan->slot_of_pair[first + k] = -1;
        plan->worker_of_pair[first + k] = -1;
        continue;
      }
      const PhysicalExpert& home = PickReplica(placement.Replicas(ExpertId{row[k]}));
      plan->slot_of_pair[first + k] = home.slot.value;
      plan->worker_of_pair[first + k] = home.worker.value;
    }
  }
  return absl::OkStatus();
}

// A token goes to a worker once, however many of its experts live there.
void ListTokens(DispatchPlan* plan) {
  std::size_t pair = 0;
  for (std::int32_t t = 0; t < plan->tokens; ++t) {
    const auto token = static_cast<std::uint32_t>(t);
    for (std::int32_t k = 0; k < plan->top_k; ++k, ++pair) {
      if (plan->worker_of_pair[pair] < 0) continue;
      auto& rows = plan->workers[static_cast<std::size_t>(plan->worker_of_pair[pair])].rows;
      // Tokens ascend, so a repeated one is the last.
      if (rows.empty() || rows.back().token != token) rows.push_back({.token = token});
    }
  }
}

// A counting sort by slot. It is stable, so that tokens ascend in a slot and k in a token.
void ListPairs(DispatchPlan* plan) {
  for (std::size_t pair = 0; pair < plan->worker_of_pair.size(); ++pair) {
    if (plan->worker_of_pair[pair] < 0) continue;
    auto& counts = plan->workers[static_cast<std::size_t>(plan->worker_of_pair[pair])].slot_counts;
    ++counts[static_cast<std::size_t>(plan->slot_of_pair[pair])];
  }
  // While rows are placed, slot_counts holds where the next row of each slot goes.
  for (WorkerRows& to : plan->workers) {
    std::uint32_t next = 0;
    for (std::uint32_t& count : to.slot_counts) {
      const std::uint32_t begin = next;
      next += count;
      count = begin;
    }
    to.rows.resize(next);
  }
  std::size_t pair = 0;
  for (std::int32_t token = 0; token < plan->tokens; ++token) {
    for (std::int32_t k = 0; k < plan->top_k; ++k, ++pair) {
      if (plan->worker_of_pair[pair] < 0) continue;
      const std::int32_t slot = plan->slot_of_pair[pair];
      WorkerRows& to = plan->workers[static_cast<std::size_t>(plan->worker_of_pair[pair])];
      to.rows[to.slot_counts[static_cast<std::size_t>(slot)]++] = {
          .token = static_cast<std::uint32_t>(token),
          .k = static_cast<std::uint32_t>(k),
          .slot = slot};
    }
  }
  // The cursors now stand at the ends of the slots; differences turn them into counts again.
  for (WorkerRows& to : plan->workers) {
    std::uint32_t begin = 0;
    for (std::uint32_t& end : to.slot_counts) {
      const std::uint32_t count = end - begin;
      begin = end;
      end = count;
    }
  }
}

}  // namespace

const PhysicalExpert& PickReplica(std::span<const PhysicalExpert> replicas) {
  return replicas.front();
}

absl::Status CheckRouting(const RoutedBatch& batch, std::int32_t experts) {
  for (std::int32_t token = 0; token < batch.tokens; ++token) {
    SY_RETURN_IF_ERROR(CheckRow(RowOf(batch, token), token, experts));
  }
  return absl::OkStatus();
}

absl::Status BuildDispatchPlan(const RoutedBatch& batch, const PlacementMap& placement,
                               DispatchMode mode, DispatchPlan* plan) {
  if (batch.tokens < 0 || batch.top_k <= 0 ||
      batch.ids.size() !=
          static_cast<std::size_t>(batch.tokens) * static_cast<std::size_t>(batch.top_k)) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                     absl::StrFormat("%d ids are not [%d tokens, top-%d]", batch.ids.size(),
                                     batch.tokens, batch.top_k));
  }
  ClearFor(batch, placement, mode, plan);
  SY_RETURN_IF_ERROR(AssignPairs(batch, placement, plan));
  if (mode == DispatchMode::kNormal) {
    ListTokens(plan);
  } else {
    ListPairs(plan);
  }
  return absl::OkStatus();
}

}  // namespace switchyard
