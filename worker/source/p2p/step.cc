#include "worker/source/p2p/step.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"

namespace switchyard {

absl::Status Step::Begin(StepId id, const StepRequest& request, BoundPlan* bound_plan,
                         const BoundLayer& layer, OutputDtype y_dtype, std::uint32_t chunk_rows,
                         TimePoint deadline) {
  id_ = id;
  request_ = request;
  bound_plan_ = bound_plan;
  layer_ = &layer;
  y_dtype_ = y_dtype;
  hidden_ = bound_plan->plan.shape.hidden;
  deadline_ = deadline;
  failed_ = false;
  status_ = absl::OkStatus();
  next_token_ = 0;
  sum_again_ = false;

  // Steps are pooled: assign and clear keep the memory of the largest step before.
  CopyRouting();
  SY_RETURN_IF_ERROR(BuildDispatchPlan({dense_ids_, request.tokens, request.top_k}, layer.placement,
                                       layer.mode, &plan_));
  SY_RETURN_IF_ERROR(chunks_.Build(plan_, layer.local_slots, chunk_rows));
  states_.assign(chunks_.chunks().size(), {});
  cursors_.assign(layer.local_slots.size(), {});
  for (std::size_t w = 0; w < cursors_.size(); ++w) {
    const std::uint32_t first = chunks_.ChunksOf(static_cast<std::int32_t>(w)).first;
    cursors_[w] = {first, 0, first, first};
  }
  // normal has rows in the order of tokens and needs no table.
  if (layer.mode == DispatchMode::kLowLatency) LocateRows();
  const auto top_k = static_cast<std::size_t>(request.top_k);
  terms_.reserve(std::max(top_k, cursors_.size()));
  factors_.reserve(top_k);
  return absl::OkStatus();
}

// The caller's ids and weights may be strided; everything after this reads them dense.
void Step::CopyRouting() {
  const auto top_k = static_cast<std::size_t>(request_.top_k);
  dense_ids_.clear();
  dense_weights_.clear();
  for (std::int32_t t = 0; t < request_.tokens; ++t) {
    const std::int32_t* ids = request_.ids + t * request_.ids_stride;
    const float* weights = request_.weights + t * request_.weights_stride;
    dense_ids_.insert(dense_ids_.end(), ids, ids + top_k);
    dense_weights_.insert(dense_weights_.end(), weights, weights + top_k);
  }
}

// low_latency sums in the order of k, but a chunk holds its rows by slot: without this table each
// token would search every chunk.
void Step::LocateRows() {
  row_of_.assign(dense_ids_.size(), {});
  const auto top_k = static_cast<std::size_t>(request_.top_k);
  for (std::size_t c = 0; c < chunks_.chunks().size(); ++c) {
    const std::span<const PlannedRow> rows = chunks_.RowsOf(chunks_.chunks()[c]);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      row_of_[rows[r].token * top_k + rows[r].k] = {static_cast<std::int32_t>(c),
                                                    static_cast<std::uint32_t>(r)};
    }
  }
}

// One vector for each chunk, since growing one vector would move rows that are waiting to be
// summed.
Attachment& Step::AttachmentOf(std::uint32_t chunk) const {
  return *bound_plan_->workers[static_cast<std::size_t>(chunks_.chunks()[chunk].worker)];
}

bool Step::RowsOnDevice(std::uint32_t chunk) const {
  return request_.on_device && AttachmentOf(chunk).device_rings != nullptr;
}

// Chunks are counted from 0 for each worker on the wire, and for the whole step in here.
std::int32_t Step::ChunkAt(const Attachment& attachment, std::uint16_t index) const {
  const std::vector<Attachment*>& workers = bound_plan_->workers;
  // Every reply comes here, and a search for each of them would cost a step the square of its
  // workers. Only steps of an older plan have to search.
  std::size_t w = attachment.ordinal;
  if (w >= workers.size() || workers[w] != &attachment) {
    w = static_cast<std::size_t>(std::ranges::find(workers, &attachment) - workers.begin());
    if (w == workers.size()) return -1;
  }
  const ChunkPlan::Range range = chunks_.ChunksOf(static_cast<std::int32_t>(w));
  return range.first + index < range.last ? static_cast<std::int32_t>(range.first + index) : -1;
}

// A chunk that was answered counts too: its rows lie in the ring, which goes with the attachment.
bool Step::Awaits(const Attachment& attachment) const {
  for (std::uint32_t c = 0; c < states_.size(); ++c) {
    if (states_[c].state != ChunkState::kRead && &AttachmentOf(c) == &attachment) return true;
  }
  return false;
}

const Attachment* Step::FirstAwaited() const {
  // A chunk that was sent is late because of its worker; one that was not may only lack a credit.
  for (const ChunkState wanted : {ChunkState::kSent, ChunkState::kWaiting}) {
    for (std::uint32_t c = 0; c < states_.size(); ++c) {
      if (states_[c].state == wanted) return &AttachmentOf(c);
    }
  }
  return nullptr;
}

std::int32_t Step::NextUnsent(std::int32_t worker) const {
  const std::uint32_t chunk = cursors_[static_cast<std::size_t>(worker)].unsent;
  return chunk < chunks_.ChunksOf(worker).last ? static_cast<std::int32_t>(chunk) : -1;
}

void Step::MarkEncoding(std::uint32_t chunk, std::uint32_t credit) {
  states_[chunk] = {ChunkState::kEncoding, credit, nullptr};
  ++cursors_[static_cast<std::size_t>(chunks_.chunks()[chunk].worker)].unsent;
  ++device_work_;
}

