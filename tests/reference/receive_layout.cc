#include "tests/reference/receive_layout.h"

#include <cstddef>

namespace switchyard {
namespace {

std::size_t Index(std::int32_t value) { return static_cast<std::size_t>(value); }

}  // namespace

SendLayout SendLayoutOf(const DispatchPlan& plan, const PlacementMap& placement) {
  const std::size_t workers = Index(placement.workers());
  std::vector<std::size_t> first_expert(workers + 1, 0);
  for (std::size_t w = 0; w < workers; ++w) {
    const auto here = placement.OnWorker(WorkerOrdinal{static_cast<std::int32_t>(w)});
    first_expert[w + 1] = first_expert[w] + here.size();
  }
  SendLayout layout;
  layout.num_tokens_per_rank.assign(workers, 0);
  layout.num_tokens_per_expert.assign(first_expert.back(), 0);
  layout.is_token_in_rank.assign(Index(plan.tokens) * workers, 0);
  for (std::size_t pair = 0; pair < plan.worker_of_pair.size(); ++pair) {
    if (plan.worker_of_pair[pair] < 0) continue;
    const std::size_t worker = Index(plan.worker_of_pair[pair]);
    ++layout.num_tokens_per_expert[first_expert[worker] + Index(plan.slot_of_pair[pair])];
    std::uint8_t& seen = layout.is_token_in_rank[pair / Index(plan.top_k) * workers + worker];
    if (seen == 0) ++layout.num_tokens_per_rank[worker];
    seen = 1;
  }
  return layout;
}

std::vector<std::int32_t> NumRecvTokensPerExpert(std::span<const DispatchPlan> sources,
                                                 WorkerOrdinal worker, std::int32_t slots,
                                                 std::int32_t alignment) {
  std::vector<std::int32_t> counts(Index(slots), 0);
  for (const DispatchPlan& plan : sources) {
    for (std::size_t pair = 0; pair < plan.worker_of_pair.size(); ++pair) {
      if (plan.worker_of_pair[pair] == worker.value) ++counts[Index(plan.slot_of_pair[pair])];
    }
  }
  for (std::int32_t& count : counts) count = (count + alignment - 1) / alignment * alignment;
  return counts;
}

LowLatencyReceive LowLatencyReceiveOf(std::span<const DispatchPlan> sources, WorkerOrdinal worker,
                                      std::int32_t slots, std::int32_t max_tokens) {
  LowLatencyReceive receive;
  receive.slots = slots;
  receive.capacity = static_cast<std::int32_t>(sources.size()) * max_tokens;
  receive.masked_m.assign(Index(slots), 0);
  receive.src_info.assign(Index(slots) * Index(receive.capacity), -1);
  receive.range_info.assign(Index(slots) * sources.size(), 0);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const WorkerRows& rows = sources[s].workers[Index(worker.value)];
    for (std::size_t slot = 0; slot < Index(slots); ++slot) {
      receive.range_info[slot * sources.size() + s] =
          (static_cast<std::int64_t>(receive.masked_m[slot]) << 32) |
          static_cast<std::int64_t>(rows.slot_counts[slot]);
    }
    for (const PlannedRow& row : rows.rows) {
      std::int32_t& filled = receive.masked_m[Index(row.slot)];
      receive.src_info[Index(row.slot) * Index(receive.capacity) + Index(filled)] =
          static_cast<std::int32_t>(row.token);
      ++filled;
    }
  }
  return receive;
}

}  // namespace switchyard
