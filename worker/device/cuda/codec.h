// Row codecs of the CUDA device: gather BF16 rows by index and encode them, and decode. Every byte
// equals what the scalar CPU codecs write (worker/device/cpu/codec/codec_kernels.h has the formulas
// and what becomes of NaN and infinity), for every input.
//
// All pointers are device pointers. The functions check arguments, enqueue one kernel on `stream`
// and return; they allocate nothing and are safe to capture in a graph. Thread-safe.
//
// Errors: cudaErrorInvalidValue for negative sizes, hidden <= 0 with rows > 0, a stride smaller
// than a row, or scales of 4 bytes that are not 4-byte aligned; else whatever the launch returned.
// Rows of 0 enqueue nothing. Faults of the kernel itself surface at the stream's next
// synchronization.
//
// Cost: one pass over the memory, close to its bandwidth where activations, data and strides are
// multiples of 16 bytes and hidden of 16 values; any other layout is served by single-byte
// accesses, some ten times slower.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace switchyard::cuda {

// The wire formats of core/format/wire_format.h, by which scales they carry.
enum class RowFormat : std::uint8_t {
  kBf16,      // 2 bytes a value, no scales
  kFp8,       // E4M3, an FP32 scale for each 128 values
  kFp8Ue8m0,  // E4M3, a UE8M0 byte for each 128 values
  kInt8,      // an FP32 scale for the row
  kNvfp4,     // E2M1, an E4M3 scale for each 16 values, times a global scale
};

// Row i of the output is row `index[i]` of `activations`, or row i where `index` is null. Indices
// are not checked. `stride`: values from row to row.
struct GatheredRows {
  const std::uint16_t* activations = nullptr;
  const std::int32_t* index = nullptr;
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  std::int64_t stride = 0;
};

// Where encoded rows lie. Strides are bytes from row to row; data and scales may interleave, and no
// byte outside a row's own data and scales is written. BF16 ignores the scales.
struct EncodedRows {
  std::byte* data = nullptr;
  std::byte* scales = nullptr;
  std::int64_t data_stride = 0;
  std::int64_t scale_stride = 0;
};

// `global_scale` is NVFP4's (core/format/nvfp4_scale.h); other formats ignore it.
cudaError_t EncodeRows(RowFormat format, const GatheredRows& rows, float global_scale,
                       const EncodedRows& out, cudaStream_t stream);

struct DecodedRows {
  std::uint16_t* out = nullptr;  // BF16
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  std::int64_t stride = 0;  // values
};

// Reads the data and scales of `in` and writes `out`; takes any bytes.
cudaError_t DecodeRows(RowFormat format, const EncodedRows& in, float global_scale,
                       const DecodedRows& out, cudaStream_t stream);

}  // namespace switchyard::cuda
