// Which worker's memory is promised to which deployment.
//
// A promise is made when an epoch is prepared, before the worker has loaded anything, so that two
// deployments that plan at the same time do not count on the same bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>

#include "core/plan.h"

namespace switchyard {

using BytesByWorker = std::map<std::string, std::int64_t>;

// The most that any of `plans` puts on each worker, in bytes of weights; null plans count for
// nothing. The largest and not the sum, because two epochs of a deployment share the experts that
// stay where they are.
BytesByWorker PeakBytes(std::int64_t expert_bytes, std::initializer_list<const Plan*> plans);

// Not thread-safe.
class MemoryLedger {
 public:
  // Replaces everything that `deployment` was promised.
  void Set(const std::string& deployment, BytesByWorker bytes) {
    promised_[deployment] = std::move(bytes);
  }
  // Bytes on `worker` that are promised to other deployments than `deployment`.
  [[nodiscard]] std::int64_t UsedByOthers(const std::string& deployment,
                                          const std::string& worker) const;

 private:
  std::map<std::string, BytesByWorker> promised_;
};

}  // namespace switchyard
