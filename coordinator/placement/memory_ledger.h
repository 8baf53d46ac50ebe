// Which worker's memory is promised to which deployment.
//
// A promise is made when an epoch is prepared, before the worker has loaded anything, so that two
// deployments that plan at the same time do not count on the same bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/plan.h"

namespace switchyard {

using BytesByWorker = std::map<std::string, std::int64_t>;

// The weights that workers hold for one plan.
struct HeldWeights {
  const Plan* plan = nullptr;  // null: none
  std::int64_t expert_bytes = 0;
};

// True when the two plans are of the same checkpoint, so that a worker of both keeps one copy of an
// expert for both. False when one is null.
bool ShareWeights(const Plan* a, const Plan* b);

// Bytes of weights on each worker while `serving` still serves and `changing` is prepared: an
// expert that stays counts once, and two checkpoints share nothing.
BytesByWorker BytesOfBoth(const HeldWeights& serving, const HeldWeights& changing);

// Not thread-safe.
class MemoryLedger {
 public:
  // Replaces everything that `deployment` was promised.
  void Set(const std::string& deployment, BytesByWorker bytes) {
    promised_[deployment] = std::move(bytes);
  }
  void Forget(const std::string& deployment) { promised_.erase(deployment); }
  // Bytes on `worker` that are promised to other deployments than `deployment`.
  [[nodiscard]] std::int64_t UsedByOthers(const std::string& deployment,
                                          const std::string& worker) const;

 private:
  std::map<std::string, BytesByWorker> promised_;
};

}  // namespace switchyard
