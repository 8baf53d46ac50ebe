// Steps of a group of devices (worker/device/exchange.h) as a stream knows them.
//
// A step waits for other ranks, and while it does, its device has to go on with other work. So a
// step does not occupy the compute thread while it waits: it goes on in parts, each of which begins
// when it is ready, and the stream's later work follows the last part.
#pragma once

#include "worker/device/exchange.h"
#include "worker/device/host/other_work.h"

namespace switchyard {

// One rank's side of its group. The compute thread calls both, for one step after the other.
class StepParts {
 public:
  virtual ~StepParts() = default;
  // Cheap: called again and again, also between the experts of other streams' runs.
  [[nodiscard]] virtual bool Ready() const = 0;
  // Performs the next part of the step; true when that was the last one. REQUIRES: Ready().
  // `others` as in HostRun::Execute.
  virtual bool Advance(const ExchangeStep& step, const OtherWork& others) = 0;
};

// A step in a stream's queue.
struct QueuedStep {
  StepParts* parts = nullptr;
  ExchangeStep step;
};

}  // namespace switchyard
