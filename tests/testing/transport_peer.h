// A transport in a process of its own, as workers are to a source: it takes attachments and echoes
// every frame. Driven over a socket by the test that started it.
#pragma once

#include <memory>
#include <string>
#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/session_messages.h"
#include "worker/transport/transport.h"

namespace switchyard::testing {

// A RingOffer as it goes over the socket.
std::string PackOffer(const RingOffer& offer);
RingOffer UnpackOffer(absl::string_view bytes);

// What the test's process holds. The destructor ends the other one.
class TransportPeer {
 public:
  // Starts the program transport_peer, which stands in the build's bin/.
  static std::unique_ptr<TransportPeer> Start();
  ~TransportPeer();
  TransportPeer(const TransportPeer&) = delete;
  TransportPeer& operator=(const TransportPeer&) = delete;

  // The peer makes a link, connects it to `offer` and tells its own. Errors: kUnavailable with the
  // peer's words when it could not, or is gone.
  absl::StatusOr<RingOffer> Attach(const RingOffer& offer, TransportChoice choice);
  // The peer closes all its links.
  absl::Status CloseAll();
  // SIGKILL; comes back when the process is gone.
  void Kill();
  // Asks it to end by itself; true when it exits with 0.
  bool End();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  TransportPeer(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
  absl::StatusOr<std::string> Ask(const std::string& question) const;
  int Reap();

  pid_t pid_;
  int socket_;
  bool reaped_ = false;
};

}  // namespace switchyard::testing
