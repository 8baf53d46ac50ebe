#include "worker/device/cuda/backend/expert_passes.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cuda/backend/cuda_codec.h"
#include "worker/device/cuda/steps/copy_words.h"
#include "worker/device/cuda/steps/pair_rows.h"
#include "worker/device/cuda/steps/scaled_product.h"

namespace switchyard {
namespace {

using cuda::Padded;
using cuda::Route;

template <typename T>
T* At(std::byte* base, std::size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

}  // namespace

ExpertPasses::ExpertPasses(const ExpertRun& run, StagingRing* ring, cudaStream_t stream,
                           CudaFault* fault)
    : run_(run),
      ring_(ring),
      stream_(stream),
      fault_(fault),
      table_(static_cast<const CudaTable&>(*run.experts)),
      space_(static_cast<CudaWorkspace&>(*run.workspace)),
      hidden_(space_.shape_.hidden),
      slots_(static_cast<std::size_t>(table_.slots())) {}

// An upper bound: a pass takes whole rows, so each but the last is more than half full.
absl::Status ExpertPasses::CheckRoom() const {
  std::size_t rows = 0;
  for (const ExpertInput& input : run_.inputs) rows += input.count;
  const std::size_t pairs = rows * static_cast<std::size_t>(run_.width);
  const std::size_t passes = 2 * (pairs / space_.pairs_max_ + 1);
  const PassLists of_all(pairs, rows, 0);
  const PassLists of_slots(0, 0, slots_);
  constexpr std::size_t kUnit = 256;  // alignment of a piece, and of its lists
  const std::size_t bytes = of_all.bytes + passes * (of_slots.bytes + 2 * kUnit) + rows +
                            slots_ * 2 * sizeof(float) + 4 * kUnit;
  // Twice, for what is left empty where the ring starts again.
  if (2 * bytes > ring_->capacity()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                     absl::StrFormat("a run over %d rows needs more than the %d bytes of staging "
                                     "memory of a stream; send fewer rows at once",
                                     rows, ring_->capacity()));
  }
  if (2 * bytes > ring_->free()) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                     "the staging memory of this stream is in use; wait for an event");
  }
  return absl::OkStatus();
}

absl::Status ExpertPasses::Enqueue(RunResults* results) {
  SY_RETURN_IF_ERROR(CheckRoom());
  for (std::size_t s = 0; s < slots_; ++s) {
    if (table_.expert(s).Fits(space_.shape_)) continue;
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadShape,
        absl::StrFormat("the expert of slot %d has another shape than the workspace", s));
  }
  std::size_t rows = 0;
  for (ExpertInput& input : run_.inputs) {
    input.nan_rows = 0;
    rows += input.count;
  }
  if (rows == 0) return absl::OkStatus();
  auto* const nan = reinterpret_cast<std::uint8_t*>(ring_->Allocate(rows));
  const std::size_t amax_bytes = slots_ * 2 * sizeof(float);
  if (run_.amax != nullptr) {
    SY_RETURN_IF_ERROR(fault_->Check(cudaMemsetAsync(space_.amax_, 0, amax_bytes, stream_),
                                     "clearing magnitudes"));
  }
  std::size_t done = 0;
  for (Cursor from; from.input < run_.inputs.size();) {
    from = Gather(from);
    if (rows_ == 0) continue;  // inputs without rows
    SY_RETURN_IF_ERROR(EnqueuePass(nan + done));
    done += rows_;
  }
  results->nan = nan;
  if (run_.amax == nullptr) return absl::OkStatus();
  auto* const amax = ring_->Allocate(amax_bytes);
  results->amax = reinterpret_cast<const float*>(amax);
  return fault_->Check(
      cudaMemcpyAsync(amax, space_.amax_, amax_bytes, cudaMemcpyDeviceToHost, stream_),
      "copying magnitudes");
}

// Takes whole rows until the next one would not fit.
ExpertPasses::Cursor ExpertPasses::Gather(Cursor from) {
  pairs_ = 0;
  rows_ = 0;
  std::fill_n(space_.slot_begin_.begin(), slots_ + 1, 0);
  Cursor at = from;
  for (; at.input < run_.inputs.size(); at = {.input = at.input + 1}) {
    const ExpertInput& input = run_.inputs[at.input];
    for (; at.row < input.count; ++at.row) {
      if (!GatherRow(input, at.row)) return at;
    }
  }
  return at;
}

