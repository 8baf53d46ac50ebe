// What the dispatch of a layer looks like by the numbers: the per-worker and per-expert counts that
// other expert-parallel libraries publish, derived from our dispatch plans (dispatch-semantics 3.1
// and 3.2). For load statistics, explanation and tests; no step depends on them.
//
// Pure functions; they allocate. Physical experts are numbered worker after worker, slot after
// slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/placement_map.h"
#include "worker/routing/dispatch_plan.h"

namespace switchyard {

// How one source's tokens spread.
struct SendLayout {
  std::vector<std::int32_t> num_tokens_per_rank;    // [workers]; a token counts once a worker
  std::vector<std::int32_t> num_tokens_per_expert;  // [physical experts]; one for each pair
  std::vector<std::uint8_t> is_token_in_rank;       // [tokens, workers], 0 or 1
};
SendLayout SendLayoutOf(const DispatchPlan& plan, const PlacementMap& placement);

// Alignment that grouped GEMM kernels with blocks of 128 rows ask for.
inline constexpr std::int32_t kExpertAlignment = 128;

// normal: pairs that each local expert of `worker` gets from all `sources`, rounded up to
// `alignment` (1: not at all). `slots` is the number of the worker's experts.
std::vector<std::int32_t> NumRecvTokensPerExpert(std::span<const DispatchPlan> sources,
                                                 WorkerOrdinal worker, std::int32_t slots,
                                                 std::int32_t alignment);

// low_latency: what `worker` gets from all `sources`, each bounded to `max_tokens` (M) rows of an
// expert. Source s fills range s of each expert, in its plan's order.
struct LowLatencyReceive {
  std::int32_t slots = 0;
  std::int32_t capacity = 0;             // rows of an expert: sources x max_tokens
  std::vector<std::int32_t> masked_m;    // [slots] rows that hold data
  std::vector<std::int32_t> src_info;    // [slots, capacity] source token; -1 from masked_m on
  std::vector<std::int64_t> range_info;  // [slots, sources] begin << 32 | count
};
LowLatencyReceive LowLatencyReceiveOf(std::span<const DispatchPlan> sources, WorkerOrdinal worker,
                                      std::int32_t slots, std::int32_t max_tokens);

}  // namespace switchyard
