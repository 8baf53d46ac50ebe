// Expert weights in the order in which the decode kernels stream them.
//
// A stage of a kernel is one contiguous copy: 128 or 256 weight rows by 128 bytes of k, in the
// tensor cores' 128-byte swizzle. Packing moves bytes and converts nothing; it happens once, as
// weights load.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace switchyard::cuda {

enum class WeightType : std::uint8_t { kFp8, kBf16, kInt8, kInt4, kInt4Fp8, kE2m1 };
// Four bits; narrow_weights.h packs them. Products expand them to what their rows are: to BF16, or
// kInt4Fp8 to E4M3.
constexpr bool IsNarrow(WeightType type) {
  return type == WeightType::kInt4 || type == WeightType::kInt4Fp8 || type == WeightType::kE2m1;
}
// Rows are E4M3 codes, with scales for each 128 of them.
constexpr bool HasFp8Rows(WeightType type) {
  return type == WeightType::kFp8 || type == WeightType::kInt4Fp8;
}

// Which weight rows a tile holds.
enum class WeightOrder : std::uint8_t {
  kRows128,            // 128 neighbors; n a multiple of 128
  kRows256,            // 256 neighbors; n a multiple of 256
  kGateUp256,          // 128 rows of gate and the same 128 of up; n / 2 a multiple of 128
  kGateUpInterleaved,  // 64 and 64, alternating by eights (fused_ffn.h); n / 2 a multiple of 64
};

// All groups of a layer. `scales` stay as checkpoints store them: [groups][n / 128][k / 128], FP32;
// for gate and up, the blocks of gate come first. Null for BF16 and INT8.
//
// Groups that were packed one by one lie where the device arrays of_group and scales_of_group say;
// `data` and `scales` are null then. Only products with FP32 output read such groups. The arrays
// are read before the kernels that precede the product are complete.
struct PackedWeights {
  const std::byte* data = nullptr;  // groups * n * row bytes, 128-byte aligned
  const float* scales = nullptr;
  std::int64_t n = 0;
  std::int64_t k = 0;
  WeightType type = WeightType::kFp8;
  WeightOrder order = WeightOrder::kRows128;
  const std::byte* const* of_group = nullptr;     // [groups]
  const float* const* scales_of_group = nullptr;  // [groups]
};

// Bytes of a row of activations that is multiplied by such weights.
constexpr std::int64_t RowBytesOf(WeightType type, std::int64_t k) {
  return HasFp8Rows(type) || type == WeightType::kInt8 ? k : 2 * k;
}
// Codes, then scales of rows.
constexpr std::int64_t NarrowBlockBytes(WeightType type) {
  return 128 * (128 / 2 + (type == WeightType::kInt4Fp8 ? 4 : 8));
}
// Blocks along k of a tile of 128 rows: 128 bytes of k, or 128 narrow weights.
constexpr std::int64_t BlocksOf(WeightType type, std::int64_t k) {
  return IsNarrow(type) ? k / 128 : RowBytesOf(type, k) / 128;
}
// Bytes of a packed matrix, n and k multiples of 128.
constexpr std::int64_t WeightBytesOf(WeightType type, std::int64_t n, std::int64_t k) {
  return IsNarrow(type) ? n / 128 * BlocksOf(type, k) * NarrowBlockBytes(type)
                        : n * RowBytesOf(type, k);
}
constexpr std::int64_t kInt8KMax = 65536;  // INT32 holds the sums of so many products
// The larger tile that suits n, unless its fewer units fill the SMs' last round badly.
constexpr WeightOrder PlainOrderFor(std::int64_t groups, std::int64_t n, std::int64_t sms = 132) {
  if (n % 256 != 0) return WeightOrder::kRows128;
  const std::int64_t units = groups * n / 256;
  const std::int64_t rounds = (units + sms - 1) / sms;
  return units * 10 >= rounds * sms * 9 ? WeightOrder::kRows256 : WeightOrder::kRows128;
}

// One expert's matrix, row-major as in the checkpoint. Gate and up are two matrices of n / 2 rows;
// the plain orders have everything in `first`.
struct CheckpointWeights {
  const std::byte* first = nullptr;   // 16-byte aligned
  const std::byte* second = nullptr;  // up
};

// Packs one group into `out`, the group's place: data + group * n * row bytes. Enqueues one kernel.
// Errors: cudaErrorInvalidValue for n or k that the order or type does not divide (k: 128 bytes),
// or a misaligned pointer.
cudaError_t PackWeights(const CheckpointWeights& from, WeightType type, WeightOrder order,
                        std::int64_t n, std::int64_t k, std::byte* out, cudaStream_t stream);

}  // namespace switchyard::cuda
