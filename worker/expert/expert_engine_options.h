// Limits, times and callbacks of an ExpertEngine. The defaults are the product's. The callbacks
// come from the engine's thread and must not call the engine back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/tracing/step_tracer.h"
#include "worker/expert/batch_memory.h"
#include "worker/expert/expert_attachment.h"
#include "worker/expert/expert_times.h"
#include "worker/expert/layer_runtime.h"

namespace switchyard {

// Attachments of one session: the one that it uses, and one with larger slots that replaces it when
// the first one's steps have ended.
inline constexpr std::size_t kAttachmentsOfSessionMax = 2;

struct ExpertEngineOptions {
  ExpertAttachment::Identity identity;
  std::uint32_t attachments_max = 256;       // of all sessions
  std::uint32_t slots_max = 64;              // pairs of one attachment
  std::uint32_t slot_bytes_max = 64U << 20;  // of one slot
  // The most for all attachments, as ExpertAttachment::BytesOf counts: rings both ways, metadata.
  std::uint64_t attachment_bytes_max = 8ULL << 30;
  // How long after its retirement sources may start steps on an epoch; these have their deadlines.
  Duration retire_grace = std::chrono::seconds(5);
  BatchOptions batch;
  // Where the engine measures; others may read and write there too.
  std::shared_ptr<ExpertTimes> times = std::make_shared<ExpertTimes>();
  // Which requests are traced, and where what is written down about them goes.
  std::shared_ptr<StepTracer> tracer = std::make_shared<StepTracer>();
  // For measuring only; outlives the engine. Null: measured as exactly as it is polled.
  const Clock* clock = nullptr;
  // Called when the engine itself closes an attachment: its link broke, or it binds nothing more.
  std::function<void(AttachmentId, const absl::Status& why)> on_closed;
  // Called when the engine ends a binding of a retired epoch that is overdue.
  std::function<void(AttachmentId, const EpochRuntime&)> on_overdue;
  // Called once, at the first batch that fails with failure scope `worker`: the device is gone, and
  // every later request gets the same error.
  std::function<void(const absl::Status& why)> on_device_fault;
};

}  // namespace switchyard
