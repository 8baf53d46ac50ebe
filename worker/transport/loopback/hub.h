// The hub that connects the loopback transports of one process. The main function (or a test)
// creates it and passes it to each transport, so that there is no global registry and two
// deployments in one process stay separate. It must outlive the transports. Thread-safe.
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

// Thread-safe: each function holds the mutex only while it uses the map.
class LoopbackHub {
 public:
  LoopbackHub() = default;
  LoopbackHub(const LoopbackHub&) = delete;
  LoopbackHub& operator=(const LoopbackHub&) = delete;

  // Simulates kill -9: the transport at `address` (RingOffer.address) stops sending and receiving,
  // and every link to it goes down at the other end. Does nothing for an unknown address.
  void Kill(absl::string_view address);

 private:
  friend class LoopbackTransport;
  friend class LoopbackLink;

  // One open transport.
  struct Place {
    std::string address;
    std::shared_ptr<LoopbackMailbox> mailbox;
  };
  // Registers a new transport. Errors: those of Sleeper::Create.
  absl::StatusOr<Place> Open(Duration busy_poll);
  // The mailbox at `address`; null if no transport has it.
  std::shared_ptr<LoopbackMailbox> Find(absl::string_view address);
  // Removes a transport that closes. Links to it keep its mailbox alive.
  void Forget(const std::string& address);

  Mutex mutex_;
  std::uint64_t opened_ SY_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<LoopbackMailbox>> mailboxes_
      SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
