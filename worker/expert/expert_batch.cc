#include "worker/expert/expert_batch.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "worker/routing/request_codec.h"

namespace switchyard {
namespace {

// A run ends by itself; the destructor's wait is cut into steps because every wait has a deadline.
constexpr Duration kDrainStep = std::chrono::seconds(1);

RowBytes BytesOf(const ExpertInput& input, std::int64_t hidden) {
  return RowBytesOf(input.codec == nullptr ? kBf16Format : input.codec->format(), hidden);
}

}  // namespace

ExpertBatch::ExpertBatch(Stream* stream, bool host_access)
    : stream_(stream), host_access_(host_access), event_(stream->MakeEvent()) {}

ExpertBatch::~ExpertBatch() {
  // The device still reads and writes memory of the inputs' owners; they destroy batches first.
  if (running_) Drain();
}

void ExpertBatch::Drain() {
  while (!event_->Wait(kDrainStep)) {
  }
}

void ExpertBatch::Reserve(std::size_t inputs) {
  inputs_.reserve(inputs);
  // Two pieces go in for an input, its rows and its scales; one comes out.
  if (host_access_) return;
  copies_in_.reserve(2 * inputs);
  copies_out_.reserve(inputs);
}

void ExpertBatch::Begin(const BatchKey& key, std::shared_ptr<const EpochRuntime> runtime,
                        std::shared_ptr<const BatchMemory> memory) {
  const bool normal = key.mode == DispatchMode::kNormal;
  key_ = key;
  runtime_ = std::move(runtime);
  memory_ = std::move(memory);
  // Counted here, because the engine bounds a batch by rows and not by requests.
  rows_ = 0;
  inputs_.clear();
  if (key.amax != nullptr) {
    amax_.assign(static_cast<std::size_t>(runtime_->shape().experts), ExpertAmax{});
  }
  // In normal mode the worker sums an input row over its own experts before it answers, so one row
  // comes back; in low_latency the source applies the weights and needs every expert's row.
  run_ = {.experts = key.layer->table.get(),
          .workspace = memory_->workspace.get(),
          .inputs = {},
          .width = RoutingWidth(key.mode, runtime_->shape().top_k),
          .combine = normal ? CombineUnit::kPerWorker : CombineUnit::kPerExpert,
          .out_dtype = OutputDtype::kBf16,
          .amax = key.amax == nullptr ? nullptr : amax_.data()};
}

void ExpertBatch::Add(const BatchInput& input) {
  rows_ += input.count;
  inputs_.push_back({.codec = input.codec,
                     .rows = input.rows,
                     .scales = input.scales,
                     .count = input.count,
                     .slots = input.slots,
                     .weights = input.weights,
                     .out = input.out});
}

absl::Status ExpertBatch::Start() {
  const auto enqueue = [this]() -> absl::Status {
    if (!host_access_) {
      PlaceOnDevice();
      SY_RETURN_IF_ERROR(stream_->Copy(copies_in_));
    }
    run_.inputs = inputs_;
    SY_RETURN_IF_ERROR(stream_->Run(run_));
    if (!host_access_) SY_RETURN_IF_ERROR(stream_->Copy(copies_out_));
    // Last in the stream's order: once the event is done, each input's `out` holds its answer.
    return stream_->Record(event_.get());
  };
  const absl::Status enqueued = enqueue();
  running_ = enqueued.ok();
  if (!running_) {
    // Rows that were enqueued before the refusal still travel to the device's memory. A stream that
    // also refuses the record belongs to a dead device, which uses nothing any more.
    if (!host_access_ && stream_->Record(event_.get()).ok()) Drain();
    // The references go at once: an epoch counts as bound while a batch holds its runtime.
    Clear();
  }
  return enqueued;
}

absl::Status ExpertBatch::Finish() {
  running_ = false;
  if (event_->status().ok() && key_.amax != nullptr) {
    // Only a batch that succeeded raises the session's magnitudes: a failed one may have left
    // garbage.
    for (std::size_t i = 0; i < amax_.size(); ++i) {
      key_.amax[i].inputs = std::max(key_.amax[i].inputs, amax_[i].inputs);
      key_.amax[i].middle = std::max(key_.amax[i].middle, amax_[i].middle);
    }
  }
  Clear();
  return event_->status();
}

void ExpertBatch::Clear() {
  runtime_.reset();
  memory_.reset();
}

// Lays rows one request after the other in the device's buffer, as wide as they came: they are
// decoded on the device, so the copy moves wire bytes and not BF16.
void ExpertBatch::PlaceOnDevice() {
  const std::int64_t hidden = runtime_->shape().hidden;
  std::byte* rows = memory_->rows->data();
  std::byte* answers = memory_->answers->data();
  copies_in_.clear();
  copies_out_.clear();
  for (ExpertInput& input : inputs_) {
    const RowBytes row = BytesOf(input, hidden);
    const std::size_t data = input.count * static_cast<std::size_t>(row.data);
    const std::size_t scales = input.count * static_cast<std::size_t>(row.scales);
    const std::size_t answer = input.count * static_cast<std::size_t>(hidden) * sizeof(Bf16);
    copies_in_.push_back({.to = rows, .from = input.rows, .bytes = data});
    // Scales follow the rows of their input, as on the wire. BF16 rows have none.
    if (scales > 0) {
      copies_in_.push_back({.to = rows + data, .from = input.scales, .bytes = scales});
    }
    copies_out_.push_back(
        {.to = static_cast<std::byte*>(input.out), .from = answers, .bytes = answer});
    input.rows = rows;
    input.scales = scales > 0 ? rows + data : nullptr;
    input.out = answers;
    rows += data + scales;
    answers += answer;
  }
}

}  // namespace switchyard
