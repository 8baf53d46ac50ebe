// The hub that joins the loopback transports of one process. Made by main (or a test) and passed to
// each transport; it outlives them. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard {

class LoopbackMailbox;

class LoopbackHub {
 public:
  LoopbackHub() = default;
  LoopbackHub(const LoopbackHub&) = delete;
  LoopbackHub& operator=(const LoopbackHub&) = delete;

  // What kill -9 is to a process: the transport at `address` (RingOffer.address) gets and sends
  // nothing more, and each link to it goes down at the other end. No effect on an unknown address.
  void Kill(absl::string_view address);

 private:
  friend class LoopbackTransport;
  friend class LoopbackLink;

  struct Place {
    std::string address;
    std::shared_ptr<LoopbackMailbox> mailbox;
  };
  absl::StatusOr<Place> Open(Duration spin);
  std::shared_ptr<LoopbackMailbox> Find(absl::string_view address);
  void Forget(const std::string& address);

  Mutex mutex_;
  std::uint64_t opened_ SY_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<LoopbackMailbox>> mailboxes_
      SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
