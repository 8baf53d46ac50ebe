// What a coordinator can be set to. Defaults are those of the product.
#pragma once

#include <chrono>
#include <cstddef>

#include "coordinator/dispatch_defaults.h"
#include "core/base/clock.h"

namespace switchyard {

struct CoordinatorOptions {
  // A worker without a message for this long is dead. Belongs to a worker, not to a deployment:
  // one worker serves many.
  Duration lease_ttl = std::chrono::seconds(2);
  // A worker whose stream ended is dead after this long without a new one. A live worker comes
  // back within 100 ms and nothing has happened; a killed one costs this much before the re-plan
  // (its sources fail at once, by the data plane). A new incarnation ends the grace at once.
  Duration stream_grace = std::chrono::milliseconds(300);
  // A stream on which nobody registers is closed.
  Duration register_timeout = std::chrono::seconds(5);
  // Workers that join a serving deployment within this time come into one epoch.
  Duration join_settle = std::chrono::milliseconds(100);
  // A PREPARE without answer is a NACK; staging reads weights from disk.
  Duration prepare_timeout = std::chrono::minutes(10);
  // A COMMIT without answer is a NACK; committing does no work.
  Duration commit_timeout = std::chrono::seconds(10);
  // After a failed change: the first delay doubles up to the last.
  Duration retry_first = std::chrono::milliseconds(250);
  Duration retry_last = std::chrono::seconds(5);
  // A worker that failed two changes in a row is left out for the first time, doubling up to the
  // last, where `min_workers` others are there.
  Duration quarantine_first = std::chrono::seconds(5);
  Duration quarantine_last = std::chrono::minutes(1);
  // A session without a watch is forgotten after this long.
  Duration session_linger = std::chrono::minutes(1);

  std::size_t max_streams = 1024;
  std::size_t max_deployments = 64;
  std::size_t max_sessions = 4096;  // and as many watches

  // Stamped on deployments when they are applied.
  DispatchDefaults dispatch = {};
};

}  // namespace switchyard
