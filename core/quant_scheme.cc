#include "core/quant_scheme.h"

#include <algorithm>

namespace switchyard {
namespace {

constexpr std::uint8_t kCpuBit = 1U << static_cast<unsigned>(DeviceKind::kCpu);
constexpr std::uint8_t kCudaBit = 1U << static_cast<unsigned>(DeviceKind::kCuda);
constexpr std::uint8_t kAscendBit = 1U << static_cast<unsigned>(DeviceKind::kAscend);
static_assert(kDeviceKinds <= 8, "WireRule::kinds has one bit for each kind");
constexpr std::uint8_t kAnyKind = (1U << kDeviceKinds) - 1;
constexpr std::uint8_t kLowLatencyBit = 1U << static_cast<unsigned>(DispatchMode::kLowLatency);
constexpr std::uint8_t kAnyMode =
    kLowLatencyBit | 1U << static_cast<unsigned>(DispatchMode::kNormal);

constexpr WireRule Takes(DispatchDtype dtype, std::uint8_t kinds = kAnyKind,
                         std::uint8_t modes = kAnyMode, DtypeOrigin origin = DtypeOrigin::kAuto) {
  return {dtype, kinds, modes, origin};
}

constexpr std::array kBf16Rows{Takes(DispatchDtype::kBf16)};
constexpr std::array kFp8BlockRows{Takes(DispatchDtype::kBf16), Takes(DispatchDtype::kFp8)};
// NVFP4 layers send BF16 in normal mode.
constexpr std::array kNvfp4Rows{Takes(DispatchDtype::kBf16),
                                Takes(DispatchDtype::kNvfp4, kAnyKind, kLowLatencyBit)};
// Normal mode drops the scales of the rows, so FP8 rows are for low_latency only.
constexpr std::array kW4Afp8Rows{Takes(DispatchDtype::kBf16),
                                 Takes(DispatchDtype::kFp8, kAnyKind, kLowLatencyBit)};
// GPUs send no INT8. Experts convert FP8 rows to INT8, which costs accuracy, so FP8 must be named
// explicitly. BF16 rows are quantized per token at the expert.
constexpr std::array kW8A8Rows{
    Takes(DispatchDtype::kBf16), Takes(DispatchDtype::kInt8, kCpuBit | kAscendBit),
    Takes(DispatchDtype::kFp8, kCudaBit, kAnyMode, DtypeOrigin::kExplicit)};
constexpr std::array kW4A8Rows{Takes(DispatchDtype::kInt8)};

using ByKind = std::array<DispatchDtype, kDeviceKinds>;
constexpr ByKind OnAnyKind(DispatchDtype dtype) {
  ByKind all{};
  all.fill(dtype);
  return all;
}
constexpr auto kBf16 = OnAnyKind(DispatchDtype::kBf16);
// Ascend A2 and A3 have no FP8 rows and would send INT8, which FP8 experts do not accept.
constexpr std::array kFp8ButOnAscend{DispatchDtype::kFp8, DispatchDtype::kFp8,
                                     DispatchDtype::kBf16};
// CPU workers compute as NPUs do: their experts would convert BF16 rows to the same INT8 rows.
constexpr std::array kInt8ButOnCuda{DispatchDtype::kInt8, DispatchDtype::kBf16,
                                    DispatchDtype::kInt8};

// FP8 per tensor, per channel and in groups of 32 get BF16 rows because scales of 1x128 are not
// those that their experts use: two roundings, measured as broken for groups of 32.
constexpr std::array<QuantSchemeInfo, static_cast<std::size_t>(kLastQuantScheme) + 1> kRows{{
    {QuantScheme::kNone, "none", "unquantized BF16 weights", kBf16, kBf16Rows,
     ActivationQuant::kNone},
    {QuantScheme::kFp8Block, "fp8_block", "FP8 weights in 128x128 blocks", kFp8ButOnAscend,
     kFp8BlockRows, ActivationQuant::kFp8Group},
    {QuantScheme::kFp8TensorStatic, "fp8_tensor_static",
     "FP8 weights per tensor, stored input scale", kBf16, kBf16Rows, ActivationQuant::kFp8Row},
    {QuantScheme::kFp8TensorDynamic, "fp8_tensor_dynamic",
     "FP8 weights per tensor, measured input scale", kBf16, kBf16Rows, ActivationQuant::kFp8Row},
    {QuantScheme::kFp8Channel, "fp8_channel", "FP8 weights per channel", kBf16, kBf16Rows,
     ActivationQuant::kFp8Row},
    {QuantScheme::kNvfp4, "nvfp4", "NVFP4 weights in groups of 16",
     OnAnyKind(DispatchDtype::kNvfp4), kNvfp4Rows, ActivationQuant::kNvfp4Group},
    {QuantScheme::kW4Afp8, "w4afp8", "INT4 weights in groups of 128, FP8 inputs", kBf16,
     kW4Afp8Rows, ActivationQuant::kFp8Row},
    {QuantScheme::kW8A8Int8, "w8a8_int8", "INT8 weights per channel, INT8 inputs per token",
     kInt8ButOnCuda, kW8A8Rows, ActivationQuant::kInt8Token},
    {QuantScheme::kW4A8Int8, "w4a8_int8", "INT4 weights, INT8 inputs per token",
     OnAnyKind(DispatchDtype::kInt8), kW4A8Rows, ActivationQuant::kInt8Token},
    {QuantScheme::kW4A4Int4, "w4a4_int4", "INT4 weights, INT4 inputs per token", kBf16, kBf16Rows,
     ActivationQuant::kInt4Token},
    {QuantScheme::kW4A16Int4, "w4a16_int4", "INT4 weights in groups, BF16 inputs", kBf16, kBf16Rows,
     ActivationQuant::kNone},
    {QuantScheme::kAwqInt4, "awq_int4", "INT4 weights in groups with zero points, BF16 inputs",
     kBf16, kBf16Rows, ActivationQuant::kNone},
    {QuantScheme::kMxfp8, "mxfp8", "FP8 weights in groups of 32", kBf16, kBf16Rows,
     ActivationQuant::kFp8Group},
}};

struct QuantRow {
  const char* name;
  double layer_error_bound;
};
constexpr std::array<QuantRow, 6> kQuants{{
    {"none", 1e-4},
    {"int8_token", 5e-4},
    {"fp8_group", 1.1e-3},
    {"fp8_row", 1.2e-3},
    {"nvfp4_group", 1.5e-2},
    {"int4_token", 3e-2},
}};

template <typename Enum>
bool Has(std::uint8_t bits, Enum value) {
  return (bits >> static_cast<unsigned>(value) & 1U) != 0;
}

}  // namespace

absl::string_view ActivationQuantName(ActivationQuant quant) {
  return kQuants[static_cast<std::size_t>(quant)].name;
}

double LayerErrorBound(ActivationQuant quant) {
  return kQuants[static_cast<std::size_t>(quant)].layer_error_bound;
}

ActivationQuant ActivationQuantOf(DispatchDtype dtype) {
  switch (dtype) {
    case DispatchDtype::kBf16:
      break;
    case DispatchDtype::kFp8:
      return ActivationQuant::kFp8Group;
    case DispatchDtype::kInt8:
      return ActivationQuant::kInt8Token;
    case DispatchDtype::kNvfp4:
      return ActivationQuant::kNvfp4Group;
  }
  return ActivationQuant::kNone;
}

const QuantSchemeInfo& QuantSchemeInfoOf(QuantScheme scheme) {
  return kRows[static_cast<std::size_t>(scheme)];
}

std::span<const QuantSchemeInfo> AllQuantSchemes() { return kRows; }

std::optional<QuantScheme> QuantSchemeFromName(absl::string_view name) {
  for (const QuantSchemeInfo& row : kRows) {
    if (name == row.name) return row.scheme;
  }
  return std::nullopt;
}

bool Accepts(QuantScheme scheme, DispatchDtype dtype, const SchemeUse& use, DtypeOrigin origin) {
  if (dtype == DispatchDtype::kNvfp4 && !use.global_scale) return false;
  const std::span<const WireRule> rules = QuantSchemeInfoOf(scheme).accepts;
  return std::any_of(rules.begin(), rules.end(), [&](const WireRule& rule) {
    return rule.dtype == dtype && Has(rule.kinds, use.worker) && Has(rule.modes, use.mode) &&
           (origin == DtypeOrigin::kExplicit || rule.origin == DtypeOrigin::kAuto);
  });
}

DispatchDtype PreferredDtype(QuantScheme scheme, const SchemeUse& use) {
  const DispatchDtype preferred =
      QuantSchemeInfoOf(scheme).preferred[static_cast<std::size_t>(use.worker)];
  return Accepts(scheme, preferred, use, DtypeOrigin::kAuto) ? preferred : DispatchDtype::kBf16;
}

ActivationQuant CoarsestActivationQuant(QuantScheme scheme, DispatchDtype wire) {
  return std::max(QuantSchemeInfoOf(scheme).activations, ActivationQuantOf(wire));
}

}  // namespace switchyard
