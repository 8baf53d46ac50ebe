// A program on a host without peers that connects to ports of UCX, all the time.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

namespace switchyard::testing {

// Whether a connection from 127.0.0.2 to this port of 127.0.0.1 is made at once.
bool LetsStrangerIn(std::uint16_t port);

// Connects in this way on a thread of its own.
class Stranger {
 public:
  explicit Stranger(std::vector<std::uint16_t> ports);
  ~Stranger() { Stop(); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void Stop();
  // After Stop: connections that were made, and how often each port was tried.
  [[nodiscard]] int connected() const { return connected_; }
  [[nodiscard]] int rounds() const { return rounds_; }

 private:
  void TryAll();

  const std::vector<std::uint16_t> ports_;
  int connected_ = 0;
  int rounds_ = 0;
  std::jthread thread_;  // last: starts when all above exists
};

}  // namespace switchyard::testing
