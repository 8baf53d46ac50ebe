#include "worker/expert/chunk_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Half of a core's L2 cache where it is 2 MiB.
constexpr std::int64_t kCachedBytes = std::int64_t{1} << 20;

bool IsNan(Bf16 bits) { return (bits & 0x7fffU) > 0x7f80U; }

}  // namespace

absl::StatusOr<std::unique_ptr<ChunkExecutor>> ChunkExecutor::Create(
    DeviceBackend* device, const MoeShape& shape, const ExecutorOptions& options) {
  if (options.rows_max < shape.top_k) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("rows_max %d is below the layer's top-%d", options.rows_max, shape.top_k));
  }
  std::unique_ptr<ChunkExecutor> executor(new ChunkExecutor(device, shape, options));
  SY_ASSIGN_OR_RETURN(executor->workspace_, device->MakeWorkspace(shape, options.rows_max));
  const std::int64_t bytes = options.rows_max * shape.hidden * std::int64_t{sizeof(float)};
  SY_ASSIGN_OR_RETURN(executor->y_memory_, AlignedBuffer::Allocate(bytes));
  std::memset(executor->y_memory_.data(), 0, static_cast<std::size_t>(bytes));  // pages come now
  executor->y_ = reinterpret_cast<float*>(executor->y_memory_.data());
  return executor;
}

ChunkExecutor::ChunkExecutor(DeviceBackend* device, const MoeShape& shape,
                             const ExecutorOptions& options)
    : device_(device), shape_(shape), options_(options) {
  const auto rows_max = static_cast<std::size_t>(options.rows_max);
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  slot_of_pair_.resize(rows_max);
  row_of_pair_.resize(rows_max);
  rounded_.resize(rows_max);
  grouped_rounded_.resize(rows_max);
  place_of_pair_.resize(rows_max);
  slot_begin_.resize(static_cast<std::size_t>(shape.experts) + 1);
  grouped_rows_.resize(rows_max);
  batches_.reserve(static_cast<std::size_t>(shape.experts));
  terms_.resize(top_k);
  factors_.resize(top_k);
}

void ChunkExecutor::Execute(const LayerRuntime& layer, std::span<ExecutorChunk> chunks,
                            ExpertAmax* amax) {
  for (ExecutorChunk& chunk : chunks) {
    chunk.nan_rows = 0;
    if (chunk.dtype != DispatchDtype::kBf16) Decode(layer, chunk);
  }
  rows_of_run_ = RowsOfRun(layer, chunks);
  Cursor from;
  while (from.chunk < chunks.size()) {
    const Cursor to = Gather(layer, chunks, from);
    RunGathered(layer, amax);
    Scatter(chunks, from, to);
    from = to;
  }
}

// In place of the answers: a run has read all of its rows before it writes theirs.
void ChunkExecutor::Decode(const LayerRuntime& layer, const ExecutorChunk& chunk) const {
  layer.Find(chunk.dtype)
      ->codec->Decode(chunk.dense_rows, chunk.scales, chunk.request->rows(), shape_.hidden,
                      chunk.out);
}

// Rows of y leave the cache before they are summed when a run has many. Fewer a run keep them
// there, which is worth reading the weights again only when those stay in the cache as well.
std::int64_t ChunkExecutor::RowsOfRun(const LayerRuntime& layer,
                                      std::span<const ExecutorChunk> chunks) const {
  const std::int64_t row_bytes = shape_.hidden * std::int64_t{sizeof(float)};
  std::int64_t y_bytes = 0;
  for (const ExecutorChunk& chunk : chunks) {
    const bool each_expert = chunk.request->mode() == DispatchMode::kNormal;
    y_bytes += row_bytes * chunk.request->rows() * (each_expert ? chunk.request->top_k() : 1);
  }
  if (y_bytes <= kCachedBytes) return options_.rows_max;
  std::int64_t weight_bytes = 0;
  for (const ExpertSlot& slot : layer.slots) weight_bytes += slot.weights->bytes();
  if (weight_bytes > kCachedBytes) return options_.rows_max;
  return std::clamp<std::int64_t>(kCachedBytes / row_bytes, shape_.top_k, options_.rows_max);
}

// Takes whole rows until the next one would not fit.
ChunkExecutor::Cursor ChunkExecutor::Gather(const LayerRuntime& layer,
                                            std::span<const ExecutorChunk> chunks, Cursor from) {
  local_slots_ = layer.local_slots();
  pairs_ = 0;
  std::fill_n(slot_begin_.begin(), local_slots_ + 1, 0U);
  Cursor at = from;
  while (at.chunk < chunks.size()) {
    const ExecutorChunk& chunk = chunks[at.chunk];
    while (at.row < chunk.request->rows()) {
      if (!GatherRow(chunk, &at)) return at;
    }
    at = {.chunk = at.chunk + 1};
  }
  return at;
}

// False, with `at` unmoved, when the row does not fit into this run.
bool ChunkExecutor::GatherRow(const ExecutorChunk& chunk, Cursor* at) {
  const RequestView& request = *chunk.request;
  const bool rounded = chunk.rounded || chunk.dtype != DispatchDtype::kBf16;
  const auto room = static_cast<std::size_t>(rows_of_run_) - pairs_;
  if (request.mode() == DispatchMode::kLowLatency) {
    if (room < 1) return false;
    while (at->slot_rows_done == request.slot_counts()[static_cast<std::size_t>(at->slot)]) {
      ++at->slot;
      at->slot_rows_done = 0;
    }
    AddPair(at->slot, RowOf(chunk, at->row), rounded);
    ++at->slot_rows_done;
  } else {
    if (room < static_cast<std::size_t>(request.top_k())) return false;
    const Bf16* row = RowOf(chunk, at->row);
    for (std::int32_t k = 0; k < request.top_k(); ++k) {
      const std::int32_t slot = request.slot(at->row, k);
      if (slot >= 0) AddPair(slot, row, rounded);
    }
  }
  ++at->row;
  return true;
}

