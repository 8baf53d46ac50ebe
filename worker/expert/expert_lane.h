// One class of work of an ExpertEngine: what waits, and the batch that runs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "worker/device/stream.h"
#include "worker/expert/expert_attachment.h"
#include "worker/expert/expert_batch.h"

namespace switchyard {

// A request that was taken in. Its attachment is open: Close takes its requests out of the queues.
struct PendingRequest {
  ExpertAttachment* attachment = nullptr;
  std::uint32_t credit = 0;
  TimePoint due{};  // the earliest goes first
  TimePoint arrived{};
  bool traced = false;
};

// One batch at a time, because requests that come meanwhile make the next one larger, which reads
// each expert's weights fewer times.
struct ExpertLane {
  WorkClass work_class = WorkClass::kDecode;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<ExpertBatch> batch;
  std::vector<PendingRequest> pending;
  std::vector<PendingRequest> running;      // of the batch, in its order
  TimePoint started_at = TimePoint::max();  // the batch that runs
  // For traces: of the batch whose requests are answered.
  TimePoint began{};
  TimePoint ended{};
};

}  // namespace switchyard
