#include "services/security/table_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"

namespace switchyard {

absl::StatusOr<std::shared_ptr<TableWatch>> TableWatch::Create(Load load,
                                                               std::shared_ptr<const Clock> clock,
                                                               Logger* logger) {
  SY_ASSIGN_OR_RETURN(IdentityTable first, load());
  return std::shared_ptr<TableWatch>(
      new TableWatch(std::move(load), std::move(clock), logger, std::move(first)));
}

TableWatch::TableWatch(Load load, std::shared_ptr<const Clock> clock, Logger* logger,
                       IdentityTable first)
    : load_(std::move(load)),
      clock_(std::move(clock)),
      logger_(logger),
      next_(clock_->Now() + kInterval),
      table_(std::make_shared<const IdentityTable>(std::move(first))) {}

std::shared_ptr<const IdentityTable> TableWatch::Now() {
  const MutexLock lock(mutex_);
  if (clock_->Now() >= next_) Reload();
  return table_;
}

void TableWatch::Reload() {
  next_ = clock_->Now() + kInterval;
  absl::StatusOr<IdentityTable> read = load_();
  const std::string error = read.ok() ? "" : std::string(read.status().message());
  if (read.ok()) table_ = std::make_shared<const IdentityTable>(*std::move(read));
  // The same error every second would fill the log.
  if (error != last_error_ && logger_ != nullptr) {
    if (error.empty()) logger_->Info("identities: the file is right again");
    if (!error.empty()) logger_->Warn("%s; the identities stay as they were", error);
  }
  last_error_ = error;
}

}  // namespace switchyard
