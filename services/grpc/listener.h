// The listening sockets of a server, and the thread that accepts connections for it. Every port of
// the programs but those of UCX is one of these, so that all follow the same rules.
//
// gRPC's own listener (1.51) takes connections until the process has no file descriptor left, and
// then stops accepting for good. This one keeps a reserve, which the process needs for its rings,
// files and links: a connection that would use it is closed at once, and the next one is tried
// again, so clients get in as soon as others have gone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace switchyard {

class Listener {
 public:
  // Takes a connection, which it owns from then on, of the socket that listens. Called on the
  // listener's thread, which waits for it.
  using Handler = std::function<void(int listener, int connection)>;

  // Listens on every address of `host`; port 0: any free one. Connections wait until Start. Errors:
  // kUnavailable (ADDRESS_IN_USE) if another process uses the port; kInvalidArgument (BAD_CONFIG)
  // if the address does not belong to this machine or is not permitted.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const std::string& host, int port);
  // Calls Stop.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] int port() const { return port_; }
  // Hands connections to `handler` until Stop. May be called once. `reserve_share`: so many
  // descriptors of the reserve it may use as well.
  void Start(Handler handler, int reserve_share = 0);
  // Accepts no more, and closes the sockets. Idempotent; not thread-safe.
  void Stop();

 private:
  Listener() = default;
  absl::Status BindAll(const std::string& host, int port);
  void Run();
  // Accepts what waits, at most kAcceptsInTurn. False: the process has no descriptor left.
  bool AcceptFrom(int listener);
  // Counts a connection, and writes to gRPC's log (standard error) once in a while.
  void SayRefused();

  std::vector<int> sockets_;
  int wake_ = -1;  // an eventfd that ends Run's sleep
  int port_ = 0;
  int descriptors_max_ = 0;  // connections get descriptors below this
  Handler handler_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  // Used by the thread.
  std::uint64_t refused_ = 0;
  std::chrono::steady_clock::time_point say_again_;
};

}  // namespace switchyard
