// The formulas of codec_kernels.h one value at a time: what the vector kernels are compared with,
// and what a CPU without them runs.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/format/fp4.h"
#include "core/format/fp8.h"
#include "core/format/nibbles.h"
#include "worker/device/cpu/codec/codec_kernels.h"

namespace switchyard {
namespace {

constexpr std::int64_t kFp8Group = kFp8Format.group;
constexpr std::int64_t kNvfp4Group = kNvfp4Format.group;
constexpr Bf16 kInfinity = 0x7f80;
constexpr Bf16 kNan = 0x7fc0;
constexpr std::uint32_t kFloatNan = 0x7fc00000;
constexpr float kAmaxMin = 1e-4F;

// Magnitude bits of the largest of `count` values; from kInfinity on one is not finite.
// The bits of magnitudes order as the numbers do, and NaN comes after infinity, so one integer
// maximum finds the amax and everything that is not finite.
Bf16 LargestMagnitude(const Bf16* values, std::int64_t count) {
  Bf16 largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<Bf16>(values[i] & 0x7fffU));
  }
  return largest;
}

Bf16 RoundDecoded(float value) { return std::isnan(value) ? kNan : FloatToBf16(value); }

void StoreFloat(float value, std::byte* out) { std::memcpy(out, &value, sizeof(value)); }

float LoadFloat(const std::byte* in) {
  float value = 0;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

struct Fp32Scales {
  static constexpr std::int64_t kBytes = 4;
  static void StoreNan(std::byte* out) { StoreFloat(std::bit_cast<float>(kFloatNan), out); }
  // Stores the scale of a group and returns what its values are multiplied by.
  static float Store(float amax, std::byte* out) {
    StoreFloat(amax / kE4m3Max, out);
    return kE4m3Max / amax;
  }
  static float Load(const std::byte* in) { return LoadFloat(in); }
};

struct Ue8m0Scales {
  static constexpr std::int64_t kBytes = 1;
  static void StoreNan(std::byte* out) { *out = std::byte{kUe8m0Nan}; }
  static float Store(float amax, std::byte* out) {
    const Ue8m0 scale = FloatToUe8m0RoundUp(amax / kE4m3Max);
    *out = std::byte{scale};
    return 1.0F / Ue8m0ToFloat(scale);  // exact: a power of two
  }
  static float Load(const std::byte* in) { return Ue8m0ToFloat(std::to_integer<Ue8m0>(*in)); }
};

template <typename Scales>
void EncodeFp8(const Bf16* row, std::int64_t hidden, float /*global_scale*/, std::byte* data,
               std::byte* scales) {
  for (std::int64_t begin = 0; begin < hidden; begin += kFp8Group, scales += Scales::kBytes) {
    const std::int64_t end = std::min(begin + kFp8Group, hidden);
    const Bf16 largest = LargestMagnitude(row + begin, end - begin);
    if (largest >= kInfinity) {
      Scales::StoreNan(scales);
      std::fill(data + begin, data + end, std::byte{kE4m3Nan});
      continue;
    }
    // A floor under the amax keeps the factor finite for a group of zeros.
    const float factor = Scales::Store(std::max(kAmaxMin, Bf16ToFloat(largest)), scales);
    for (std::int64_t i = begin; i < end; ++i) {
      data[i] = std::byte{FloatToE4m3(Bf16ToFloat(row[i]) * factor)};
    }
  }
}

template <typename Scales>
void DecodeFp8(const std::byte* data, const std::byte* scales, std::int64_t hidden,
               float /*global_scale*/, Bf16* out) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float scale = Scales::Load(scales + i / kFp8Group * Scales::kBytes);
    out[i] = RoundDecoded(E4m3ToFloat(std::to_integer<Fp8E4m3>(data[i])) * scale);
  }
}

void EncodeInt8(const Bf16* row, std::int64_t hidden, float /*global_scale*/, std::byte* data,
                std::byte* scales) {
  const Bf16 largest = LargestMagnitude(row, hidden);
  const bool finite = largest < kInfinity;
  const float scale = finite ? Bf16ToFloat(largest) / 127.0F : std::bit_cast<float>(kFloatNan);
  StoreFloat(scale, scales);
  if (!finite || largest == 0) {
    std::fill(data, data + hidden, std::byte{0});
    return;
  }
  for (std::int64_t i = 0; i < hidden; ++i) {
    // nearbyint rounds ties to even, as the vector conversion does; round would not.
    const float rounded = std::nearbyint(Bf16ToFloat(row[i]) / scale);
    const auto code = static_cast<std::int8_t>(std::clamp(rounded, -128.0F, 127.0F));
    data[i] = std::byte{static_cast<std::uint8_t>(code)};
  }
}

void DecodeInt8(const std::byte* data, const std::byte* scales, std::int64_t hidden,
                float /*global_scale*/, Bf16* out) {
  const float scale = LoadFloat(scales);
  for (std::int64_t i = 0; i < hidden; ++i) {
    const auto code = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(data[i]));
    out[i] = RoundDecoded(static_cast<float>(code) * scale);
  }
}

void EncodeNvfp4(const Bf16* row, std::int64_t hidden, float global_scale, std::byte* data,
                 std::byte* scales) {
  // Codes are or'ed in by nibbles, and the last nibble of an odd row stays zero.
  std::fill(data, data + RowBytesOf(kNvfp4Format, hidden).data, std::byte{0});
  for (std::int64_t begin = 0; begin < hidden; begin += kNvfp4Group, ++scales) {
    const std::int64_t end = std::min(begin + kNvfp4Group, hidden);
    const Bf16 largest = LargestMagnitude(row + begin, end - begin);
    if (largest >= kInfinity) {
      *scales = std::byte{kE4m3Nan};
      continue;
    }
    const Fp8E4m3 scale = FloatToE4m3(global_scale * Bf16ToFloat(largest) / kE2m1Max);
    *scales = std::byte{scale};
    const float factor = scale == 0 ? 0.0F : global_scale / E4m3ToFloat(scale);
    for (std::int64_t i = begin; i < end; ++i) {
      const NibbleAt at = NibbleOf(i);
      data[at.byte] |= std::byte{FloatToE2m1(Bf16ToFloat(row[i]) * factor)} << at.shift;
    }
  }
}

void DecodeNvfp4(const std::byte* data, const std::byte* scales, std::int64_t hidden,
                 float global_scale, Bf16* out) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    const NibbleAt at = NibbleOf(i);
    const float value = E2m1ToFloat(std::to_integer<Fp4E2m1>((data[at.byte] >> at.shift)));
    const float scale = E4m3ToFloat(std::to_integer<Fp8E4m3>(scales[i / kNvfp4Group]));
    out[i] = RoundDecoded(value * scale / global_scale);
  }
}

}  // namespace

constinit const CodecKernels kScalarCodecKernels = {
    .name = "scalar",
    .fp8 = {.encode = EncodeFp8<Fp32Scales>, .decode = DecodeFp8<Fp32Scales>},
    .fp8_ue8m0 = {.encode = EncodeFp8<Ue8m0Scales>, .decode = DecodeFp8<Ue8m0Scales>},
    .int8 = {.encode = EncodeInt8, .decode = DecodeInt8},
    .nvfp4 = {.encode = EncodeNvfp4, .decode = DecodeNvfp4}};

}  // namespace switchyard
