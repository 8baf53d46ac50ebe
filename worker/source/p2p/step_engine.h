// Carries a session's steps: plans them, writes chunks into credits, accepts replies, sums, and
// ends each step with its exact result or an error that names worker and layer.
//
// Steps are served in the order of submission on every attachment, so that two steps can never hold
// the credits that the other one needs. Nothing is allocated between Submit and the end of a step
// once the pool has grown to its largest step. One thread; time comes in as an argument, and the
// clock only measures where it went.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/mutant.h"
#include "core/session_messages.h"
#include "worker/device/device_backend.h"
#include "worker/source/own_experts.h"
#include "worker/source/p2p/step.h"
#include "worker/transport/transport.h"

namespace switchyard {

// Names a step to its submitter: used once, for Take.
struct StepTicket {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  friend constexpr bool operator==(const StepTicket&, const StepTicket&) = default;
};

struct StepEngineOptions {
  const DeviceBackend* device = nullptr;
  Transport* transport = nullptr;
  const Clock* clock = nullptr;
  OwnExperts* own_experts = nullptr;  // gateway; else nullptr
  Incarnation incarnation;            // of this process
  SessionId session;
  Cookie cookie;
  OpenSessionRequest order;  // of the grant: defaults filled in
  std::uint32_t chunk_rows = 0;
  std::uint32_t steps_max = 16;  // in flight or not taken yet
  MutantId mutant = MutantId::kNone;
};

// Where the time of steps went: nanoseconds, summed over all of them.
struct StepTimes {
  std::uint64_t steps = 0;
  std::uint64_t plan_ns = 0;
  std::uint64_t encode_ns = 0;
  std::uint64_t send_ns = 0;
  std::uint64_t sum_ns = 0;
};

class StepEngine {
 public:
  explicit StepEngine(StepEngineOptions options);

  // Plans the step and sends what credits allow. Errors: kInvalidArgument (BAD_SHAPE, BAD_TOP_K,
  // TOO_MANY_TOKENS, EXPERT_OUT_OF_RANGE, DUPLICATE_EXPERT, NAN_INPUT); kNotFound (UNKNOWN_LAYER);
  // kUnavailable (WORKER_LOST) when a worker that the step needs is not attached;
  // kResourceExhausted (NO_CREDITS) when steps_max are not taken yet.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, BoundPlan* binding, TimePoint now);
  // kFailedPrecondition (STAGE_ORDER) for a ticket that was taken or never given out.
  absl::StatusOr<bool> Done(const StepTicket& ticket) const;
  // The result of a step; the ticket is used up. A step that is not done is given up (kCancelled).
  absl::Status Take(const StepTicket& ticket, TimePoint now);

  // Sends what waits for credits and runs own experts. True when there was any.
  bool Pump(TimePoint now);
  void OnFrame(Attachment& attachment, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload, TimePoint now);
  // Every step that awaits `attachment` fails: kUnavailable (WORKER_LOST).
  void FailOn(Attachment& attachment, const absl::Status& why, TimePoint now);
  void FailAll(const absl::Status& why, TimePoint now);
  // Ends steps whose deadline has passed: kUnavailable (STEP_DEADLINE), naming worker and layer.
  bool Expire(TimePoint now);

  [[nodiscard]] std::optional<TimePoint> NextDeadline() const;
  [[nodiscard]] std::uint32_t in_flight() const {
    return static_cast<std::uint32_t>(order_.size());
  }
  [[nodiscard]] const StepTimes& times() const { return times_; }

 private:
  struct Slot {
    Step step;
    std::uint32_t generation = 0;
    bool used = false;
  };

  absl::StatusOr<std::uint32_t> FreeSlot();
  [[nodiscard]] absl::Status CheckAttached(const Step& step) const;
  bool PumpWorker(Step& step, std::int32_t worker, Attachment& attachment, TimePoint now);
  bool PumpOwn(Step& step, TimePoint now);
  absl::Status RunOwn(Step& step, std::uint32_t chunk);
  [[nodiscard]] FrameLayout LayoutOf(const Step& step, const Chunk& chunk) const;
  void RoundTripRows(const Codec& codec, std::int32_t hidden);
  void CollectRows(const Step& step, const Chunk& chunk);
  void WriteMetadata(const Step& step, const Chunk& chunk, std::span<std::byte> out) const;
  std::size_t FillFrame(const Step& step, std::uint32_t chunk, const Attachment& attachment,
                        std::uint32_t pair, std::span<std::byte> slot);
  void TakeReply(Attachment& attachment, const FrameHeader& header, const ErrorBody* error,
                 std::span<const std::byte> payload, TimePoint now);
  // True when the reply was one that was waited for.
  bool Accept(Attachment& attachment, const FrameHeader& header);
  void OnResult(Step& step, Attachment& attachment, const FrameHeader& header,
                std::span<const std::byte> payload, TimePoint now);
  void FailStep(Step& step, absl::Status why, TimePoint now);
  void FinishTokens(Step& step);
  void RetireDone();
  Step* FindStep(StepId id);
  std::uint64_t SinceNs(TimePoint start) const;

  StepEngineOptions options_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::uint32_t> order_;  // slots of steps in flight, oldest first
  std::uint64_t last_step_ = 0;
  std::vector<const Bf16*> row_pointers_;  // scratch of one chunk
  std::vector<std::byte> own_metadata_;    // scratch of one chunk
  std::vector<std::byte> own_wire_;        // of own experts' rows in another dtype than BF16
  std::vector<Bf16> own_rows_;             // the same, decoded again
  StepTimes times_;
};

}  // namespace switchyard