// False when the row does not fit into this pass.
bool ExpertPasses::GatherRow(const ExpertInput& input, std::uint32_t row) {
  const auto width = static_cast<std::size_t>(run_.width);
  if (rows_ == space_.pairs_max_ || space_.pairs_max_ - pairs_ < width) return false;
  const CudaCodec* codec = input.codec == nullptr ? nullptr : &AsCudaCodec(*input.codec);
  const RowBytes bytes = RowBytesOf(codec == nullptr ? kBf16Format : codec->format(), hidden_);
  const std::size_t first = pairs_;
  for (std::size_t k = row * width; k < (row + 1) * width; ++k) {
    const std::int32_t slot = input.slots[k];
    if (slot < 0) continue;
    space_.pairs_[pairs_] = {.data = input.rows + row * bytes.data,
                             .scales = input.scales + row * bytes.scales,
                             .global_scale = codec == nullptr ? 1.0F : codec->global_scale(),
                             .slot = slot,
                             .format = codec == nullptr ? cuda::RowFormat::kBf16 : codec->rows(),
                             .rounded = codec != nullptr};
    space_.weights_[pairs_] = input.weights == nullptr ? 1.0F : input.weights[k];
    ++space_.slot_begin_[static_cast<std::size_t>(slot) + 1];
    ++pairs_;
  }
  const std::int64_t element = run_.out_dtype == OutputDtype::kF32 ? 4 : 2;
  space_.rows_[rows_++] = {.out = static_cast<std::byte*>(input.out) + row * hidden_ * element,
                           .first = static_cast<std::int32_t>(first),
                           .count = static_cast<std::int32_t>(pairs_ - first)};
  return true;
}

absl::Status ExpertPasses::EnqueuePass(std::uint8_t* nan) {
  const PassLists lists(pairs_, rows_, slots_);
  std::byte* const staged = ring_->Allocate(lists.bytes);
  std::int32_t busiest[cuda::kRoutes] = {};
  FillLists(staged, lists, busiest);
  SY_RETURN_IF_ERROR(fault_->Check(cuda::CopyWords(space_.lists_, staged, lists.bytes, stream_),
                                   "copying the lists of a run"));
  return Launch(lists, busiest, nan);
}

void ExpertPasses::FillLists(std::byte* at, const PassLists& lists,
                             std::int32_t (&busiest)[cuda::kRoutes]) {
  auto* const offsets = At<std::int32_t>(at, lists.offsets);
  auto* const counts = At<std::int32_t>(at, lists.counts);
  std::fill_n(counts, cuda::kRoutes * slots_, 0);
  std::int32_t before = 0;
  for (std::size_t s = 0; s < slots_; ++s) {
    const std::int32_t count = space_.slot_begin_[s + 1];
    const auto route = static_cast<std::size_t>(table_.expert(s).facts().route);
    counts[route * slots_ + s] = count;
    busiest[route] = std::max(busiest[route], count);
    offsets[s] = before;
    space_.slot_begin_[s] = before;  // where the slot's next pair goes
    before += count;
  }
  // Stable: rows of a slot stay in the order of arrival.
  auto* const pairs = At<cuda::PairSource>(at, lists.pair_sources);
  auto* const terms = At<cuda::AnswerTerm>(at, lists.terms);
  for (std::size_t p = 0; p < pairs_; ++p) {
    const auto slot = static_cast<std::size_t>(space_.pairs_[p].slot);
    const std::int32_t place = space_.slot_begin_[slot]++;
    pairs[place] = space_.pairs_[p];
    terms[p] = {.pair = place, .weight = space_.weights_[p]};
  }
  std::copy_n(space_.rows_.begin(), rows_, At<cuda::AnswerRow>(at, lists.answer_rows));
}

