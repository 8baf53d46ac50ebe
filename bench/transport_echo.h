// Two transports joined by a link, one echoing in a thread of its own: what a frame there and an
// answer back cost with nothing above the transport. Without busy_poll both sleep when there is
// nothing to do, as a worker and a source do.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "core/session_messages.h"
#include "worker/transport/loopback/hub.h"
#include "worker/transport/transport.h"

namespace switchyard::bench {

class TransportEcho {
 public:
  // `transport`: "loopback", "shm" or "tcp"; `busy_poll`: see TransportOptions. Ends the process
  // when it cannot.
  TransportEcho(const std::string& transport, std::size_t payload_max, Duration busy_poll = {});
  ~TransportEcho();

  // Stores `payload_bytes` into the slot, sends them, and waits for a frame of `reply_bytes`.
  void RoundTrip(std::size_t payload_bytes, std::size_t reply_bytes);

 private:
  class Side;

  LoopbackHub hub_;
  std::unique_ptr<Side> near_;
  std::unique_ptr<Side> far_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace switchyard::bench
