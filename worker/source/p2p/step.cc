#include "worker/source/p2p/step.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"

namespace switchyard {

absl::Status Step::Begin(StepId id, const StepRequest& request, BoundPlan* binding,
                         const BoundLayer& layer, OutputDtype y_dtype, std::uint32_t chunk_rows,
                         TimePoint deadline) {
  id_ = id;
  request_ = request;
  binding_ = binding;
  layer_ = &layer;
  y_dtype_ = y_dtype;
  hidden_ = binding->plan.shape.hidden;
  deadline_ = deadline;
  failed_ = false;
  status_ = absl::OkStatus();
  next_token_ = 0;

  own_rows_.clear();
  CopyRouting();
  SY_RETURN_IF_ERROR(BuildDispatchPlan({dense_ids_, request.tokens, request.top_k}, layer.placement,
                                       layer.mode, &plan_));
  chunks_.Build(plan_, layer.local_slots, chunk_rows);
  states_.assign(chunks_.chunks().size(), {});
  cursors_.assign(layer.local_slots.size(), {});
  for (std::size_t w = 0; w < cursors_.size(); ++w) {
    const std::uint32_t first = chunks_.ChunksOf(static_cast<std::int32_t>(w)).first;
    cursors_[w] = {first, 0, first, first};
  }
  if (layer.mode == DispatchMode::kLowLatency) LocatePairs();
  const auto top_k = static_cast<std::size_t>(request.top_k);
  terms_.reserve(std::max(top_k, cursors_.size()));
  factors_.reserve(top_k);
  sum_.resize(static_cast<std::size_t>(hidden_));
  return absl::OkStatus();
}

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

void Step::LocatePairs() {
  row_of_pair_.assign(dense_ids_.size(), {});
  const auto top_k = static_cast<std::size_t>(request_.top_k);
  for (std::size_t c = 0; c < chunks_.chunks().size(); ++c) {
    const std::span<const PlannedRow> rows = chunks_.RowsOf(chunks_.chunks()[c]);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      row_of_pair_[rows[r].token * top_k + rows[r].k] = {static_cast<std::int32_t>(c),
                                                         static_cast<std::uint32_t>(r)};
    }
  }
}

Bf16* Step::OwnRows(std::size_t rows) {
  own_rows_.emplace_back(rows * static_cast<std::size_t>(hidden_));
  return own_rows_.back().data();
}

Attachment& Step::AttachmentOf(std::uint32_t chunk) const {
  return *binding_->workers[static_cast<std::size_t>(chunks_.chunks()[chunk].worker)];
}

std::int32_t Step::ChunkAt(const Attachment& attachment, std::uint16_t index) const {
  for (std::size_t w = 0; w < binding_->workers.size(); ++w) {
    if (binding_->workers[w] != &attachment) continue;
    const ChunkPlan::Range range = chunks_.ChunksOf(static_cast<std::int32_t>(w));
    if (range.first + index < range.last) return static_cast<std::int32_t>(range.first + index);
  }
  return -1;
}

bool Step::Awaits(const Attachment& attachment) const {
  for (std::uint32_t c = 0; c < states_.size(); ++c) {
    if (states_[c].state != ChunkState::kRead && &AttachmentOf(c) == &attachment) return true;
  }
  return false;
}

const Attachment* Step::FirstAwaited() const {
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

void Step::MarkSent(std::uint32_t chunk, std::uint32_t pair) {
  states_[chunk] = {ChunkState::kSent, pair, nullptr};
  ++cursors_[static_cast<std::size_t>(chunks_.chunks()[chunk].worker)].unsent;
}

void Step::MarkAnswered(std::uint32_t chunk, const Bf16* rows) {
  states_[chunk].state = ChunkState::kAnswered;
  states_[chunk].reply = rows;
}

void Step::Fail(absl::Status why) {
  failed_ = true;
  status_ = std::move(why);
}

const Bf16* Step::RowAt(std::uint32_t chunk, std::uint32_t row) const {
  return states_[chunk].reply + static_cast<std::size_t>(row) * static_cast<std::size_t>(hidden_);
}

bool Step::CollectLowLatency(std::uint32_t token) {
  terms_.clear();
  factors_.clear();
  const auto top_k = static_cast<std::size_t>(request_.top_k);
  const float* weights = dense_weights_.data() + token * top_k;
  for (std::size_t k = 0; k < top_k; ++k) {
    const RowRef ref = row_of_pair_[token * top_k + k];
    if (ref.chunk < 0) continue;
    const auto chunk = static_cast<std::uint32_t>(ref.chunk);
    if (states_[chunk].state != ChunkState::kAnswered) return false;
    terms_.push_back(RowAt(chunk, ref.row));
    factors_.push_back(weights[k]);
  }
  return true;
}

bool Step::CollectNormal(std::uint32_t token) {
  terms_.clear();
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

void Step::SumInto(std::uint32_t token, const RowOps& ops) {
  float* sum = sum_.data();
  if (y_dtype_ == OutputDtype::kF32) {
    sum = static_cast<float*>(request_.y) + static_cast<std::int64_t>(token) * request_.y_stride;
  }
  if (layer_->mode == DispatchMode::kLowLatency) {
    ops.WeightedSumBf16(terms_, factors_, hidden_, sum);
  } else {
    ops.SumBf16(terms_, hidden_, sum);
  }
  if (y_dtype_ == OutputDtype::kBf16) {
    Bf16* row =
        static_cast<Bf16*>(request_.y) + static_cast<std::int64_t>(token) * request_.y_stride;
    ops.RoundToBf16(sum, hidden_, row);
  }
}

void Step::FinishTokens(const RowOps& ops, absl::FunctionRef<void(std::uint32_t chunk)> give_back) {
  if (failed_) return;
  const bool low_latency = layer_->mode == DispatchMode::kLowLatency;
  const std::uint32_t before = next_token_;
  while (next_token_ < tokens()) {
    const bool ready = low_latency ? CollectLowLatency(next_token_) : CollectNormal(next_token_);
    if (!ready) break;
    SumInto(next_token_, ops);
    if (!low_latency) AdvanceNormal(next_token_);
    ++next_token_;
  }
  if (next_token_ == before) return;
  for (std::size_t w = 0; w < cursors_.size(); ++w) {
    const std::uint32_t last = chunks_.ChunksOf(static_cast<std::int32_t>(w)).last;
    std::uint32_t& next = cursors_[w].unreleased;
    while (next < last && chunks_.chunks()[next].token_end <= next_token_ &&
           states_[next].state == ChunkState::kAnswered) {
      states_[next].state = ChunkState::kRead;
      give_back(next++);
    }
  }
}

}  // namespace switchyard