void Step::MarkAnswered(std::uint32_t chunk, const Bf16* rows) {
  // The rows are used where they lie: copying them out would cost what the ring saves.
  states_[chunk].state = ChunkState::kAnswered;
  states_[chunk].reply = rows;
  sum_again_ = sum_running_;
}

void Step::Fail(absl::Status why) {
  failed_ = true;
  status_ = std::move(why);
}

const Bf16* Step::RowAt(std::uint32_t chunk, std::uint32_t row) const {
  return states_[chunk].reply + static_cast<std::size_t>(row) * static_cast<std::size_t>(hidden_);
}

bool Step::CollectLowLatency(std::uint32_t token) {
  const auto top_k = static_cast<std::size_t>(request_.top_k);
  const float* weights = dense_weights_.data() + token * top_k;
  for (std::size_t k = 0; k < top_k; ++k) {
    // Ascending k, whatever the order of arrival: that is what makes the sum bit-equal everywhere.
    const RowRef ref = row_of_[token * top_k + k];
    if (ref.chunk < 0) continue;
    const auto chunk = static_cast<std::uint32_t>(ref.chunk);
    if (states_[chunk].state != ChunkState::kAnswered) return false;
    terms_.push_back(RowAt(chunk, ref.row));
    factors_.push_back(weights[k]);
  }
  return true;
}

bool Step::CollectNormal(std::uint32_t token) {
  // Ascending ordinal, for the same reason as ascending k in low_latency.
  for (std::size_t w = 0; w < cursors_.size(); ++w) {
    const WorkerCursor& cursor = cursors_[w];
    if (cursor.chunk == chunks_.ChunksOf(static_cast<std::int32_t>(w)).last) continue;
    const Chunk& chunk = chunks_.chunks()[cursor.chunk];
    if (chunks_.RowsOf(chunk)[cursor.row].token != token) continue;
    if (states_[cursor.chunk].state != ChunkState::kAnswered) return false;
    terms_.push_back(RowAt(cursor.chunk, cursor.row));
  }
  return true;
}

// A worker's rows are in the order of tokens, so that one cursor for each worker finds them all. It
// moves only once the token is complete: CollectNormal may have to look at the same row again.
void Step::AdvanceNormal(std::uint32_t token) {
  for (std::size_t w = 0; w < cursors_.size(); ++w) {
    WorkerCursor& cursor = cursors_[w];
    if (cursor.chunk == chunks_.ChunksOf(static_cast<std::int32_t>(w)).last) continue;
    const Chunk& chunk = chunks_.chunks()[cursor.chunk];
    if (chunks_.RowsOf(chunk)[cursor.row].token != token) continue;
    if (++cursor.row == chunk.rows) {
      ++cursor.chunk;
      cursor.row = 0;
    }
  }
}

SumRun Step::SumOf(std::uint32_t first) const {
  const std::int64_t at = static_cast<std::int64_t>(first) * request_.y_stride;
  void* y = y_dtype_ == OutputDtype::kF32 ? static_cast<void*>(static_cast<float*>(request_.y) + at)
                                          : static_cast<void*>(static_cast<Bf16*>(request_.y) + at);
  return {.terms = terms_,
          .weights = factors_,
          .begin = term_begin_,
          .hidden = hidden_,
          .y = y,
          .y_stride = request_.y_stride,
          .y_dtype = y_dtype_};
}

std::optional<SumRun> Step::BeginSum() {
  // A step that has failed may not write y. One sum at a time: its terms are members of the step,
  // and the device reads them where they are.
  if (failed_ || sum_running_) return std::nullopt;
  const bool low_latency = layer_->mode == DispatchMode::kLowLatency;
  std::uint32_t ready = next_token_;
  terms_.clear();
  factors_.clear();
  term_begin_.assign(1, 0);
  const std::size_t most = request_.on_device ? kDeviceTermsMax : terms_.max_size();
  const auto is_full = [&] {
    return std::max<std::size_t>(term_begin_.back(), ready - next_token_) >= most;
  };
  while (ready < tokens() && !is_full()) {
    // Tokens end in order, so that chunks can be released in order; a token that must wait holds up
    // only tokens behind it, whose rows stay in their slots.
    if (!(low_latency ? CollectLowLatency(ready) : CollectNormal(ready))) break;
    term_begin_.push_back(static_cast<std::uint32_t>(terms_.size()));
    if (!low_latency) AdvanceNormal(ready);
    ++ready;
  }
  if (ready == next_token_) return std::nullopt;
  // Some of the rows of the token that must wait may have been collected.
  terms_.resize(term_begin_.back());
  if (low_latency) factors_.resize(terms_.size());
  sum_running_ = true;
  sum_again_ = ready < tokens() && is_full();
  sum_end_ = ready;
  ++device_work_;
  return SumOf(next_token_);
}

bool Step::EndSum(bool summed, absl::FunctionRef<void(std::uint32_t chunk)> release) {
  sum_running_ = false;
  --device_work_;
  if (!summed || failed_) return false;
  next_token_ = sum_end_;
  // A chunk is released with the last token that it holds a row of, not with its own last row: in
  // low_latency another token of its window may still need it.
  for (std::size_t w = 0; w < cursors_.size(); ++w) {
    const std::uint32_t last = chunks_.ChunksOf(static_cast<std::int32_t>(w)).last;
    std::uint32_t& next = cursors_[w].unreleased;
    while (next < last && chunks_.chunks()[next].token_end <= next_token_ &&
           states_[next].state == ChunkState::kAnswered) {
      states_[next].state = ChunkState::kRead;
      release(next++);
    }
  }
  return sum_again_;
}

}  // namespace switchyard