absl::Status ExpertPasses::Launch(const PassLists& lists,
                                  const std::int32_t (&busiest)[cuda::kRoutes], std::uint8_t* nan) {
  const std::int64_t hidden = Padded(hidden_);
  const std::int64_t middle = Padded(space_.shape_.intermediate);
  const cuda::PairList list{.pairs = At<cuda::PairSource>(space_.lists_, lists.pair_sources),
                            .experts = table_.facts(),
                            .amax = run_.amax == nullptr ? nullptr : space_.amax_,
                            .count = static_cast<std::int32_t>(pairs_)};
  if (pairs_ > 0) {
    SY_RETURN_IF_ERROR(
        fault_->Check(LoadPairRows(list, hidden_, space_.inputs_, stream_), "loading rows"));
    SY_RETURN_IF_ERROR(Multiply(Matrix::kGateUp, lists, busiest));
    SY_RETURN_IF_ERROR(
        fault_->Check(SwigluPairRows(list, space_.gate_up_, 2 * middle, space_.shape_.intermediate,
                                     space_.middle_, stream_),
                      "multiplying gate and up"));
    SY_RETURN_IF_ERROR(Multiply(Matrix::kDown, lists, busiest));
  }
  const cuda::Answers answers{.rows = At<cuda::AnswerRow>(space_.lists_, lists.answer_rows),
                              .terms = At<cuda::AnswerTerm>(space_.lists_, lists.terms),
                              .sums = space_.down_,
                              .sum_stride = hidden,
                              .hidden = hidden_,
                              .count = static_cast<std::int32_t>(rows_),
                              .weighted = run_.combine == CombineUnit::kPerWorker,
                              .fp32 = run_.out_dtype == OutputDtype::kF32,
                              .nan = nan};
  return fault_->Check(WriteAnswers(answers, list, stream_), "writing answers");
}

absl::Status ExpertPasses::Multiply(Matrix matrix, const PassLists& lists,
                                    const std::int32_t (&busiest)[cuda::kRoutes]) {
  const bool down = matrix == Matrix::kDown;
  const std::int64_t hidden = Padded(hidden_);
  const std::int64_t middle = Padded(space_.shape_.intermediate);
  for (const Route route : {Route::kBf16, Route::kFp8}) {
    const std::int32_t most = busiest[static_cast<std::size_t>(route)];
    if (most > 0) SY_RETURN_IF_ERROR(MultiplyGrouped(matrix, route, lists, most));
  }
  for (const Route route : {Route::kScaledBf16, Route::kScaledE4m3, Route::kScaledInt8}) {
    const auto index = static_cast<std::size_t>(route);
    if (busiest[index] == 0) continue;
    const cuda::PairRows& rows = down ? space_.middle_ : space_.inputs_;
    const cuda::ScaledProduct product{
        .route = route,
        .experts = table_.facts(),
        .down = down,
        .counts = At<std::int32_t>(space_.lists_, lists.counts) + index * slots_,
        .offsets = At<std::int32_t>(space_.lists_, lists.offsets),
        .slots = static_cast<std::int32_t>(slots_),
        .rows = rows.rows,
        .row_stride = rows.stride,
        .out = down ? space_.down_ : space_.gate_up_,
        .out_stride = down ? hidden : 2 * middle,
        .n = down ? hidden : 2 * middle,
        .k = down ? middle : hidden};
    SY_RETURN_IF_ERROR(fault_->Check(MultiplyScaled(product, stream_), "multiplying experts"));
  }
  return absl::OkStatus();
}

absl::Status ExpertPasses::MultiplyGrouped(Matrix matrix, Route route, const PassLists& lists,
                                           std::int32_t busiest) {
  const bool down = matrix == Matrix::kDown;
  const std::int64_t hidden = Padded(hidden_);
  const std::int64_t middle = Padded(space_.shape_.intermediate);
  const cuda::PairRows& rows = down ? space_.middle_ : space_.inputs_;
  const auto index = static_cast<std::size_t>(route);
  cuda::PackedWeights weights = table_.Weights(route, matrix);
  weights.n = down ? hidden : 2 * middle;
  weights.k = down ? middle : hidden;
  const cuda::GemmGroups groups{
      .counts = At<std::int32_t>(space_.lists_, lists.counts) + index * slots_,
      .offsets = At<std::int32_t>(space_.lists_, lists.offsets),
      .groups = static_cast<std::int32_t>(slots_)};
  const cuda::GemmRows gathered{
      .rows = rows.rows, .stride = rows.stride, .scale_offset = rows.scale_offset};
  float* const sums = down ? space_.down_ : space_.gate_up_;
  const cuda::GemmOutput out{.out = reinterpret_cast<std::byte*>(sums),
                             .stride = weights.n * std::int64_t{sizeof(float)},
                             .fp32 = true};
  const cuda::GemmPlan plan = cuda::PlanGroupedGemm(weights, busiest);
  return fault_->Check(cuda::GroupedGemm(gathered, groups, weights, out, plan, true, stream_),
                       "multiplying experts");
}

}  // namespace switchyard
