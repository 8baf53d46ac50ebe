#include "worker/device/host/host_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/host/host_codec.h"

namespace switchyard {
namespace {

// Half of a core's L2 cache where it is 2 MiB.
constexpr std::int64_t kCachedBytes = std::int64_t{1} << 20;

// A thread computes so many multiplications and additions before a pass gives way to other work.
// That takes a core some 5 ms at 100 GFLOP/s; a pass of large experts takes a hundred times as
// long, and a decode run must not wait for all of it.
constexpr std::int64_t kPieceFlops = std::int64_t{1} << 29;

bool IsNan(Bf16 bits) { return (bits & 0x7fffU) > 0x7f80U; }

}  // namespace

absl::StatusOr<std::unique_ptr<HostWorkspace>> HostWorkspace::Create(HostKernels* kernels,
                                                                     const MoeShape& shape,
                                                                     std::int64_t pairs_max) {
  // First, because it checks the shape that the sizes below are computed from.
  SY_ASSIGN_OR_RETURN(auto scratch, kernels->MakeScratch(shape));
  if (pairs_max < std::max(shape.top_k, 1)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("a workspace for %d pairs is below the layer's top-%d; a pass takes whole "
                        "rows",
                        pairs_max, shape.top_k));
  }
  std::unique_ptr<HostWorkspace> space(new HostWorkspace(shape, pairs_max));
  space->scratch_ = std::move(scratch);
  const std::int64_t bytes = pairs_max * shape.hidden * std::int64_t{sizeof(float)};
  SY_ASSIGN_OR_RETURN(space->y_memory_, AlignedBuffer::Allocate(bytes));
  // Touch the pages here: the first pass must not pay for them.
  std::memset(space->y_memory_.data(), 0, static_cast<std::size_t>(bytes));
  space->y_ = reinterpret_cast<float*>(space->y_memory_.data());
  return space;
}

HostWorkspace::HostWorkspace(const MoeShape& shape, std::int64_t pairs_max)
    : shape_(shape), pairs_max_(pairs_max) {
  const auto pairs = static_cast<std::size_t>(pairs_max);
  const auto experts = static_cast<std::size_t>(std::max(shape.experts, 1));
  const auto top_k = static_cast<std::size_t>(std::max(shape.top_k, 1));
  slot_of_pair_.resize(pairs);
  row_of_pair_.resize(pairs);
  rounded_.resize(pairs);
  grouped_rounded_.resize(pairs);
  place_of_pair_.resize(pairs);
  slot_begin_.resize(experts + 1);
  grouped_rows_.resize(pairs);
  batches_.reserve(experts);
  terms_.resize(top_k);
  factors_.resize(top_k);
}

HostRun::HostRun(const ExpertRun& run, HostKernels* kernels)
    : run_(run),
      kernels_(kernels),
      table_(static_cast<const HostTable&>(*run.experts)),
      space_(static_cast<HostWorkspace&>(*run.workspace)),
      hidden_(space_.shape_.hidden) {}

void HostRun::Execute(const OtherWork& others) {
  for (ExpertInput& input : run_.inputs) {
    input.nan_rows = 0;
    if (input.codec != nullptr) Decode(input);
  }
  pairs_of_pass_ = PairsOfPass();
  Cursor from;
  while (from.input < run_.inputs.size()) {
    const Cursor to = Gather(from);
    RunGathered(others);
    Combine(from, to);
    from = to;
    // Between passes only: after the last one the answers are complete and must not wait for other
    // work.
    if (from.input < run_.inputs.size() && others.waits()) others.run();
  }
}

// BF16 rows are decoded where their answers will stand, which saves a buffer of the size of the
// batch: a pass has read all of its rows before it writes their answers. FP32 answers have no room
// for BF16 rows of later passes, because row i's answer would cover row 2i; those go in the second
// half of `out`, which no answer reaches before its own row has been read.
void HostRun::Decode(const ExpertInput& input) const {
  Bf16* rows = static_cast<Bf16*>(input.out);
  if (run_.out_dtype == OutputDtype::kF32) rows += static_cast<std::int64_t>(input.count) * hidden_;
  AsHostCodec(*input.codec).Decode(input.rows, input.scales, input.count, hidden_, rows);
}

const Bf16* HostRun::RowOf(const ExpertInput& input, std::uint32_t row) const {
  const Bf16* rows = static_cast<const Bf16*>(input.out);
  if (input.codec == nullptr) {
    rows = reinterpret_cast<const Bf16*>(input.rows);
  } else if (run_.out_dtype == OutputDtype::kF32) {
    rows += static_cast<std::int64_t>(input.count) * hidden_;
  }
  return rows + static_cast<std::int64_t>(row) * hidden_;
}

// Rows of y leave the cache before they are summed when a pass has many. Fewer rows a pass keep
// them there, which is worth reading the weights again only when those stay in the cache as well.
std::int64_t HostRun::PairsOfPass() const {
  const std::int64_t row_bytes = hidden_ * std::int64_t{sizeof(float)};
  std::int64_t y_bytes = 0;
  for (const ExpertInput& input : run_.inputs) y_bytes += row_bytes * input.count * run_.width;
  if (y_bytes <= kCachedBytes || table_.bytes() > kCachedBytes) return space_.pairs_max_;
  return std::clamp<std::int64_t>(kCachedBytes / row_bytes, run_.width, space_.pairs_max_);
}

