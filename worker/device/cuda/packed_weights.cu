#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda {
namespace {

constexpr int kBlockRows = 128;
constexpr int kChunksOfRow = 8;  // 16-byte chunks of a block's 128-byte row
constexpr int kThreads = 256;

struct PackArguments {
  CheckpointWeights from;
  std::byte* out;
  std::int64_t n;
  std::int64_t row_bytes;
};

struct Source {
  const std::byte* matrix;
  std::int64_t row;
};

// The checkpoint's row that packed row `r` of tile `tile` holds.
template <WeightOrder kOrder>
__device__ __forceinline__ Source SourceOf(const CheckpointWeights& from, std::int64_t tile,
                                           int r) {
  if constexpr (kOrder == WeightOrder::kRows128) {
    return {from.first, tile * 128 + r};
  } else if constexpr (kOrder == WeightOrder::kRows256) {
    return {from.first, tile * 256 + r};
  } else if constexpr (kOrder == WeightOrder::kGateUp256) {
    // Warpgroup w multiplies packed rows 128 w.. (gate) and 128 w + 64.. (up): each of its threads
    // ends up with gate and up of the same hidden value.
    const bool up = (r >> 6 & 1) != 0;
    return {up ? from.second : from.first, tile * 128 + (r >> 7) * 64 + (r & 63)};
  } else {
    // Eight rows of gate, then the same eight of up, again for the sake of a thread's accumulators.
    const bool up = (r >> 3 & 1) != 0;
    return {up ? from.second : from.first, tile * 64 + (r >> 4) * 8 + (r & 7)};
  }
}

template <WeightOrder kOrder>
__global__ void Pack(const PackArguments args) {
  constexpr bool k256 = kOrder == WeightOrder::kRows256 || kOrder == WeightOrder::kGateUp256;
  constexpr int kBlocks = k256 ? 2 : 1;
  const std::int64_t k_blocks = args.row_bytes / 128;
  const std::int64_t chunks = args.n * args.row_bytes / 16;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < chunks; i += step) {
    const int chunk = static_cast<int>(i % kChunksOfRow);
    const int row = static_cast<int>(i / kChunksOfRow % kBlockRows);
    const std::int64_t block = i / (kChunksOfRow * kBlockRows);
    const int half = static_cast<int>(block % kBlocks);
    const std::int64_t k_block = block / kBlocks % k_blocks;
    const std::int64_t tile = block / kBlocks / k_blocks;
    const Source source = SourceOf<kOrder>(args.from, tile, half * kBlockRows + row);
    const std::byte* from =
        source.matrix + source.row * args.row_bytes + k_block * 128 + chunk * 16;
    // The swizzle: chunk c of row r lies at c xor r % 8.
    std::byte* to = args.out + (i - chunk) * 16 + ((chunk ^ (row & 7)) * 16);
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  }
}

bool IsAligned(const std::byte* pointer) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

cudaError_t PackWeights(const CheckpointWeights& from, WeightType type, WeightOrder order,
                        std::int64_t n, std::int64_t k, std::byte* out, cudaStream_t stream) {
  const bool gated = order == WeightOrder::kGateUp256 || order == WeightOrder::kGateUpInterleaved;
  const bool by_256 = order == WeightOrder::kRows256 || order == WeightOrder::kGateUp256;
  const std::int64_t row_bytes = RowBytesOf(type, k);
  if (n <= 0 || k <= 0 || n % (by_256 ? 256 : 128) != 0 || row_bytes % 128 != 0 ||
      !IsAligned(from.first) || (gated && !IsAligned(from.second)) || !IsAligned(out)) {
    return cudaErrorInvalidValue;
  }
  const PackArguments args = {from, out, n, row_bytes};
  const std::int64_t blocks = (n * row_bytes / 16 + kThreads - 1) / kThreads;
  const auto grid = static_cast<unsigned>(blocks < 4096 ? blocks : 4096);
  switch (order) {
    case WeightOrder::kRows128:
      Pack<WeightOrder::kRows128><<<grid, kThreads, 0, stream>>>(args);
      break;
    case WeightOrder::kRows256:
      Pack<WeightOrder::kRows256><<<grid, kThreads, 0, stream>>>(args);
      break;
    case WeightOrder::kGateUp256:
      Pack<WeightOrder::kGateUp256><<<grid, kThreads, 0, stream>>>(args);
      break;
    case WeightOrder::kGateUpInterleaved:
      Pack<WeightOrder::kGateUpInterleaved><<<grid, kThreads, 0, stream>>>(args);
      break;
  }
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
