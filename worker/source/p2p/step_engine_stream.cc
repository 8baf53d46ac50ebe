// The work of steps on the stream of the source's device: rows into frames, replies into y.
#include <algorithm>

#include "core/base/status_macros.h"
#include "worker/routing/request_codec.h"
#include "worker/source/p2p/reply_frame.h"
#include "worker/source/p2p/step_engine.h"

namespace switchyard {

// Two streams on the device of the tensors: on one, answers would wait for the rows of later
// chunks.
StreamWork& StepEngine::EncodesOf(const Step& step) {
  return lanes_[step.request().on_device ? 1 : 0];
}

StreamWork& StepEngine::SumsOf(const Step& step) {
  return lanes_[step.request().on_device ? 2 : 0];
}

absl::Status StepEngine::EncodeRows(const StreamWork::Piece& piece, std::byte* data,
                                    std::byte* scales) {
  const Step& step = *piece.step;
  const Chunk& chunk = step.chunk_plan().chunks()[piece.chunk];
  const auto hidden = static_cast<std::size_t>(step.bound_plan()->plan.shape.hidden);
  encoded_bytes_ += chunk.rows * hidden * sizeof(Bf16);
  const BoundLayer& layer = step.bound_layer();
  const auto& codecs = step.request().on_device ? layer.tensor_codecs : layer.codecs;
  StreamWork& work = EncodesOf(step);
  SY_RETURN_IF_ERROR(
      work.stream().Encode({.codec = codecs[static_cast<std::size_t>(chunk.worker)].get(),
                            .x = step.request().x,
                            .x_stride = step.request().x_stride,
                            .indices = work.Indices(step.chunk_plan().RowsOf(chunk)),
                            .hidden = step.bound_plan()->plan.shape.hidden,
                            .data = data,
                            .scales = scales}));
  return work.Record(piece);
}

absl::Status StepEngine::BeginFrame(Step& step, std::uint32_t chunk) {
  const TimePoint started = options_.clock->Now();
  const Chunk& cut = step.chunk_plan().chunks()[chunk];
  const FrameLayout layout = LayoutOf(step, cut);
  // Straight into the slot: over shared memory it is the worker's own ring, and this is the only
  // copy.
  const std::span<std::byte> slot =
      step.AttachmentOf(chunk).link->OutboundSlot(step.credit_of(chunk));
  WriteMetadata(step, cut, slot.subspan(layout.metadata_begin, layout.metadata_bytes));
  std::byte* const rows =
      step.RowsOnDevice(chunk)
          ? step.AttachmentOf(chunk).device_rings->outbound(step.credit_of(chunk))
          : slot.data();
  return EncodeRows({StreamWork::Kind::kFrame, &step, chunk, started}, rows + layout.rows_begin,
                    rows + layout.scales_begin);
}

absl::Status StepEngine::SendFrame(Step& step, std::uint32_t chunk, TimePoint started) {
  Attachment& attachment = step.AttachmentOf(chunk);
  const std::uint32_t credit = step.credit_of(chunk);
  const Chunk& cut = step.chunk_plan().chunks()[chunk];
  const FrameLayout layout = LayoutOf(step, cut);
  const std::span<std::byte> slot = attachment.link->OutboundSlot(credit);
  FrameHeader header;
  header.kind = FrameKind::kRequest;
  header.mode = step.bound_layer().mode;
  header.format = step.bound_layer().codecs[static_cast<std::size_t>(cut.worker)]->format();
  header.cookie = options_.cookie;
  // The step's own epoch: its chunks may wait for credits beyond a switch, and its rows were
  // planned for the placement of that epoch.
  header.epoch = step.bound_plan()->plan.epoch;
  header.step = step.id();
  header.attachment = attachment.peer_attachment;
  header.source_incarnation = static_cast<std::uint32_t>(options_.incarnation.low);
  header.layer = step.layer();
  header.chunk = cut.index;
  header.chunks = cut.count;
  header.flags = step.RowsOnDevice(chunk) ? kRowsOnDevice : std::uint8_t{0};
  header.rows = cut.rows;
  header.request_slot = static_cast<std::uint16_t>(credit);
  header.reply_slot = static_cast<std::uint16_t>(credit);
  header.payload_bytes = layout.payload_bytes();
  HeaderBytes raw;
  EncodeHeader(header, slot.subspan(layout.metadata_begin, layout.metadata_bytes), &raw);
  // The header last: its CRC covers the metadata as it stands in the slot.
  std::copy(raw.begin(), raw.end(), slot.begin());
  // Both are timed apart: encoding is work of this process, sending mostly the kernel's.
  const TimePoint filled = options_.clock->Now();
  times_.encode_ns += static_cast<std::uint64_t>((filled - started).count());
  step.trace().Encoding(chunk, started);
  step.trace().Sent(chunk, filled);
  // Marked before it is sent: a transport may deliver the answer from within Send, and a failure
  // gives the credit up with the step. The attempt stays 0: chunks are not sent again, since a
  // worker may have them already.
  step.MarkSent(chunk);
  attachment.credits.Send(credit, {step.id(), step.layer(), cut.index, 0});
  const absl::Status sent = attachment.link->Send(credit, layout.frame_bytes);
  times_.send_ns += SinceNs(filled);
  if (!sent.ok()) return WorkerError(Reason::kWorkerLost, step, attachment, sent.message());
  ++attachment.frames_sent;
  return absl::OkStatus();
}

void StepEngine::SumTokens(Step& step, TimePoint now) {
  const TimePoint started = options_.clock->Now();
  const std::optional<SumRun> run = step.BeginSum();
  if (!run.has_value()) {
    times_.sum_ns += SinceNs(started);
    return;
  }
  StreamWork& work = SumsOf(step);
  absl::Status begun = work.stream().Sum(*run);
  if (begun.ok()) begun = work.Record({StreamWork::Kind::kSum, &step, 0, started});
  if (!begun.ok()) {
    // The stream took nothing, so nothing reads the terms.
    step.EndSum(/*summed=*/false, [](std::uint32_t) {});
    FailStep(step, begun, now);
    return;
  }
  // A device that works in the call has summed.
  PollStream(now);
}

bool StepEngine::PollStream(TimePoint now) {
  bool any = false;
  for (StreamWork& lane : lanes_) {
    // A piece is forgotten before it is handled, because that may begin further work and take it.
    while (const std::optional<StreamWork::Ended> ended = lane.TakeEnded()) {
      any = true;
      if (ended->piece.kind == StreamWork::Kind::kSum) {
        OnSummed(*ended, now);
      } else {
        OnEncoded(*ended, now);
      }
    }
  }
  return any;
}

void StepEngine::OnEncoded(const StreamWork::Ended& ended, TimePoint now) {
  Step& step = *ended.piece.step;
  const std::uint32_t chunk = ended.piece.chunk;
  const bool own = ended.piece.kind == StreamWork::Kind::kOwnChunk;
  step.MarkEncoded();
  if (step.ended() || !ended.status.ok()) {
    // Nothing was sent, so nothing will come back: the credit is free again.
    if (own) {
      if (OwnChunkRun* run = FindOwn(step, chunk)) run->state = OwnState::kEnded;
    } else {
      step.AttachmentOf(chunk).credits.Release(step.credit_of(chunk));
    }
    if (!ended.status.ok()) FailStep(step, ended.status, now);
    return;
  }
  // The transport reports a lost link by itself later; the step need not wait for that.
  const absl::Status sent =
      own ? StartOwn(step, chunk) : SendFrame(step, chunk, ended.piece.started);
  if (!sent.ok()) FailStep(step, sent, now);
}

void StepEngine::OnSummed(const StreamWork::Ended& ended, TimePoint now) {
  Step& step = *ended.piece.step;
  const bool more = step.EndSum(ended.status.ok(), [&step](std::uint32_t chunk) {
    const std::uint32_t credit = step.credit_of(chunk);
    if (credit != kNoCredit) step.AttachmentOf(chunk).credits.Release(credit);
  });
  times_.sum_ns += SinceNs(ended.piece.started);
  if (!step.status().ok()) {
    // It failed while the device summed, which was reading these until now.
    GiveUp(step, Step::ChunkState::kAnswered, now);
  } else if (!ended.status.ok()) {
    FailStep(step, ended.status, now);
  } else if (more) {
    // Replies that came while the device summed found it busy.
    SumTokens(step, now);
  }
}

void StepEngine::Drain(TimePoint now) {
  const auto has_work = [](const StreamWork& lane) { return !lane.empty(); };
  for (auto busy = std::ranges::find_if(lanes_, has_work); busy != lanes_.end();
       busy = std::ranges::find_if(lanes_, has_work)) {
    busy->WaitForOldest();
    PollStream(now);
  }
}

}  // namespace switchyard
