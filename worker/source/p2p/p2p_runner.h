// The runner of the p2p binding: attached to every worker of its plan, it sends each worker's rows
// as frames into that worker's ring and sums the replies.
//
//   EpochBinder   attachments, and the move from epoch to epoch
//   StepEngine    steps: plan, encode, send, accept, sum
//
// It has no threads of its own: Poll and the transport's callbacks drive it, and time comes in as
// an argument (the clock serves the callbacks and measures).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/rng.h"
#include "core/session_messages.h"
#include "worker/source/p2p/attachment.h"
#include "worker/source/p2p/epoch_binder.h"
#include "worker/source/p2p/step_engine.h"
#include "worker/source/session_channel.h"
#include "worker/source/step_runner.h"

namespace switchyard {

// Pointers outlive the runner.
struct P2pRunnerOptions {
  SessionChannel* channel = nullptr;      // attaches to workers
  Transport* transport = nullptr;         // makes the links; the Source drives it
  const DeviceBackend* device = nullptr;  // makes the codecs
  std::unique_ptr<Stream> stream;         // of the device: encodes rows and sums replies
  // The device of the session's tensors, if steps may be on_device; else null. It maps the rings
  // and has codecs; its streams are for StepEngineOptions, and wake.
  std::shared_ptr<DeviceBackend> tensors;
  std::unique_ptr<Stream> tensor_encodes;
  std::unique_ptr<Stream> tensor_sums;
  const Clock* clock = nullptr;
  Rng* rng = nullptr;  // jitter of retries
  std::shared_ptr<StepTracer> tracer = std::make_shared<StepTracer>();
  std::function<void()> wake;         // from any thread: Poll is due
  OwnExperts* own_experts = nullptr;  // gateway
  std::string own_worker_id;          // gateway
  Incarnation incarnation;            // of this process
  SessionGrant grant;
  TransportChoice transport_choice = TransportChoice::kAuto;
  std::uint32_t credits = 8;  // of each attachment
  // A chunk, and so a slot, holds at most this many rows: larger slots cost memory on both sides,
  // smaller ones a message for fewer rows.
  std::uint32_t chunk_rows_max = 1024;
  // The session's reply rings for all workers together take at most this; its request rings there
  // are as large at most.
  std::size_t ring_bytes_max = std::size_t{768} << 20;
  // Submit and Poll put the rest off when they have encoded so much of x (StepRunner::put_off),
  // some tenths of a millisecond. A chunk is not cut: of 1024 rows of hidden 7168 it has 14 MiB.
  std::size_t piece_bytes = std::size_t{1} << 20;
  // How long a worker may owe the reply to a step that was given up, without answering anything
  // that was sent before it, until its attachment closes. A batch of another session may take some
  // seconds.
  Duration given_up_max = std::chrono::seconds(10);
};

class P2pRunner final : public StepRunner {
 public:
  // Does nothing yet: Start attaches.
  explicit P2pRunner(P2pRunnerOptions options);
  ~P2pRunner() override;

  // Begins to attach to every worker of the granted plan.
  absl::Status Start(TimePoint now) override;
  // Attaches and binds for the new plan beside the current one (epoch_binder.h).
  void OnPlan(const PlanUpdate& update, TimePoint now) override;
  // Handles the channel's events, deadlines and retries; frames come through OnFrame.
  RunnerProgress Poll(TimePoint now) override;
  // Where a worker is lost, the error also says what the coming epoch waits for.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, TimePoint now) override;
  [[nodiscard]] bool put_off() const override { return engine_.put_off(); }
  [[nodiscard]] absl::StatusOr<bool> IsDone(const StepTicket& ticket) const override {
    return engine_.IsDone(ticket);
  }
  absl::Status Take(const StepTicket& ticket, TimePoint now) override {
    return engine_.Take(ticket, now);
  }
  [[nodiscard]] absl::StatusOr<StepLimits> LimitsOf(LayerId layer) const override;
  // Closes every link by force: workers that still write do so into memory that is not used again.
  void Close(TimePoint now) override;
  [[nodiscard]] Epoch epoch() const override;
  [[nodiscard]] RunnerStatus Status() const override;

  // OK once every worker of a plan was attached; before, kUnavailable (NOT_READY) with the last
  // error. Any other code is final.
  [[nodiscard]] absl::Status ready() const;
  [[nodiscard]] const SessionGrant& grant() const { return options_.grant; }
  // The plan that steps run on now; nullptr while the session opens.
  [[nodiscard]] const BoundPlan* bound_plan() const { return binder_.current(); }
  // Submitted and not taken yet.
  [[nodiscard]] std::uint32_t steps_in_flight() const { return engine_.in_flight(); }

  // From the transport, for the link of `attachment`, which is one of this runner's.
  void OnFrame(Attachment& attachment, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload);
  // Takes the attachment down; its steps fail, and a retry is scheduled.
  void OnLinkDown(Attachment& attachment, const absl::Status& why);

 private:
  // Is OK while steps can be submitted.
  [[nodiscard]] absl::Status CheckOpen() const;
  // Passes the channel's events to the binder.
  bool HandleEvents(TimePoint now);
  // When the worker counts as silent, by given_up_max; max(): it owes no such reply.
  [[nodiscard]] TimePoint SilentAt(const Attachment& attachment) const;
  // Closes attachments whose workers are silent.
  bool LoseStuckAttachments(TimePoint now);
  // When something is due: a step's deadline, a retry, a grace, a stuck credit.
  [[nodiscard]] TimePoint WakeAt() const;

  P2pRunnerOptions options_;
  const std::shared_ptr<AttachEventQueue> events_;
  std::vector<AttachEvent> taken_;  // scratch of HandleEvents
  // When the first attachment counts as silent, if no more credits were given up than these.
  TimePoint stuck_at_ = TimePoint::max();
  std::uint64_t seen_given_up_ = 0;
  StepEngine engine_;
  EpochBinder binder_;
  bool closed_ = false;
};

}  // namespace switchyard
