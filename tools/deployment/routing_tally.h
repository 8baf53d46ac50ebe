// What the workers of a plan must have counted, told from routing and placement alone.
//
// Written anew, by loops over tokens and experts, and not with the dispatch plan of the code under
// check. Not thread-safe.
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

class RoutingTally {
 public:
  // Rows go out in the dtype of the layer's config in `phase` (BF16 for a plan without one) and
  // come back in BF16. Frames give a row the room of its dtype's default format: scales of one byte
  // (fp8_ue8m0) take as much as those of four. `own_worker`: the gateway, whose own rows cost no
  // wire bytes; empty in p2p.
  RoutingTally(const Plan& plan, Phase phase, DispatchMode mode, std::string own_worker);

  void Count(const MoeCall& call);
  [[nodiscard]] WorkerCounts Of(std::size_t ordinal) const;
  // One sentence for each (layer, expert) whose rows differ from what the worker counted.
  [[nodiscard]] std::vector<std::string> CompareHits(
      std::size_t ordinal, const std::vector<AttachmentCounters::Hit>& counted) const;

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  // layer, expert

  DispatchMode mode_;
  std::uint64_t bf16_row_bytes_;
  std::vector<bool> own_;                           // by ordinal
  std::map<Key, std::uint64_t> row_bytes_;          // by layer and ordinal: of a row on its way out
  std::map<Key, std::size_t> home_;                 // ordinal of the worker that hosts it
  std::vector<WorkerCounts> counts_;                // by ordinal
  std::vector<std::map<Key, std::uint64_t>> hits_;  // by ordinal
};

}  // namespace switchyard::qwen3_moe
