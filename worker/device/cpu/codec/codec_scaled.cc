#include "worker/device/cpu/codec/codec_scaled.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/nvfp4_scale.h"

namespace switchyard {
namespace {

absl::Status CheckScaleOf(const CodecSpec& spec) {
  if (spec.format.scale == ScaleKind::kE4m3) return CheckGlobalScale(spec.global_scale);
  // Refused and not ignored: two sides that disagree about it would decode other values.
  if (spec.global_scale == 1.0F) return absl::OkStatus();
  const std::string name(WireFormatName(spec.format));
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("global scale ", spec.global_scale, " of wire format ", name,
                                ", which has none; leave it at 1"),
                   {{"format", name}, {"global_scale", absl::StrCat(spec.global_scale)}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScaledCodec>> ScaledCodec::Create(const CodecKernels& kernels,
                                                                 const CodecSpec& spec) {
  const RowCodec* row_codec = FindRowCodec(kernels, spec.format);
  if (row_codec == nullptr) {
    const std::string name(WireFormatName(spec.format));
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("no codec for wire format ", name, " in the ", kernels.name,
                                  " kernels; request one that the device has"),
                     {{"format", name}, {"kernels", kernels.name}});
  }
  // Checked once here, so that encoding and decoding cannot fail.
  SY_RETURN_IF_ERROR(CheckScaleOf(spec));
  return std::unique_ptr<ScaledCodec>(new ScaledCodec(*row_codec, spec));
}

void ScaledCodec::Encode(std::span<const Bf16* const> rows, std::int64_t hidden, std::byte* data,
                         std::byte* scales) const {
  const RowBytes bytes = RowBytesOf(spec_.format, hidden);
  for (const Bf16* row : rows) {
    row_codec_.encode(row, hidden, spec_.global_scale, data, scales);
    data += bytes.data;
    scales += bytes.scales;
  }
}

void ScaledCodec::Decode(const std::byte* data, const std::byte* scales, std::int64_t rows,
                         std::int64_t hidden, Bf16* out) const {
  const RowBytes bytes = RowBytesOf(spec_.format, hidden);
  for (std::int64_t row = 0; row < rows; ++row) {
    row_codec_.decode(data, scales, hidden, spec_.global_scale, out);
    data += bytes.data;
    scales += bytes.scales;
    out += hidden;
  }
}

}  // namespace switchyard
