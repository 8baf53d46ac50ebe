// Gives the rings that this process offers to the peers that come for them (ring_exchange.h).
//
// A thread of its own serves, so that a peer never waits for a data thread. It sleeps unless
// somebody connects. Strangers cost little: each connection may send one secret, and until then the
// last kVisitorsMax are kept, each for kVisitorTime; a longer queue waits in the kernel. What else
// they send, descriptors included, is closed unread.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/transport/local_socket.h"
#include "worker/transport/ring_exchange.h"

namespace switchyard {

// Connections that have not sent a secret yet. A peer sends it at once, so only strangers stay.
inline constexpr std::size_t kVisitorsMax = 16;
inline constexpr Duration kVisitorTime = std::chrono::seconds(1);

class RingServer {
 public:
  // Listens in `directory`; empty: in the network namespace. Errors: those of LocalListener::Open.
  static absl::StatusOr<std::unique_ptr<RingServer>> Start(const std::string& directory,
                                                           const SocketName& name);
  // Ends the thread. Connections of visitors end.
  ~RingServer();
  RingServer(const RingServer&) = delete;
  RingServer& operator=(const RingServer&) = delete;

  // From now on a visitor with `secret` gets copies of both descriptors, as often as it comes. They
  // stay the caller's and open until Withdraw. There are as many offers as rings, each with a
  // connection at most.
  void Offer(const RingSecret& secret, int file, int wake);
  // Ends the offer. The result is the connection of the last visitor that was served, for
  // TakeHandedOver; empty if there was none.
  Descriptor Withdraw(const RingSecret& secret);

 private:
  struct Offered {
    int file = -1;
    int wake = -1;
    Descriptor visitor;
  };
  // A connection without a secret so far.
  struct Visitor {
    Descriptor connection;
    TimePoint until;
  };

  RingServer(std::string directory, LocalListener listener, Descriptor stop);
  void Run();
  // Sleeps until there is something to do. False at the end.
  bool Wait();
  void Accept(TimePoint now);
  // True if the visitor has been served or refused; false if it has to be waited for.
  bool Serve(Descriptor* connection);
  void Answer(const RingSecret& secret, Descriptor* connection);

  const std::string directory_;
  const LocalListener listener_;
  const Descriptor stop_;  // an eventfd

  // Used by the thread only.
  std::vector<Visitor> visitors_;  // the oldest first
  TimePoint deaf_until_{};         // accepting failed: no descriptors are left

  Mutex mutex_;
  std::map<RingSecret, Offered> offers_ SY_GUARDED_BY(mutex_);

  std::thread thread_;  // last: starts when all above exists
};

}  // namespace switchyard
