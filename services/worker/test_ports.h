// Ports that show a peer whether it can connect to this process.
//
// Those for rows cannot: they let nobody in whom the transport does not expect. A test port is a
// listening socket at the same addresses, and in the same range if the transport has one, so that
// what a firewall lets through to it, it lets through to the transport. Nobody accepts or reads
// what comes: the kernel answers, and the connections end with the socket. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/port_range.h"
#include "worker/transport/descriptor.h"

namespace switchyard {

// How long a port stays open, unless kTestPortsMax newer ones are: until the next Open or Close. In
// the first half of it, Open gives it again.
inline constexpr Duration kTestPortTime = std::chrono::seconds(5);
inline constexpr std::size_t kTestPortsMax = 8;

class TestPorts {
 public:
  // `hosts`: IP addresses as text. `ports`: those to choose from.
  TestPorts(std::vector<std::string> hosts, PortRange ports)
      : hosts_(std::move(hosts)), ports_(ports) {}
  TestPorts(const TestPorts&) = delete;
  TestPorts& operator=(const TestPorts&) = delete;

  // Opens one at each host and returns them, "host:port". Hosts at which none can be opened are
  // left out. Closes those whose time is over at `now`.
  std::vector<std::string> Open(TimePoint now);
  // Closes those whose time is over at `now`, so that the last one does not stay open for
  // strangers.
  void Close(TimePoint now);

 private:
  struct Port {
    Descriptor socket;
    std::string host;
    std::string address;  // "host:port"
    TimePoint until;
  };

  void CloseOld(TimePoint now) SY_REQUIRES(mutex_);

  const std::vector<std::string> hosts_;
  const PortRange ports_;
  Mutex mutex_;
  std::deque<Port> open_ SY_GUARDED_BY(mutex_);  // the oldest first
};

// Whether a connection to one of `ports`, "host:port" with an IP address, is established within
// `time`. Blocks until then.
bool ConnectsToAny(const std::vector<std::string>& ports, Duration time);

}  // namespace switchyard
