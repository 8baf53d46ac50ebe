// Carries a session's steps: plans them, writes chunks into credits, accepts replies, sums, and
// ends each step with its exact result or an error that names worker and layer.
//
// Steps are served in the order of submission on every attachment, so that two steps can never hold
// the credits that the other one needs. Rows are encoded and summed on a stream of the device; a
// device that completes later is polled and never waited for, but by what takes memory away from it
// at once: a link that is lost, a step that is given up, a session that closes. Nothing is
// allocated between Submit and the end of a step once the pool has grown to its largest step. One
// thread; time comes in as an argument, and the clock only measures where it went.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/session_messages.h"
#include "core/tracing/step_tracer.h"
#include "worker/device/device_backend.h"
#include "worker/routing/own_experts.h"
#include "worker/source/p2p/step.h"
#include "worker/source/p2p/stream_work.h"
#include "worker/source/runner_status.h"
#include "worker/source/step_request.h"
#include "worker/source/step_validation.h"
#include "worker/transport/transport.h"

namespace switchyard {

struct StepEngineOptions {
  Stream* stream = nullptr;  // encodes rows and sums replies
  // Steps that are on_device use these, of the device of the tensors; null: there are none.
  Stream* tensor_encodes = nullptr;
  Stream* tensor_sums = nullptr;
  std::size_t tensor_bytes_min = 0;  // DeviceBackend::source_bytes_min
  Transport* transport = nullptr;
  const Clock* clock = nullptr;
  OwnExperts* own_experts = nullptr;  // gateway; else nullptr
  Incarnation incarnation;            // of this process
  SessionId session;
  Cookie cookie;
  OpenSessionRequest request;          // of the grant: defaults filled in
  std::uint32_t chunk_rows = 0;        // a chunk has at most this many rows
  std::uint32_t steps_max = 16;        // in flight or not taken yet
  std::shared_ptr<StepTracer> tracer;  // never null
  std::size_t piece_bytes = 0;         // of x; a Pump that has encoded so much puts the rest off
};

class StepEngine {
 public:
  // The objects that the options point at outlive the engine, and every attachment of a step in
  // flight lives until FailAll.
  explicit StepEngine(StepEngineOptions options);

  // These four as in StepRunner. Submit plans the step on `bound_plan` and sends what credits
  // allow.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, BoundPlan* bound_plan,
                                    TimePoint now);
  [[nodiscard]] absl::StatusOr<bool> IsDone(const StepTicket& ticket) const;
  // device_tokens_min is 0 while a ring of the plan is not mapped. Errors: kNotFound
  // (UNKNOWN_LAYER).
  [[nodiscard]] absl::StatusOr<StepLimits> LimitsOf(const BoundPlan& bound_plan,
                                                    LayerId layer) const;
  absl::Status Take(const StepTicket& ticket, TimePoint now);

  // Sends what waits for credits or was being encoded, runs the gateway's own experts, and takes
  // sums that have ended. True when there was any. Stops after a piece of work (put_off), because
  // other sessions wait meanwhile.
  bool Pump(TimePoint now) { return Pump(now, Piece::kNew); }
  // Grows whenever credits are given up.
  [[nodiscard]] std::uint64_t given_up() const { return given_up_; }
  // The last Submit or Pump left rows that it could have encoded.
  [[nodiscard]] bool put_off() const { return put_off_; }
  // A frame in a reply slot of `attachment`. What is not believable is dropped and counted.
  void OnFrame(Attachment& attachment, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload, TimePoint now);
  // Every step that awaits `attachment` fails: kUnavailable (WORKER_LOST). On return the device
  // uses no memory of the attachment's link.
  void FailOn(Attachment& attachment, const absl::Status& why, TimePoint now);
  // Every step fails with `why`. On return nothing is with the device.
  void FailAll(const absl::Status& why, TimePoint now);
  // Ends steps whose deadline has passed: kUnavailable (STEP_DEADLINE), naming worker and layer.
  bool Expire(TimePoint now);

  // max() when no step is in flight.
  [[nodiscard]] TimePoint NextDeadline() const;
  // Submitted steps that have not ended; those that only wait to be taken do not count.
  [[nodiscard]] std::uint32_t in_flight() const {
    return static_cast<std::uint32_t>(in_flight_.size());
  }
  // Where the time of all steps so far went.
  [[nodiscard]] const StepTimes& times() const { return times_; }

 private:
  // In place of a credit: the gateway's own experts are called directly.
  static constexpr std::uint32_t kNoCredit = 0xffffffffU;

  // A place in the pool. `generation` tells the tickets of its successive steps apart.
  struct Slot {
    Step step;
    std::uint32_t generation = 0;
    bool used = false;
  };

  // kWaiting: the device's queue is full, with the work of other sessions too.
  enum class OwnState : std::uint8_t { kEncoding, kWaiting, kRunning, kEnded };
  // A chunk at the gateway's own experts: what a frame would have carried, and the answer.
  struct OwnChunkRun {
    StepId step;
    std::uint32_t chunk = 0;
    std::vector<std::byte> rows;  // data, then scales
    std::vector<std::byte> metadata;
    std::vector<Bf16> out;
    std::unique_ptr<OwnRun> run;  // kRunning
    OwnState state = OwnState::kEncoding;
  };

