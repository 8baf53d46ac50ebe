#include "worker/device/cpu/codec/activation_rounding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/format/fp8.h"

namespace switchyard {
namespace {

constexpr Bf16 kNan = 0x7fc0;
constexpr Bf16 kInfinity = 0x7f80;
constexpr float kAmaxMin = 1e-4F;  // of FP8, as codec_kernels.h
constexpr float kInt4Max = 7.0F;

Bf16 LargestMagnitude(const Bf16* values, std::int64_t count) {
  Bf16 largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<Bf16>(values[i] & 0x7fffU));
  }
  return largest;
}

Bf16 RoundDecoded(float value) { return std::isnan(value) ? kNan : FloatToBf16(value); }

// nullptr: none of the codecs does this.
const RowCodec* CodecFor(const CodecKernels& kernels, ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kFp8Group:
      return &kernels.fp8;
    case ActivationFormat::kFp8GroupPow2:
      return &kernels.fp8_ue8m0;
    case ActivationFormat::kInt8Row:
      return &kernels.int8;
    case ActivationFormat::kNvfp4:
      return &kernels.nvfp4;
    case ActivationFormat::kBf16:
    case ActivationFormat::kFp8Row:
    case ActivationFormat::kFp8Static:
    case ActivationFormat::kInt4Row:
      break;
  }
  return nullptr;
}

void RoundFp8Row(const Bf16* in, std::int64_t count, Bf16* out) {
  const Bf16 largest = LargestMagnitude(in, count);
  if (largest >= kInfinity) {
    std::fill(out, out + count, kNan);
    return;
  }
  const float amax = std::max(kAmaxMin, Bf16ToFloat(largest));
  const float factor = kE4m3Max / amax;
  const float scale = amax / kE4m3Max;
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = FloatToBf16(E4m3ToFloat(FloatToE4m3(Bf16ToFloat(in[i]) * factor)) * scale);
  }
}

void RoundFp8Static(const Bf16* in, std::int64_t count, float scale, Bf16* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = RoundDecoded(E4m3ToFloat(FloatToE4m3(Bf16ToFloat(in[i]) / scale)) * scale);
  }
}

void RoundInt4Row(const Bf16* in, std::int64_t count, Bf16* out) {
  const Bf16 largest = LargestMagnitude(in, count);
  if (largest >= kInfinity) {
    std::fill(out, out + count, kNan);
    return;
  }
  const float scale = Bf16ToFloat(largest) / kInt4Max;
  for (std::int64_t i = 0; i < count; ++i) {
    // The scale of the smallest values can itself become zero; their row is zeros then.
    const float code =
        scale == 0 ? 0.0F : std::clamp(std::nearbyint(Bf16ToFloat(in[i]) / scale), -8.0F, kInt4Max);
    out[i] = FloatToBf16(code * scale);
  }
}

absl::Status Failed(const CodecKernels& kernels, ActivationFormat format, absl::string_view what) {
  return MakeError(
      absl::StatusCode::kInternal, Reason::kInternal,
      absl::StrCat("self-test: rounding ", ActivationFormatName(format), " with the ", kernels.name,
                   " kernels: ", what, "; report the CPU that it ran on"));
}

// 448, -448, 1, -0.5, 0.25, 0, 3.5, 100 and what becomes of them; the scale is 2 for FP8 with a
// stored one and 6 for NVFP4.
constexpr std::array<float, 8> kKnown{448, -448, 1, -0.5, 0.25, 0, 3.5, 100};
constexpr std::array<float, 8> kKnownFp8{448, -448, 1, -0.5, 0.25, 0, 3.5, 96};
constexpr std::array<float, 8> kKnownInt4{448, -448, 0, -0.0F, 0, 0, 0, 128};
constexpr std::array<float, 8> kKnownInt8{448, -448, 0, 0, 0, 0, 3.53125, 99};
constexpr std::array<float, 8> kKnownNvfp4{448, -448, 0, -0.0F, 0, 0, 0, 112};

ActivationSpec KnownSpec(ActivationFormat format) {
  if (format == ActivationFormat::kFp8Static) return {format, 2.0F};
  if (format == ActivationFormat::kNvfp4) return {format, 6.0F};
  return {format, 1.0F};
}

const std::array<float, 8>& KnownResult(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kInt8Row:
      return kKnownInt8;
    case ActivationFormat::kInt4Row:
      return kKnownInt4;
    case ActivationFormat::kNvfp4:
      return kKnownNvfp4;
    default:
      return kKnownFp8;
  }
}

}  // namespace

std::int64_t RoundingScratchBytes(std::int64_t count) {
  std::int64_t scales = 0;
  for (const NamedWireFormat& row : WireFormats()) {
    scales = std::max(scales, RowBytesOf(row.format, count).scales);
  }
  return count + scales;  // No format but BF16 has more than a byte for each value.
}

void RoundRow(const CodecKernels& kernels, const ActivationSpec& spec, const Bf16* in,
              std::int64_t count, std::byte* scratch, Bf16* out) {
  if (const RowCodec* codec = CodecFor(kernels, spec.format); codec != nullptr) {
    std::byte* scales = scratch + count;
    codec->encode(in, count, spec.scale, scratch, scales);
    codec->decode(scratch, scales, count, spec.scale, out);
    return;
  }
  if (spec.format == ActivationFormat::kFp8Row) return RoundFp8Row(in, count, out);
  if (spec.format == ActivationFormat::kFp8Static) {
    return RoundFp8Static(in, count, spec.scale, out);
  }
  RoundInt4Row(in, count, out);
}

absl::Status TestRounding(const CodecKernels& kernels, ActivationFormat format) {
  const auto count = static_cast<std::int64_t>(kKnown.size());
  std::vector<Bf16> in(kKnown.size());
  std::transform(kKnown.begin(), kKnown.end(), in.begin(), FloatToBf16);
  std::vector<Bf16> want(kKnown.size());
  const std::array<float, 8>& known = KnownResult(format);
  std::transform(known.begin(), known.end(), want.begin(), FloatToBf16);
  std::vector<std::byte> scratch(static_cast<std::size_t>(RoundingScratchBytes(count)));
  std::vector<Bf16> out(kKnown.size(), kNan);
  RoundRow(kernels, KnownSpec(format), in.data(), count, scratch.data(), out.data());
  if (out != want) return Failed(kernels, format, "a row with known values has different ones");
  RoundRow(kernels, KnownSpec(format), in.data(), count, scratch.data(), in.data());
  if (in != want) return Failed(kernels, format, "in place it differs");
  return absl::OkStatus();
}

}  // namespace switchyard
