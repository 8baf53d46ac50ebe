// What a driver is made with, besides its parts (coordinator/driver.h). Plain data.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "coordinator/events.h"
#include "coordinator/options.h"
#include "core/base/clock.h"
#include "model/expert_weights.h"

namespace switchyard {

// Connects to a worker at its endpoint and asks who it is. Calls `done` exactly once, within
// seconds, from any thread, also during the call. Called on the driver's thread; must not block.
using DialFunction =
    std::function<void(const DialWorker& request, std::function<void(absl::Status)> done)>;

// Reads a checkpoint: sizes, layers and the hash of every expert tensor. May take minutes, and
// calls `progress` meanwhile, from the same thread. Called on a thread that may outlive the driver
// (see Shutdown).
using ModelLoader = std::function<absl::StatusOr<ModelFacts>(const std::string& checkpoint,
                                                             const ManifestProgress& progress)>;

struct DriverOptions {
  CoordinatorOptions coordinator;
  // A row of placement/registry.h.
  std::string placement = "sticky";
  // Events waiting; beyond it calls are refused.
  std::size_t queue_max = 4096;
  // How often leases and time-outs are checked.
  Duration tick = std::chrono::milliseconds(50);
};

}  // namespace switchyard
