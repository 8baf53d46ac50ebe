// Predicts the workers' counters from routing and placement only.
//
// It uses plain loops over tokens and experts instead of the dispatch plan of the code under test,
// so that an error there cannot hide itself. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/session_messages.h"
#include "examples/qwen3_moe/moe_call.h"
#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

// The prediction for one session.
class RoutingTally {
 public:
  // Rows travel to the experts in the dtype of the layer's config in `phase` (BF16 if the plan has
  // none) and back in BF16. In frames, a row has the size of its dtype's default format: one-byte
  // scales (fp8_ue8m0) take as much room as four-byte ones. `own_worker`: the gateway, whose own
  // rows use no wire bytes; empty in p2p.
  RoutingTally(const Plan& plan, Phase phase, DispatchMode mode, std::string own_worker);

  // Adds one call to the prediction.
  void Count(const MoeCall& call);
  // The predicted counters of a worker.
  [[nodiscard]] WorkerCounts Of(std::size_t ordinal) const;
  // One sentence for each (layer, expert) whose counter differs from the prediction.
  [[nodiscard]] std::vector<std::string> CompareHits(
      std::size_t ordinal, const std::vector<AttachmentCounters::Hit>& counted) const;

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  // layer, expert

  DispatchMode mode_;
  std::uint64_t bf16_row_bytes_;
  std::vector<bool> own_;                           // by ordinal
  std::map<Key, std::uint64_t> row_bytes_;          // of a row to the worker, by layer and ordinal
  std::map<Key, std::size_t> home_;                 // ordinal of the worker that hosts the expert
  std::vector<WorkerCounts> counts_;                // by ordinal
  std::vector<std::map<Key, std::uint64_t>> hits_;  // by ordinal
};

}  // namespace switchyard::qwen3_moe
