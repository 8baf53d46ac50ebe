// What a worker's agent can be set to. Defaults are those of the product.
#pragma once

#include <chrono>
#include <string>

#include "core/base/clock.h"
#include "core/capability.h"
#include "core/ids.h"
#include "core/mutant.h"

namespace switchyard {

struct AgentOptions {
  std::string worker_id;    // stable name, e.g. the Pod's; [A-Za-z0-9._-], 1 to 128 characters
  Incarnation incarnation;  // random, one for each life of the process
  std::string endpoint;     // this worker's ExpertService, "host:port"
  CapabilitySet capabilities;

  // Re-dialling: the first delay doubles up to the last; each is drawn from its upper half.
  Duration redial_first = std::chrono::milliseconds(100);
  Duration redial_last = std::chrono::seconds(5);
  // A stream that brings no Registered within this time is given up.
  Duration register_timeout = std::chrono::seconds(5);
  // After Leave: how long to wait for Goodbye, in all and while the coordinator is away.
  Duration drain_timeout = std::chrono::seconds(10);
  Duration drain_alone_timeout = std::chrono::seconds(1);

  MutantId mutant = MutantId::kNone;
};

}  // namespace switchyard
