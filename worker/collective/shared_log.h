// The log of steps (step_log.h) in memory that processes of one host share: in a nameless file,
// which they pass each other as rings are (worker/transport/ring_exchange.h).
//
// A log has no owner: whoever follows it offers it on under a key of its own, so that it can be
// reached for as long as one of its followers lives.
//
// Thread-safe after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
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
  // A log that another process offers. Waits for that process, at most kRingVisitMax. Errors:
  // kFailedPrecondition (TRANSPORT); the text says what to change.
  static absl::StatusOr<std::unique_ptr<SharedLog>> Open(absl::string_view key,
                                                         const std::string& directory);
  // After Open: gives the log, under a new key(), to whoever brings that. Errors: as Make's.
  absl::Status Offer(const std::string& directory, Rng* rng);

  // A log has one id, whoever offers it: that of the log that `key` leads to. Errors: as Open's,
  // for what is no key.
  static absl::StatusOr<std::uint64_t> IdOf(absl::string_view key);

  [[nodiscard]] StepLog& log() { return log_; }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  // For Open; never logged.
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  SharedLog() = default;
  absl::Status Serve(const std::string& directory, Rng* rng, int file);

  std::string key_;
  std::uint64_t id_ = 0;
  InboundRing own_;  // of Make
  PeerRing peer_;    // of Open
  Descriptor file_;  // of Open
  Descriptor wake_;  // goes along with a ring, and is not used
  StepLog log_;
  std::unique_ptr<RingServer> server_;  // last: it gives the descriptors away
};

}  // namespace switchyard
