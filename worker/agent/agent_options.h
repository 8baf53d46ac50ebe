// Options of a worker's agent. The defaults are the product's.
#pragma once

#include <chrono>
#include <string>

#include "core/base/clock.h"
#include "core/capability.h"
#include "core/ids.h"

namespace switchyard {

struct AgentOptions {
  std::string worker_id;    // stable name, e.g. of its Pod; [A-Za-z0-9._-], 1 to 128 characters
  Incarnation incarnation;  // random; new each time the process starts
  LifeSecret secret;        // likewise
  std::string pool;         // that deployments may name; empty: none
  std::string release;      // of this program, such as "0.1.0"; for people
  std::string endpoint;     // this worker's ExpertService, "host:port"
  // Proved by self-tests before the agent starts; they do not change during its life.
  CapabilitySet capabilities;

  // Delays between dials: the first one doubles up to the last one. Each delay is drawn from the
  // upper half of its range, so that workers do not reconnect all at once.
  Duration redial_first = std::chrono::milliseconds(100);
  Duration redial_last = std::chrono::seconds(5);
  // A stream without Registered after this time is closed and dialed again.
  Duration register_timeout = std::chrono::seconds(5);
  // After Leave: how long to wait until this worker's experts serve elsewhere, while the
  // coordinator can be reached; and for a coordinator that cannot, by a worker that sources use,
  // whose steps go on meanwhile. In all at most the sum.
  Duration leave_timeout = std::chrono::seconds(25);
  Duration leave_alone_timeout = std::chrono::seconds(10);
  // The second of a worker with a committed epoch that no source uses: a coordinator that restarts
  // can plan it out before a source comes. Longer than the last delay between dials.
  Duration leave_unused_timeout = std::chrono::seconds(10);
};

}  // namespace switchyard