  // The index of a slot that no ticket names.
  absl::StatusOr<std::uint32_t> FreeSlot();
  // kUnavailable (WORKER_LOST) unless every worker that the step has rows for is attached.
  [[nodiscard]] absl::Status CheckAttached(const Step& step) const;
  // kSame goes on with the piece that the Pump before began: answers that come together free many
  // credits.
  enum class Piece : std::uint8_t { kNew, kSame };
  bool Pump(TimePoint now, Piece piece);
  // True, and set down as put off, when this Pump has encoded enough.
  bool HasEncodedEnough();
  [[nodiscard]] std::int32_t DeviceTokensMin(const BoundPlan& bound, const BoundLayer& layer) const;
  [[nodiscard]] StreamWork& EncodesOf(const Step& step);  // where the step's rows are encoded,
  [[nodiscard]] StreamWork& SumsOf(const Step& step);     // and its answers summed
  // Begins chunks of `step` to one worker while it has credits.
  bool PumpWorker(Step& step, std::int32_t worker, Attachment& attachment, TimePoint now);
  // Begins chunks of `step` that are the gateway's own experts' while there is room for them.
  bool PumpOwn(Step& step, TimePoint now);
  [[nodiscard]] bool HasRoomForOwn() const;
  absl::Status BeginOwn(Step& step, std::uint32_t chunk);
  // The rows of an own chunk are encoded: runs its experts, or lets it wait.
  absl::Status StartOwn(Step& step, std::uint32_t chunk);
  bool StartWaitingOwn(TimePoint now);
  [[nodiscard]] OwnChunkRun* FindOwn(const Step& step, std::uint32_t chunk);  // or nullptr
  // Takes the answers of own experts that have ended, and starts those that wait.
  bool PollOwn(TimePoint now, Piece piece);
  // Where metadata, scales and rows of a chunk's frame lie.
  [[nodiscard]] FrameLayout LayoutOf(const Step& step, const Chunk& chunk) const;
  // Gives the encoding of the chunk's rows of x to its stream.
  absl::Status EncodeRows(const StreamWork::Piece& piece, std::byte* data, std::byte* scales);
  // Takes what the device has completed. True when there was any.
  bool PollStream(TimePoint now);
  void OnEncoded(const StreamWork::Ended& ended, TimePoint now);
  void OnSummed(const StreamWork::Ended& ended, TimePoint now);
  // Waits until nothing is with the device, and takes it.
  void Drain(TimePoint now);
  // Writes the chunk's part of the routing, as the frame carries it, into `out`.
  void WriteMetadata(const Step& step, const Chunk& chunk, std::span<std::byte> out) const;
  // Writes the chunk's metadata into the slot of its credit and begins to encode its rows there.
  absl::Status BeginFrame(Step& step, std::uint32_t chunk);
  // The rows are encoded: writes the header and sends the frame. Errors: those of Link::Send.
  absl::Status SendFrame(Step& step, std::uint32_t chunk, TimePoint started);
  // A believable reply: matched with its credit, then with its step.
  void TakeReply(Attachment& attachment, const FrameHeader& header, const ErrorBody* error,
                 std::span<const std::byte> payload, TimePoint now);
  // True when a step waits for the reply.
  bool Accept(Attachment& attachment, const FrameHeader& header, TimePoint now);
  // The rows of a chunk have arrived.
  void OnResult(Step& step, Attachment& attachment, const FrameHeader& header,
                std::span<const std::byte> payload, TimePoint now);
  // Ends the step with `why` and gives up its credits. Ignored for a step that has ended.
  void FailStep(Step& step, absl::Status why, TimePoint now);
  // Gives up the credits of those chunks of a failed step that are in `state`.
  void GiveUp(Step& step, Step::ChunkState state, TimePoint now);
  // Gives the sum over what is complete to its stream.
  void SumTokens(Step& step, TimePoint now);
  [[nodiscard]] StepKey KeyOf(StepId step) const;
  // Removes ended steps from those in flight, and from the count of their epoch.
  void RetireDone();
  Step* FindStep(StepId id);                     // nullptr when no such step is in flight
  std::uint64_t SinceNs(TimePoint start) const;  // nanoseconds from `start` to now

  StepEngineOptions options_;
  // The pool, by pointer: a Step must not move while a ticket or the list below names it.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::uint32_t> in_flight_;  // slots of steps in flight, oldest first
  std::uint64_t last_step_ = 0;
  std::array<StreamWork, 3> lanes_;  // of the three streams
  std::size_t encoded_bytes_ = 0;    // of x, by this Pump
  bool put_off_ = false;
  // Chunks at own experts. One whose step has ended stays until the device has ended as well, since
  // it still reads and writes the chunk's memory.
  std::vector<std::unique_ptr<OwnChunkRun>> own_runs_;
  std::uint64_t given_up_ = 0;
  StepTimes times_;
};

}  // namespace switchyard
