// The parts of a gateway's memory for steps that tenants may take. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/mutex.h"
#include "core/tenants/tenant.h"
#include "services/worker/step_memory.h"

namespace switchyard {

class TenantMemory {
 public:
  // `all` is what the steps of all callers share.
  explicit TenantMemory(std::shared_ptr<StepMemory> all) : all_(std::move(all)) {}

  // For the steps of a caller of `tenant`: a part of all that its callers share while one of them
  // has it, with the limit of whoever came last; all of it if the tenant has no limit or is null.
  std::shared_ptr<StepMemory> Of(const Tenant* tenant) {
    if (tenant == nullptr || !tenant->gateway_memory_bytes_max) return all_;
    const MutexLock lock(mutex_);
    std::erase_if(parts_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<StepMemory>& known = parts_[tenant->name];
    std::shared_ptr<StepMemory> part = known.lock();
    if (part == nullptr) {
      part = std::make_shared<StepMemory>(*tenant->gateway_memory_bytes_max, all_);
      known = part;
    }
    part->set_bytes_max(*tenant->gateway_memory_bytes_max);
    return part;
  }

 private:
  const std::shared_ptr<StepMemory> all_;
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<StepMemory>> parts_ SY_GUARDED_BY(mutex_);  // by name
};

}  // namespace switchyard
