// A wire format as the kernels of the CUDA device know it.
#pragma once

#include <optional>

#include "worker/device/cuda/codec.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// The kernels' name of `format`; none for formats that have no name.
inline std::optional<cuda::RowFormat> RowFormatOf(const WireFormat& format) {
  if (format == kBf16Format) return cuda::RowFormat::kBf16;
  if (format == kFp8Format) return cuda::RowFormat::kFp8;
  if (format == kFp8Ue8m0Format) return cuda::RowFormat::kFp8Ue8m0;
  if (format == kInt8Format) return cuda::RowFormat::kInt8;
  if (format == kNvfp4Format) return cuda::RowFormat::kNvfp4;
  return std::nullopt;
}

class CudaCodec final : public Codec {
 public:
  CudaCodec(const CodecSpec& spec, cuda::RowFormat rows) : spec_(spec), rows_(rows) {}
  [[nodiscard]] WireFormat format() const override { return spec_.format; }
  [[nodiscard]] cuda::RowFormat rows() const { return rows_; }
  [[nodiscard]] float global_scale() const override { return spec_.global_scale; }

 private:
  const CodecSpec spec_;
  const cuda::RowFormat rows_;
};

// Codecs never change devices.
inline const CudaCodec& AsCudaCodec(const Codec& codec) {
  return static_cast<const CudaCodec&>(codec);
}

}  // namespace switchyard
