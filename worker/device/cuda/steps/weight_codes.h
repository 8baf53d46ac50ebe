// The codes in which a device keeps weights, made from the BF16 values that the seam hands over.
//
// Each function enqueues one kernel; it allocates nothing. Thread-safe. Errors:
// cudaErrorInvalidValue for sizes below one; else what the launch returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace switchyard::cuda {

enum class WeightCode : std::uint8_t { kBf16, kE4m3, kInt8 };
constexpr std::int64_t BytesOf(WeightCode code) { return code == WeightCode::kBf16 ? 2 : 1; }

// Which codes fail to hold some value exactly: raised to 1, never lowered. Device memory.
struct CodeMisfits {
  std::uint32_t e4m3 = 0;
  std::uint32_t int8 = 0;
};
cudaError_t FindCodeMisfits(const std::uint16_t* values, std::int64_t count, CodeMisfits* misfits,
                            cudaStream_t stream);

// [rows, columns] BF16 as a row-major matrix of codes, [padded_rows, padded_columns] with zeros
// around. Every value has an exact code.
struct CodedMatrix {
  const std::uint16_t* values = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t padded_rows = 0;
  std::int64_t padded_columns = 0;
  std::byte* out = nullptr;
};
cudaError_t StoreCodes(const CodedMatrix& matrix, WeightCode code, cudaStream_t stream);

}  // namespace switchyard::cuda
