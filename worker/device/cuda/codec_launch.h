// The launches of encode and decode kernels have this in common: checks of arguments and the size
// of a CTA. Pure host functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "worker/device/cuda/codec.h"

namespace switchyard::cuda {

inline bool AreMultiples(std::int64_t unit, const void* pointer, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(unit) == 0 &&
         stride % unit == 0;
}

// Sixteen values a thread, whole warps, at most 512 threads.
inline unsigned ThreadsOfRow(std::int64_t hidden) {
  constexpr std::int64_t kValuesOfWarp = 32 * 16;
  return static_cast<unsigned>(
      std::min<std::int64_t>((hidden + kValuesOfWarp - 1) / kValuesOfWarp * 32, 512));
}

inline bool IsValidShape(std::int64_t rows, std::int64_t hidden, std::int64_t stride) {
  return rows > 0 && rows <= std::numeric_limits<std::int32_t>::max() && hidden > 0 &&
         stride >= hidden;
}

struct RowSize {
  std::int64_t data;
  std::int64_t scales;
  bool aligned;  // scales of 4 bytes
};

inline RowSize SizeOfRow(RowFormat format, std::int64_t hidden) {
  switch (format) {
    case RowFormat::kBf16:
      return {hidden * 2, 0, false};
    case RowFormat::kFp8:
      return {hidden, (hidden + 127) / 128 * 4, true};
    case RowFormat::kFp8Ue8m0:
      return {hidden, (hidden + 127) / 128, false};
    case RowFormat::kInt8:
      return {hidden, 4, true};
    case RowFormat::kNvfp4:
      return {(hidden + 1) / 2, (hidden + 15) / 16, false};
  }
  return {0, 0, false};
}

inline bool IsValidLayout(RowFormat format, std::int64_t hidden, const EncodedRows& rows) {
  const RowSize size = SizeOfRow(format, hidden);
  if (rows.data == nullptr || rows.data_stride < size.data) return false;
  if (size.scales == 0) return true;
  if (rows.scales == nullptr || rows.scale_stride < size.scales) return false;
  return !size.aligned || AreMultiples(4, rows.scales, rows.scale_stride);
}

}  // namespace switchyard::cuda
