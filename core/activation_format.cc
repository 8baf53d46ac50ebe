#include "core/activation_format.h"

#include <array>

namespace switchyard {
namespace {

constexpr std::array kAll{
    ActivationFormat::kBf16,      ActivationFormat::kFp8Group, ActivationFormat::kFp8GroupPow2,
    ActivationFormat::kInt8Row,   ActivationFormat::kNvfp4,    ActivationFormat::kFp8Row,
    ActivationFormat::kFp8Static, ActivationFormat::kInt4Row,
};
constexpr std::array kNames{"bf16",  "fp8_group", "fp8_group_pow2", "int8_row",
                            "nvfp4", "fp8_row",   "fp8_static",     "int4_row"};
static_assert(kAll.size() == kNames.size());
static_assert(kAll.size() == static_cast<std::size_t>(kLastActivationFormat) + 1);

// Schemes with two formats: FP8 blocks take the kind of scale that the checkpoint has, and W4A4 has
// INT4 rows before gate and up but INT8 rows before down. A device must prove all formats of a
// scheme before it advertises the scheme.
constexpr std::array kFp8Block{ActivationFormat::kFp8Group, ActivationFormat::kFp8GroupPow2};
constexpr std::array kFp8Row{ActivationFormat::kFp8Row};
constexpr std::array kFp8Static{ActivationFormat::kFp8Static};
constexpr std::array kNvfp4{ActivationFormat::kNvfp4};
constexpr std::array kInt8Row{ActivationFormat::kInt8Row};
constexpr std::array kW4A4{ActivationFormat::kInt4Row, ActivationFormat::kInt8Row};

}  // namespace

absl::string_view ActivationFormatName(ActivationFormat format) {
  return kNames[static_cast<std::size_t>(format)];
}

std::span<const ActivationFormat> AllActivationFormats() { return kAll; }

std::span<const ActivationFormat> ActivationFormatsOf(QuantScheme scheme) {
  switch (scheme) {
    case QuantScheme::kFp8Block:
      return kFp8Block;
    case QuantScheme::kFp8TensorStatic:
    case QuantScheme::kW4Afp8:
      return kFp8Static;
    case QuantScheme::kFp8TensorDynamic:
    case QuantScheme::kFp8Channel:
      return kFp8Row;
    case QuantScheme::kNvfp4:
      return kNvfp4;
    case QuantScheme::kW8A8Int8:
    case QuantScheme::kW4A8Int8:
      return kInt8Row;
    case QuantScheme::kW4A4Int4:
      return kW4A4;
    // Weights of these schemes are multiplied with BF16 rows. No layout stores MXFP8 yet.
    case QuantScheme::kNone:
    case QuantScheme::kW4A16Int4:
    case QuantScheme::kAwqInt4:
    case QuantScheme::kMxfp8:
      break;
  }
  return {};
}

}  // namespace switchyard
