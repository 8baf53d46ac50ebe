#include "worker/device/cuda/backend/expert_passes.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cuda/backend/cuda_codec.h"
#include "worker/device/cuda/steps/copy_words.h"

namespace switchyard {
namespace {

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
  const std::size_t terms = rows * static_cast<std::size_t>(run_.width);
  const std::size_t passes = 2 * (terms / space_.pairs_max_ + 1);
  const PassLists of_all(terms, rows, 0);
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
    const Cursor begin = from;
    from = Gather(from);
    if (rows_ == 0) continue;  // inputs without rows
    SY_RETURN_IF_ERROR(EnqueuePass(begin, nan + done));
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
  if (rows_ == space_.pairs_max_ || space_.pairs_max_ - pairs_ < width ||
      space_.terms_max() - rows_ * width < width) {
    return false;
  }
  const CudaCodec* codec = input.codec == nullptr ? nullptr : &AsCudaCodec(*input.codec);
  const RowBytes bytes = RowBytesOf(codec == nullptr ? kBf16Format : codec->format(), hidden_);
  const std::int32_t* const slots = input.slots + row * width;
  for (std::size_t k = 0; k < width; ++k) {
    if (slots[k] < 0) continue;
    ++space_.slot_begin_[static_cast<std::size_t>(slots[k]) + 1];
    ++pairs_;
  }
  const std::int64_t element = run_.out_dtype == OutputDtype::kF32 ? 4 : 2;
  space_.rows_[rows_++] = {.data = input.rows + row * bytes.data,
                           .scales = input.scales + row * bytes.scales,
                           .out = static_cast<std::byte*>(input.out) + row * hidden_ * element,
                           .global_scale = codec == nullptr ? 1.0F : codec->global_scale(),
                           .format = codec == nullptr ? cuda::RowFormat::kBf16 : codec->rows(),
                           .rounded = codec != nullptr};
  return true;
}

absl::Status ExpertPasses::EnqueuePass(Cursor from, std::uint8_t* nan) {
  const PassLists lists(rows_ * static_cast<std::size_t>(run_.width), rows_, slots_);
  std::byte* const staged = ring_->Allocate(lists.bytes);
  ExpertProducts products(table_, space_, stream_, fault_);
  FillSlots(staged, lists, &products);
  FillTerms(from, At<cuda::PairTerm>(staged, lists.terms));
  std::copy_n(space_.rows_.begin(), rows_, At<cuda::PassRow>(staged, lists.rows));
  products.Choose(run_.amax != nullptr);
  SY_RETURN_IF_ERROR(fault_->Check(cuda::CopyWords(space_.lists_, staged, lists.bytes, stream_),
                                   "copying the lists of a run"));
  const GroupedPairs pairs{.list = {.rows = At<cuda::PassRow>(space_.lists_, lists.rows),
                                    .terms = At<cuda::PairTerm>(space_.lists_, lists.terms),
                                    .experts = table_.facts(),
                                    .amax = run_.amax == nullptr ? nullptr : space_.amax_,
                                    .count = static_cast<std::int32_t>(rows_),
                                    .width = run_.width},
                           .counts = At<std::int32_t>(space_.lists_, lists.counts),
                           .offsets = At<std::int32_t>(space_.lists_, lists.offsets)};
  if (pairs_ > 0) SY_RETURN_IF_ERROR(products.Multiply(pairs));
  return products.Answer(pairs.list, run_.combine == CombineUnit::kPerWorker,
                         run_.out_dtype == OutputDtype::kF32, nan);
}

void ExpertPasses::FillSlots(std::byte* at, const PassLists& lists, ExpertProducts* products) {
  auto* const offsets = At<std::int32_t>(at, lists.offsets);
  auto* const counts = At<std::int32_t>(at, lists.counts);
  std::fill_n(counts, cuda::kRoutes * slots_, 0);
  std::int32_t before = 0;
  for (std::size_t s = 0; s < slots_; ++s) {
    const std::int32_t count = space_.slot_begin_[s + 1];
    const auto route = static_cast<std::size_t>(table_.expert(s).facts().route);
    counts[route * slots_ + s] = count;
    products->Expect(table_.expert(s).facts().route, count, count);
    offsets[s] = before;
    space_.slot_begin_[s] = before;  // where the slot's next pair goes
    before += count;
  }
}

// Stable: rows of a slot stay in the order of arrival.
void ExpertPasses::FillTerms(Cursor from, cuda::PairTerm* terms) {
  const auto width = static_cast<std::size_t>(run_.width);
  std::int32_t* const next = space_.slot_begin_.data();
  std::size_t left = rows_;
  for (Cursor at = from; left > 0; at = {.input = at.input + 1}) {
    const ExpertInput& input = run_.inputs[at.input];
    const std::size_t rows = std::min<std::size_t>(input.count - at.row, left);
    const std::size_t first = at.row * width;
    for (std::size_t i = first; i < first + rows * width; ++i) {
      const std::int32_t slot = input.slots[i];
      const float weight = input.weights == nullptr ? 1.0F : input.weights[i];
      *terms++ = slot < 0 ? cuda::PairTerm{}
                          : cuda::PairTerm{.place = next[slot]++, .slot = slot, .weight = weight};
    }
    left -= rows;
  }
}

}  // namespace switchyard
