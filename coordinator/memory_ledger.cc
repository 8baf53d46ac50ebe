#include "coordinator/memory_ledger.h"

#include <algorithm>

#include "coordinator/plan_builder.h"

namespace switchyard {

BytesByWorker PeakBytes(std::int64_t expert_bytes, std::initializer_list<const Plan*> plans) {
  BytesByWorker bytes;
  for (const Plan* plan : plans) {
    // A deployment may have no serving plan, no change, or neither.
    if (plan == nullptr) continue;
    for (std::size_t w = 0; w < plan->workers.size(); ++w) {
      const WorkerOrdinal ordinal{static_cast<std::int32_t>(w)};
      // By id and not by ordinal: the same worker has different ordinals in two plans.
      std::int64_t& peak = bytes[plan->workers[w].id];
      peak = std::max(peak, WeightBytesOn(*plan, expert_bytes, ordinal));
    }
  }
  return bytes;
}

std::int64_t MemoryLedger::UsedByOthers(const std::string& deployment,
                                        const std::string& worker) const {
  std::int64_t used = 0;
  for (const auto& [name, bytes] : promised_) {
    // A deployment's own promise is not counted: its next plan replaces it.
    const auto it = bytes.find(worker);
    if (name != deployment && it != bytes.end()) used += it->second;
  }
  return used;
}

}  // namespace switchyard
