// The chunks that a gateway's own experts compute: no frame, no credit, one call.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/routing/request_codec.h"
#include "worker/source/p2p/step_engine.h"

namespace switchyard {
namespace {

// Chunks of a session that are encoded, queued or computed at once: one that the device computes
// and one that it goes on with. All sessions of the gateway share its queue, and where it has
// memory of its own, the staging memory for two chunks.
constexpr int kOwnRunsMax = 2;

bool IsQueueFull(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && ReasonOf(status) == Reason::kNoCredits;
}

}  // namespace

// Counted anew each time, because runs end in five places.
bool StepEngine::HasRoomForOwn() const {
  int open = 0;
  for (const auto& own : own_runs_) {
    // No chunk goes before one that waits.
    if (own->state == OwnState::kWaiting) return false;
    open += own->state != OwnState::kEnded ? 1 : 0;
  }
  return open < kOwnRunsMax && lanes_[0].has_room_for_encode();
}

StepEngine::OwnChunkRun* StepEngine::FindOwn(const Step& step, std::uint32_t chunk) {
  const auto own = std::find_if(own_runs_.begin(), own_runs_.end(), [&](const auto& run) {
    return run->step == step.id() && run->chunk == chunk;
  });
  return own == own_runs_.end() ? nullptr : own->get();
}

bool StepEngine::PumpOwn(Step& step, TimePoint now) {
  bool ran = false;
  for (std::size_t w = 0; w < step.bound_plan()->workers.size() && !step.ended(); ++w) {
    if (!step.bound_plan()->workers[w]->own) continue;
    std::int32_t next = -1;
    while (!step.ended() && HasRoomForOwn() &&
           (next = step.NextUnsent(static_cast<std::int32_t>(w))) >= 0 && !HasEncodedEnough()) {
      const auto chunk = static_cast<std::uint32_t>(next);
      // No credit: nothing of it lies in a ring.
      step.MarkEncoding(chunk, kNoCredit);
      if (const absl::Status status = BeginOwn(step, chunk); !status.ok()) {
        // The stream took nothing, so that no event will say so.
        step.MarkEncoded();
        FailStep(step, status, now);
      }
      // A device that works in the call has encoded the rows: the experts begin with them at once.
      PollStream(now);
      ran = true;
    }
  }
  return ran;
}

absl::Status StepEngine::BeginOwn(Step& step, std::uint32_t chunk) {
  const Chunk& cut = step.chunk_plan().chunks()[chunk];
  const WireFormat format =
      step.bound_layer().codecs[static_cast<std::size_t>(cut.worker)]->format();
  const std::int32_t hidden = step.bound_plan()->plan.shape.hidden;
  const RowBytes row = RowBytesOf(format, hidden);
  auto own = std::make_unique<OwnChunkRun>();
  own->step = step.id();
  own->chunk = chunk;
  // As in a frame, so that an expert gives the same bits wherever its rows come from.
  own->rows.resize(cut.rows * static_cast<std::size_t>(row.total()));
  own->metadata.resize(LayoutOf(step, cut).metadata_bytes);
  own->out.resize(cut.rows * static_cast<std::size_t>(hidden));
  WriteMetadata(step, cut, own->metadata);
  if (step.trace().traced()) step.trace().Encoding(chunk, options_.clock->Now());
  std::byte* scales = own->rows.data() + cut.rows * static_cast<std::size_t>(row.data);
  SY_RETURN_IF_ERROR(
      EncodeRows({StreamWork::Kind::kOwnChunk, &step, chunk, {}}, own->rows.data(), scales));
  own_runs_.push_back(std::move(own));
  return absl::OkStatus();
}

absl::Status StepEngine::StartOwn(Step& step, std::uint32_t chunk) {
  const Chunk& cut = step.chunk_plan().chunks()[chunk];
  const BoundPlan& bound = *step.bound_plan();
  const WireFormat format =
      step.bound_layer().codecs[static_cast<std::size_t>(cut.worker)]->format();
  OwnChunkRun& own = *FindOwn(step, chunk);
  const RowBytes row = RowBytesOf(format, bound.plan.shape.hidden);
  // Also of one that has to wait: its rows are final, and it needs no further encoding.
  step.MarkSent(chunk);
  absl::StatusOr<std::unique_ptr<OwnRun>> run = options_.own_experts->Start(
      {.deployment = bound.plan.deployment,
       .session = options_.session,
       .epoch = bound.plan.epoch,
       .hash = bound.hash,
       .layer = step.layer(),
       .phase = options_.request.phase,
       .mode = step.bound_layer().mode,
       .format = format,
       .count = cut.rows,
       .rows = own.rows.data(),
       .scales = own.rows.data() + cut.rows * static_cast<std::size_t>(row.data),
       .metadata = own.metadata,
       .out = own.out.data()});
  if (step.trace().traced()) step.trace().Sent(chunk, options_.clock->Now());
  if (IsQueueFull(run.status())) {
    own.state = OwnState::kWaiting;
    return absl::OkStatus();
  }
  own.state = run.ok() ? OwnState::kRunning : OwnState::kEnded;
  if (run.ok()) own.run = *std::move(run);
  return run.status();
}

bool StepEngine::StartWaitingOwn(TimePoint now) {
  bool started = false;
  for (std::size_t i = 0; i < own_runs_.size(); ++i) {
    OwnChunkRun& own = *own_runs_[i];
    if (own.state != OwnState::kWaiting) continue;
    Step* step = FindStep(own.step);
    if (step == nullptr || step->ended()) {
      own.state = OwnState::kEnded;
      continue;
    }
    const absl::Status status = StartOwn(*step, own.chunk);
    if (!status.ok()) FailStep(*step, status, now);
    // Those behind it wait for the same queue.
    if (own.state == OwnState::kWaiting) break;
    started = true;
  }
  return started;
}

bool StepEngine::PollOwn(TimePoint now, Piece piece) {
  bool ended = false;
  // By index: what follows a sum may come back here and take runs out.
  for (std::size_t i = 0; i < own_runs_.size(); ++i) {
    OwnChunkRun& own = *own_runs_[i];
    if (own.state != OwnState::kRunning || !own.run->done()) continue;
    ended = true;
    const absl::Status status = own.run->Finish();
    own.run.reset();
    own.state = OwnState::kEnded;
    // The answer stays until the step has ended; of a large step, the rows would double it.
    own.rows = {};
    Step* step = FindStep(own.step);
    if (step == nullptr || step->ended()) continue;
    if (status.ok()) {
      if (step->trace().traced()) step->trace().Answered(own.chunk, options_.clock->Now());
      step->MarkAnswered(own.chunk, own.out.data());
      SumTokens(*step, now);
    } else {
      FailStep(*step, status, now);
    }
  }
  // Not for every frame that arrives: a refused start costs as much as one that succeeds.
  if (piece == Piece::kNew) ended |= StartWaitingOwn(now);
  RetireDone();
  // The step reads the answers until it ends.
  std::erase_if(own_runs_, [this](const std::unique_ptr<OwnChunkRun>& own) {
    return own->run == nullptr && FindStep(own->step) == nullptr;
  });
  return ended;
}

}  // namespace switchyard
