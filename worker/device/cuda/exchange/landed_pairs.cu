#include "worker/device/cuda/exchange/exchange_launch.h"
#include "worker/device/cuda/exchange/landed_pairs.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 256;

struct LandedArguments {
  const std::byte* rows;  // of the rank's heap
  ExchangeRows lists;
  ExchangeShape shape;
  int row_stride;
  int data_bytes;
  RowFormat format;
  float global_scale;
  const ExpertFacts* experts;
  std::uint16_t* answers;
  LandedPairs out;
  PairWindow window;
};

// The expert whose slots hold this one.
__device__ __forceinline__ int ExpertOfSlot(const std::int32_t* offsets, int experts, int slot) {
  int low = 0;
  int high = experts;  // offsets[low] <= slot < offsets[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (offsets[middle] <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreads)
    ListPairs(const __grid_constant__ LandedArguments args) {
  const int experts = args.shape.experts_of_rank;
  const int pairs = args.lists.offsets[experts];
  const auto at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const auto in_window = [&args](int slot) {
    return min(max(slot - args.window.first, 0), args.window.count);
  };
  for (int i = at; i < kRoutes * experts; i += static_cast<int>(gridDim.x * blockDim.x)) {
    const int e = i % experts;
    const bool is_route = static_cast<int>(args.experts[e].route) == i / experts;
    const int begin = in_window(args.lists.offsets[e]);
    args.out.counts[i] = is_route ? in_window(args.lists.offsets[e + 1]) - begin : 0;
    if (i < experts) args.out.offsets[e] = begin;
  }
  if (at >= args.window.count) return;
  PassRow row;
  PairTerm term;
  const int slot = args.window.first + at;
  if (slot < pairs) {
    row.data = args.rows + static_cast<std::int64_t>(args.lists.row_index[slot]) * args.row_stride;
    row.scales = row.data + args.data_bytes;
    row.out = reinterpret_cast<std::byte*>(args.answers +
                                           static_cast<std::int64_t>(slot) * args.shape.hidden);
    row.global_scale = args.global_scale;
    row.format = args.format;
    row.rounded = args.format != RowFormat::kBf16;
    term.place = at;
    term.slot = ExpertOfSlot(args.lists.offsets, experts, slot);
  }
  args.out.rows[at] = row;
  args.out.terms[at] = term;
}

RowFormat RowFormatOf(ExchangeFormat format) {
  switch (format) {
    case ExchangeFormat::kBf16:
      return RowFormat::kBf16;
    case ExchangeFormat::kInt8:
      return RowFormat::kInt8;
    case ExchangeFormat::kNvfp4:
      return RowFormat::kNvfp4;
    case ExchangeFormat::kFp8:
    case ExchangeFormat::kFp8Pow2:
      return RowFormat::kFp8;
  }
  return RowFormat::kBf16;
}

}  // namespace

cudaError_t ListLandedPairs(const ExchangeRank& rank, const ExchangeStep& step,
                            const PairWindow& window, const ExpertFacts* experts,
                            std::uint16_t* answers, const LandedPairs& out, cudaStream_t stream) {
  if (!IsExchangeStep(rank, step) || experts == nullptr || answers == nullptr ||
      out.rows == nullptr || out.terms == nullptr || out.counts == nullptr ||
      out.offsets == nullptr || window.first < 0 || window.count < 1) {
    return cudaErrorInvalidValue;
  }
  LandedArguments args{};
  args.rows = rank.heaps[rank.rank] + rank.layout.rows;
  args.lists = step.rows;
  args.shape = rank.shape;
  args.row_stride = rank.layout.row_stride;
  args.data_bytes = DataBytesOf(step.format, rank.shape.hidden);
  args.format = RowFormatOf(step.format);
  args.global_scale = step.global_scale;
  args.experts = experts;
  args.answers = answers;
  args.out = out;
  args.window = window;
  const int ctas = (window.count + kThreads - 1) / kThreads;
  ListPairs<<<ctas, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
