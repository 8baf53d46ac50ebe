// The listening sockets of a gRPC server, and the thread that accepts connections for it.
//
// gRPC's own listener (1.51) takes connections until the process has no file descriptor left, and
// then stops accepting for good. This one keeps a reserve, which the process needs for its rings,
// files and links: a connection that would use it is closed at once, and the next one is tried
// again, so clients get in as soon as others have gone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/server_builder.h"

namespace switchyard {

class GrpcListener {
 public:
  using Acceptor = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  // Listens on every address of `host`; port 0: any free one. Connections wait until Start. Errors:
  // kUnavailable (ADDRESS_IN_USE) if another process uses the port; kInvalidArgument (BAD_CONFIG)
  // if the address does not belong to this machine or is not permitted.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Bind(const std::string& host, int port);
  // Calls Stop.
  ~GrpcListener();
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  [[nodiscard]] int port() const { return port_; }
  // Hands connections to `acceptor`, whose server must have started, until Stop. May be called
  // once.
  void Start(Acceptor acceptor);
  // Accepts no more, and closes the sockets. Idempotent; not thread-safe.
  void Stop();

 private:
  GrpcListener() = default;
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
  Acceptor acceptor_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  // Used by the thread.
  std::uint64_t refused_ = 0;
  std::chrono::steady_clock::time_point say_again_;
};

}  // namespace switchyard
