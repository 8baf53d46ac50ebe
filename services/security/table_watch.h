// The table of identities as it is now: the file is looked at again, at most once a second, when
// somebody asks. A new file that cannot be read or is wrong changes nothing, and is logged once.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "services/security/identity_table.h"

namespace switchyard {

class TableWatch {
 public:
  using Load = std::function<absl::StatusOr<IdentityTable>()>;
  inline static constexpr Duration kInterval = std::chrono::seconds(1);

  // Errors: those of `load`, which is called now and later, by one thread at a time. `logger`
  // outlives this object; it may be null.
  static absl::StatusOr<std::shared_ptr<TableWatch>> Create(Load load,
                                                            std::shared_ptr<const Clock> clock,
                                                            Logger* logger);

  // Never null.
  std::shared_ptr<const IdentityTable> Now();

 private:
  TableWatch(Load load, std::shared_ptr<const Clock> clock, Logger* logger, IdentityTable first);
  void Reload() SY_REQUIRES(mutex_);

  const Load load_;
  const std::shared_ptr<const Clock> clock_;
  Logger* const logger_;
  Mutex mutex_;
  TimePoint next_ SY_GUARDED_BY(mutex_);
  std::string last_error_ SY_GUARDED_BY(mutex_);
  std::shared_ptr<const IdentityTable> table_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
