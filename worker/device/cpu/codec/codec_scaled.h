// Codecs of the quantized formats: FP8 with FP32 or UE8M0 scales, INT8 per token, NVFP4. Formulas,
// rounding and what becomes of NaN: worker/device/cpu/codec/codec_kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "worker/device/cpu/codec/codec_kernels.h"
#include "worker/device/host/host_codec.h"

namespace switchyard {

// Walks the rows and leaves each to the kernels; keeps nothing but the spec.
class ScaledCodec final : public HostCodec {
 public:
  // Errors: kUnimplemented (UNSUPPORTED) for a format that `kernels` do not have; kInvalidArgument
  // (BAD_CONFIG) for a global scale that CheckGlobalScale (core/format/nvfp4_scale.h) refuses, or
  // other than 1 where the format has none.
  static absl::StatusOr<std::unique_ptr<ScaledCodec>> Create(const CodecKernels& kernels,
                                                             const CodecSpec& spec);

  [[nodiscard]] WireFormat format() const override { return spec_.format; }
  [[nodiscard]] float global_scale() const override { return spec_.global_scale; }
  void Encode(std::span<const Bf16* const> rows, std::int64_t hidden, std::byte* data,
              std::byte* scales) const override;
  void Decode(const std::byte* data, const std::byte* scales, std::int64_t rows,
              std::int64_t hidden, Bf16* out) const override;

 private:
  ScaledCodec(const RowCodec& row_codec, const CodecSpec& spec)
      : row_codec_(row_codec), spec_(spec) {}

  const RowCodec row_codec_;
  const CodecSpec spec_;
};

}  // namespace switchyard
