#include "worker/source/p2p/step_trace.h"

#include "core/format/wire_format.h"
#include "core/tracing/trace_record.h"
#include "worker/source/p2p/step.h"

namespace switchyard {

void StepTrace::End(const Step& step, const StepKey& key, TimePoint now, StepTracer* tracer) const {
  const BoundPlan& bound = *step.bound_plan();
  const std::int32_t hidden = bound.plan.shape.hidden;
  const auto bytes_of = [hidden](const WireFormat& format, std::uint32_t rows) {
    return std::uint64_t{rows} * static_cast<std::uint64_t>(RowBytesOf(format, hidden).total());
  };
  TraceRecord record{.key = key,
                     .part = TracedPart::kStep,
                     .mode = step.bound_layer().mode,
                     .dtype = DispatchDtype::kBf16,
                     .layer = step.layer(),
                     .epoch = bound.plan.epoch,
                     .rows = static_cast<std::uint32_t>(step.request().tokens),
                     .times = {submitted_, planned_, answered_, now}};
  record.SetStatus(step.status());
  tracer->Push(record);
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const ChunkTimes& at = chunks_[c];
    if (at.encoding == TimePoint{}) continue;
    const Chunk& cut = step.chunk_plan().chunks()[c];
    const Attachment& worker = step.AttachmentOf(static_cast<std::uint32_t>(c));
    const WireFormat format =
        step.bound_layer().codecs[static_cast<std::size_t>(cut.worker)]->format();
    const bool answered = at.answered != TimePoint{};
    record.part = worker.own ? TracedPart::kOwnChunk : TracedPart::kChunk;
    record.dtype = format.dtype;
    record.chunk = cut.index;
    record.rows = cut.rows;
    record.request_bytes = bytes_of(format, cut.rows);
    record.reply_bytes = answered ? bytes_of(kBf16Format, cut.rows) : 0;
    record.times = {at.encoding, at.sent, answered ? at.answered : now, {}};
    record.SetWorker(worker.worker.id);
    // A chunk that was answered is not what the step failed of.
    record.SetStatus(answered ? absl::OkStatus() : step.status());
    tracer->Push(record);
  }
}

}  // namespace switchyard
