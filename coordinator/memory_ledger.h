// Which worker's memory is promised to which deployment. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace switchyard {

class MemoryLedger {
 public:
  using BytesByWorker = std::map<std::string, std::int64_t>;

  // Replaces all that `deployment` was promised.
  void Set(const std::string& deployment, BytesByWorker bytes) {
    promised_[deployment] = std::move(bytes);
  }
  // On `worker`, by all deployments but `deployment`.
  [[nodiscard]] std::int64_t UsedByOthers(const std::string& deployment,
                                          const std::string& worker) const {
    std::int64_t used = 0;
    for (const auto& [name, bytes] : promised_) {
      const auto it = bytes.find(worker);
      if (name != deployment && it != bytes.end()) used += it->second;
    }
    return used;
  }

 private:
  std::map<std::string, BytesByWorker> promised_;
};

}  // namespace switchyard