void ChunkExecutor::AddPair(std::int32_t slot, const Bf16* row, bool rounded) {
  if (SY_MUTANT(options_.mutant, kSlotOffByOne)) slot = (slot + 1) % local_slots_;
  slot_of_pair_[pairs_] = slot;
  row_of_pair_[pairs_] = row;
  rounded_[pairs_] = rounded ? 1 : 0;
  ++pairs_;
  ++slot_begin_[static_cast<std::size_t>(slot) + 1];
}

void ChunkExecutor::RunGathered(const LayerRuntime& layer, ExpertAmax* amax) {
  const auto slots = static_cast<std::size_t>(local_slots_);
  for (std::size_t s = 0; s < slots; ++s) slot_begin_[s + 1] += slot_begin_[s];
  // Stable: rows of a slot stay in the order of arrival. Afterwards slot_begin_[s] is the end of s.
  for (std::size_t pair = 0; pair < pairs_; ++pair) {
    const std::uint32_t place = slot_begin_[static_cast<std::size_t>(slot_of_pair_[pair])]++;
    place_of_pair_[pair] = place;
    grouped_rows_[place] = row_of_pair_[pair];
    grouped_rounded_[place] = rounded_[pair];
  }
  batches_.clear();
  std::size_t begin = 0;
  for (std::size_t s = 0; s < slots; ++s) {
    const std::size_t end = slot_begin_[s];
    if (end > begin) {
      batches_.push_back({.expert = layer.slots[s].weights.get(),
                          .rows = std::span(grouped_rows_).subspan(begin, end - begin),
                          .out = y_ + begin * static_cast<std::size_t>(shape_.hidden),
                          .amax = amax == nullptr ? nullptr : amax + layer.slots[s].expert.value,
                          .rounded = grouped_rounded_.data() + begin});
    }
    begin = end;
  }
  if (!batches_.empty()) device_->Run(batches_, *workspace_);
}

void ChunkExecutor::Scatter(std::span<ExecutorChunk> chunks, const Cursor& from, const Cursor& to) {
  std::size_t pair = 0;
  for (std::size_t c = from.chunk; c < chunks.size() && c <= to.chunk; ++c) {
    const std::uint32_t begin = c == from.chunk ? from.row : 0;
    const std::uint32_t end = c == to.chunk ? to.row : chunks[c].request->rows();
    for (std::uint32_t row = begin; row < end; ++row) AnswerRow(chunks[c], row, &pair);
  }
}

// `pair` walks the run's pairs in the order in which Gather added them.
void ChunkExecutor::AnswerRow(ExecutorChunk& chunk, std::uint32_t row, std::size_t* pair) {
  const RequestView& request = *chunk.request;
  const std::int64_t hidden = shape_.hidden;
  const std::uint32_t place =
      SY_MUTANT(options_.mutant, kRowsReversed) ? request.rows() - 1 - row : row;
  Bf16* out = chunk.out + place * hidden;
  const RowOps& ops = device_->row_ops();
  if (request.mode() == DispatchMode::kLowLatency) {
    ops.RoundToBf16(y_ + place_of_pair_[(*pair)++] * hidden, hidden, out);
  } else {
    std::size_t count = 0;
    for (std::int32_t k = 0; k < request.top_k(); ++k) {
      if (request.slot(row, k) < 0) continue;
      const float weight = request.weight(row, k);
      terms_[count] = y_ + place_of_pair_[(*pair)++] * hidden;
      factors_[count] = SY_MUTANT(options_.mutant, kWeightsTwice) ? weight * weight : weight;
      ++count;
    }
    if (SY_MUTANT(options_.mutant, kDescendingK)) {
      std::reverse(terms_.begin(), terms_.begin() + static_cast<std::ptrdiff_t>(count));
      std::reverse(factors_.begin(), factors_.begin() + static_cast<std::ptrdiff_t>(count));
    }
    ops.WeightedSum(std::span(terms_).first(count), std::span(factors_).first(count), hidden, out);
  }
  if (SY_MUTANT(options_.mutant, kLastRowLost) && row + 1 == request.rows()) {
    std::fill_n(out, hidden, Bf16{0});
  }
  if (SY_MUTANT(options_.mutant, kRowTailLost)) out[hidden - 1] = Bf16{0};
  // A NaN in x or in a weight makes every element of the answer NaN, so one element tells.
  if (IsNan(out[0])) ++chunk.nan_rows;
}

const Bf16* ChunkExecutor::RowOf(const ExecutorChunk& chunk, std::uint32_t row) const {
  if (!chunk.row_of.empty()) return chunk.row_of[row];
  const Bf16* rows = chunk.dtype == DispatchDtype::kBf16
                         ? reinterpret_cast<const Bf16*>(chunk.dense_rows)
                         : chunk.out;
  return rows + static_cast<std::int64_t>(row) * shape_.hidden;
}

}  // namespace switchyard
