// The log of steps (step_log.h) in memory that processes of one host share: in a nameless file,
// which they pass each other as rings are (worker/transport/ring_exchange.h).
//
// Thread-safe after construction.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/rng.h"
#include "worker/collective/step_log.h"
#include "worker/transport/ring_server.h"
#include "worker/transport/shared_ring.h"

namespace switchyard {

class SharedLog {
 public:
  // A new log, given to whoever brings its key; `directory`: of sockets, as RingServer's. Errors:
  // kResourceExhausted (OUT_OF_MEMORY); those of RingServer::Start.
  static absl::StatusOr<std::unique_ptr<SharedLog>> Make(const std::string& directory, Rng* rng);
  // Another process's log. Waits for that process, at most kRingVisitMax. Errors:
  // kFailedPrecondition (TRANSPORT); the text says what to change.
  static absl::StatusOr<std::unique_ptr<SharedLog>> Open(absl::string_view key,
                                                         const std::string& directory);

  [[nodiscard]] StepLog& log() { return log_; }
  // For Open; never logged.
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  SharedLog() = default;

  std::string key_;
  InboundRing own_;  // of Make
  PeerRing peer_;    // of Open
  Descriptor wake_;  // goes along with a ring, and is not used
  StepLog log_;
  std::unique_ptr<RingServer> server_;  // last: it gives the descriptors of own_ away
};

}  // namespace switchyard
