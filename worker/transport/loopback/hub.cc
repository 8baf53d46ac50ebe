#include "worker/transport/loopback/hub.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "worker/transport/loopback/mailbox.h"

namespace switchyard {

absl::StatusOr<LoopbackHub::Place> LoopbackHub::Open(Duration busy_poll) {
  SY_ASSIGN_OR_RETURN(std::unique_ptr<Sleeper> sleeper,
                      Sleeper::Create(Sleeper::kNoWorkFds, busy_poll));
  const MutexLock lock(mutex_);
  Place place{absl::StrCat("loopback-", ++opened_),
              std::make_shared<LoopbackMailbox>(std::move(sleeper))};
  mailboxes_[place.address] = place.mailbox;
  return place;
}

std::shared_ptr<LoopbackMailbox> LoopbackHub::Find(absl::string_view address) {
  const MutexLock lock(mutex_);
  const auto found = mailboxes_.find(address);
  return found == mailboxes_.end() ? nullptr : found->second;
}

void LoopbackHub::Forget(const std::string& address) {
  const MutexLock lock(mutex_);
  mailboxes_.erase(address);
}

void LoopbackHub::Kill(absl::string_view address) {
  // Die outside of the hub's lock, because it notifies other mailboxes.
  if (const auto mailbox = Find(address)) mailbox->Die();
}

}  // namespace switchyard
