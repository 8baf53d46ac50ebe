// The numbers that experts compute with, and the wire dtypes that such experts accept.
//
// On-disk spellings of the same numbers are one scheme (ModelOpt and compressed-tensors NVFP4;
// compressed-tensors and ModelSlim W8A8); model/quant/layout distinguishes them. A scheme over
// existing codecs is one row in quant_scheme.cc.
//
// Sources of the rules: SGLang's DeepEP dispatcher and its quantization methods (PRs 22822, 24906,
// 25678), compressed-tensors, ModelOpt, ModelSlim and AutoAWQ checkpoints. Where a row differs from
// SGLang, quant_scheme.cc says why.
//
// Constant data; thread-safe; every call is a few comparisons.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/strings/string_view.h"

#include "core/device_profile.h"
#include "core/dispatch_mode.h"
#include "core/format/dtype.h"

namespace switchyard {

// Wire values: append only. N x K is [out, in] of one projection.
enum class QuantScheme : std::uint8_t {
  kNone = 0,              // unquantized BF16
  kFp8Block = 1,          // E4M3, one FP32 scale for each 128x128 block
  kFp8TensorStatic = 2,   // E4M3, one scale for a projection, input scale in the checkpoint
  kFp8TensorDynamic = 3,  // E4M3, one scale for a projection, input scale measured
  kFp8Channel = 4,        // E4M3, one scale for each of N
  kNvfp4 = 5,             // E2M1, E4M3 scale for each 16 of K, FP32 global scales
  kW4Afp8 = 6,            // INT4 in groups of 128 of K, one static FP8 input scale
  kW8A8Int8 = 7,          // INT8, symmetric, one scale for each of N
  kW4A8Int8 = 8,          // INT4 with INT8 inputs, scales for each of N or for groups of K
  kW4A4Int4 = 9,          // gate and up INT4 with INT4 inputs; down INT8 with INT8 inputs
  kW4A16Int4 = 10,        // INT4, symmetric, groups of K (mostly 32), BF16 inputs
  kAwqInt4 = 11,          // INT4 with zero points, groups of K (mostly 128), BF16 inputs
  kMxfp8 = 12,            // E4M3, one power of two for each 32 of K
};
inline constexpr QuantScheme kLastQuantScheme = QuantScheme::kMxfp8;

// The rounding of activations, on the wire or inside the experts. Ascending by the error that it
// leaves in a layer's output, so that the later one of two is the coarser.
enum class ActivationQuant : std::uint8_t {
  kNone = 0,       // BF16
  kInt8Token = 1,  // INT8, a scale for each row
  kFp8Group = 2,   // E4M3, a scale for each 128 (MXFP8: 32) values
  kFp8Row = 3,     // E4M3, a scale for each row, or one for the tensor
  kNvfp4Group = 4,
  kInt4Token = 5,  // INT4, a scale for each row
};
absl::string_view ActivationQuantName(ActivationQuant quant);  // "none", "int8_token", ...
ActivationQuant ActivationQuantOf(DispatchDtype dtype);        // the rounding of a wire dtype
// Upper bound of calc_diff(y, y of unquantized activations) of a layer with top-k 8 or 10 and
// Gaussian rows of 2048 or 7168 values, measured with an independent implementation. calc_diff is
// that of DeepEP's tests: 1 - 2 sum((x+1)(y+1)) / sum((x+1)^2 + (y+1)^2).
double LayerErrorBound(ActivationQuant quant);

// Whether a deployment or checkpoint names the wire dtype, or a rule chose it. Some dtypes lose
// accuracy and are accepted only when named.
enum class DtypeOrigin : std::uint8_t { kAuto = 0, kExplicit = 1 };

// One line of a scheme's table: workers of `kinds` accept `dtype` in `modes`.
struct WireRule {
  DispatchDtype dtype;
  std::uint8_t kinds;  // bit i: DeviceKind i
  std::uint8_t modes;  // bit i: DispatchMode i
  DtypeOrigin origin;  // kExplicit: never by default
};

// One scheme's row. Constant data.
struct QuantSchemeInfo {
  QuantScheme scheme;
  const char* name;         // in configs, plans and tables; never changes
  const char* description;  // for people, e.g. "FP8 weights in 128x128 blocks"
  // The default wire dtype by DeviceKind of the worker. It may not be acceptable in every mode
  // (kNvfp4 in normal mode, or without a global input scale): PreferredDtype decides.
  std::array<DispatchDtype, kDeviceKinds> preferred;
  std::span<const WireRule> accepts;
  ActivationQuant activations;  // the coarsest that the experts apply themselves
};

// The row of `scheme`; total over the enum.
const QuantSchemeInfo& QuantSchemeInfoOf(QuantScheme scheme);
// Constant data.
std::span<const QuantSchemeInfo> AllQuantSchemes();  // in the order of their values
// nullopt for any other name.
std::optional<QuantScheme> QuantSchemeFromName(absl::string_view name);

// The conditions, besides the scheme, that decide whether a dtype is accepted.
struct SchemeUse {
  DeviceKind worker = DeviceKind::kCpu;
  DispatchMode mode = DispatchMode::kNormal;
  bool global_scale = false;  // the layer has a global input scale, equal for all its experts
};
// The wire dtype that rule "scheme" proposes: the default, or BF16 where the default is not
// accepted.
DispatchDtype PreferredDtype(QuantScheme scheme, const SchemeUse& use);
// True when experts of `scheme` can compute on rows of `dtype`. NVFP4 rows need a global scale.
bool Accepts(QuantScheme scheme, DispatchDtype dtype, const SchemeUse& use, DtypeOrigin origin);

// The coarser of the roundings that `wire` and the experts of `scheme` apply to activations.
ActivationQuant CoarsestActivationQuant(QuantScheme scheme, DispatchDtype wire);

}  // namespace switchyard