// Takes whole rows until the next one would not fit.
HostRun::Cursor HostRun::Gather(Cursor from) {
  pairs_ = 0;
  std::fill_n(space_.slot_begin_.begin(), table_.slots() + 1, 0U);
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
bool HostRun::GatherRow(const ExpertInput& input, std::uint32_t row) {
  const auto width = static_cast<std::size_t>(run_.width);
  if (static_cast<std::size_t>(pairs_of_pass_) - pairs_ < width) return false;
  const Bf16* bits = RowOf(input, row);
  const std::int32_t* slots = input.slots + row * width;
  for (std::size_t k = 0; k < width; ++k) {
    // An expert of another worker.
    if (slots[k] < 0) continue;
    space_.slot_of_pair_[pairs_] = slots[k];
    space_.row_of_pair_[pairs_] = bits;
    space_.rounded_[pairs_] = input.codec != nullptr ? 1 : 0;
    ++pairs_;
    ++space_.slot_begin_[static_cast<std::size_t>(slots[k]) + 1];
  }
  return true;
}

void HostRun::RunGathered(const OtherWork& others) {
  const auto slots = static_cast<std::size_t>(table_.slots());
  // A counting sort by slot: linear, and each expert's weights are then read for all its rows at
  // once.
  for (std::size_t s = 0; s < slots; ++s) space_.slot_begin_[s + 1] += space_.slot_begin_[s];
  // Stable: rows of a slot stay in the order of arrival. Afterwards slot_begin_[s] is the end of s.
  for (std::size_t pair = 0; pair < pairs_; ++pair) {
    const auto slot = static_cast<std::size_t>(space_.slot_of_pair_[pair]);
    const std::uint32_t place = space_.slot_begin_[slot]++;
    space_.place_of_pair_[pair] = place;
    space_.grouped_rows_[place] = space_.row_of_pair_[pair];
    space_.grouped_rounded_[place] = space_.rounded_[pair];
  }
  space_.batches_.clear();
  std::size_t begin = 0;
  for (std::size_t s = 0; s < slots; ++s) {
    const std::size_t end = space_.slot_begin_[s];
    if (end > begin) {
      const TableEntry& entry = table_.entry(s);
      space_.batches_.push_back(
          {.expert = entry.weights.get(),
           .rows = std::span(space_.grouped_rows_).subspan(begin, end - begin),
           .out = space_.y_ + static_cast<std::int64_t>(begin) * hidden_,
           .amax = run_.amax == nullptr ? nullptr : run_.amax + entry.expert.value,
           .rounded = space_.grouped_rounded_.data() + begin});
    }
    begin = end;
  }
  RunExperts(others);
}

// Threads meet only where the pass really gives way: waiting for the slowest of them after each
// piece would cost more than the pieces are worth. An expert is never cut, so its weights are still
// read once a pass.
void HostRun::RunExperts(const OtherWork& others) {
  std::span<const ExpertRows> left = space_.batches_;
  // As in HostStream::IsSmall: two bytes a weight and two operations.
  std::int64_t flops = 0;
  for (const ExpertRows& batch : left) {
    flops += static_cast<std::int64_t>(batch.rows.size()) * batch.expert->bytes();
  }
  const std::int64_t flops_of_one = flops / std::max<std::int64_t>(std::ssize(left), 1);
  while (!left.empty()) {
    std::int64_t computed = 0;
    const std::size_t count = kernels_->RunExpertsUntil(left, *space_.scratch_, [&] {
      computed += flops_of_one;
      return computed >= kPieceFlops && others.waits();
    });
    left = left.subspan(count);
    if (!left.empty()) others.run();
  }
}

void HostRun::Combine(const Cursor& from, const Cursor& to) {
  std::size_t pair = 0;
  for (std::size_t i = from.input; i < run_.inputs.size() && i <= to.input; ++i) {
    ExpertInput& input = run_.inputs[i];
    const std::uint32_t begin = i == from.input ? from.row : 0;
    const std::uint32_t end = i == to.input ? to.row : input.count;
    for (std::uint32_t row = begin; row < end; ++row) AnswerRow(input, row, &pair);
  }
}

// `pair` walks the pass's pairs in the order in which Gather added them.
void HostRun::AnswerRow(ExpertInput& input, std::uint32_t row, std::size_t* pair) {
  const auto width = static_cast<std::size_t>(run_.width);
  const std::int32_t* slots = input.slots + row * width;
  std::size_t count = 0;
  for (std::size_t k = 0; k < width; ++k) {
    if (slots[k] < 0) continue;
    space_.terms_[count] = space_.y_ + space_.place_of_pair_[(*pair)++] * hidden_;
    if (run_.combine == CombineUnit::kPerWorker) {
      space_.factors_[count] = input.weights[row * width + k];
    }
    ++count;
  }
  const std::int64_t at = static_cast<std::int64_t>(row) * hidden_;
  if (run_.out_dtype == OutputDtype::kF32) {
    float* out = static_cast<float*>(input.out) + at;
    if (count == 0) {
      std::fill_n(out, hidden_, 0.0F);
    } else {
      std::memcpy(out, space_.terms_[0], static_cast<std::size_t>(hidden_) * sizeof(float));
    }
    if (std::isnan(out[0])) ++input.nan_rows;
    return;
  }
  Bf16* out = static_cast<Bf16*>(input.out) + at;
  const RowOps& ops = kernels_->row_ops();
  if (run_.combine == CombineUnit::kPerExpert && count > 0) {
    ops.RoundToBf16(space_.terms_[0], hidden_, out);
  } else {
    ops.WeightedSum(std::span(space_.terms_).first(count), std::span(space_.factors_).first(count),
                    hidden_, out);
  }
  // A NaN in x or in a weight makes every element of the answer NaN, so one element is enough.
  if (IsNan(out[0])) ++input.nan_rows;
}

}  // namespace switchyard
