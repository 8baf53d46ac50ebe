#include "quantize/encode.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "core/format/fp8.h"
#include "core/format/nvfp4_scale.h"
#include "model/io/checkpoint_error.h"
#include "model/quant/layout/expected_tensors.h"
#include "quantize/encoders.h"

namespace switchyard {
namespace internal {

absl::Status WrongWeight(const EncodeRequest& request, absl::string_view what) {
  return MakeCheckpointError(
      CheckpointErrorKind::kWrongValue,
      {.file = "", .tensor = absl::StrCat(request.module, ".weight"), .offset = std::nullopt},
      what);
}

namespace {

// The encoder of a row of the layout table (model/quant/layout/quant_layout.cc). It is here and not
// in that row because workers read layouts and never write them.
struct Encoder {
  QuantLayout layout;
  EncodedTensors (*encode)(const EncodeRequest& request);
  bool bf16_input_scale = false;  // the layout stores the scale of static inputs in BF16
};

EncodedTensors EncodeBf16(const EncodeRequest& request) {
  std::vector<Bf16> values(request.weights.size());
  FloatsToBf16(request.weights, values);
  return std::vector<RawTensor>{TensorOf(TensorRole::kWeight, TensorDtype::kBf16,
                                         {request.size.rows, request.size.columns}, values)};
}

constexpr std::array<Encoder, static_cast<std::size_t>(kLastQuantLayout) + 1> kEncoders{{
    {QuantLayout::kBf16, EncodeBf16},
    {QuantLayout::kFp8Block, EncodeFp8Block},
    {QuantLayout::kFp8BlockCompressed, EncodeFp8Block},
    {QuantLayout::kFp8Tensor, EncodeFp8Tensor},
    {QuantLayout::kFp8Channel, EncodeFp8Channel},
    {QuantLayout::kNvfp4ModelOpt, EncodeNvfp4},
    {QuantLayout::kNvfp4Compressed, EncodeNvfp4},
    {QuantLayout::kW4Afp8, EncodeW4Afp8, true},
    {QuantLayout::kInt8Channel, EncodeInt8},
    {QuantLayout::kModelSlimW8A8, EncodeModelSlimInt8},
    {QuantLayout::kModelSlimW4A8, EncodeModelSlimW4A8},
    {QuantLayout::kModelSlimW4A4, EncodeModelSlimW4A4},
    {QuantLayout::kPackQuantized, EncodePackQuantized},
    {QuantLayout::kAwq, EncodeAwq},
}};

constexpr bool EveryLayoutHasAnEncoder() {
  for (std::size_t i = 0; i < kEncoders.size(); ++i) {
    // A missing row stands at layout 0. Function pointers cannot be compared here: under a
    // sanitizer that is no constant expression in GCC 12. -Wmissing-field-initializers finds a row
    // without one.
    if (static_cast<std::size_t>(kEncoders[i].layout) != i) return false;
  }
  return true;
}
static_assert(EveryLayoutHasAnEncoder(),
              "the table needs one row for each QuantLayout, in the order of its values");

const Encoder& EncoderOf(QuantLayout layout) { return kEncoders[static_cast<std::size_t>(layout)]; }

}  // namespace

// NVFP4 rows are codes up to 6 times scales up to 448; FP8 rows are codes up to 448.
absl::StatusOr<float> InputScale(const EncodeRequest& request) {
  const bool nvfp4 = ActivationFormatOf(request.quant) == ActivationFormat::kNvfp4;
  float scale = request.input_amax / (nvfp4 ? kNvfp4Range : kE4m3Max);
  if (EncoderOf(request.quant.layout).bf16_input_scale) scale = Bf16ToFloat(FloatToBf16(scale));
  if (!(scale > 0) || !std::isfinite(scale)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrCat(request.module, ": the inputs' largest magnitude ", request.input_amax,
                     " gives no scale above zero; calibrate with rows that reach it"),
        {{"module", std::string(request.module)}});
  }
  // For NVFP4 the reciprocal is the global scale of rows, which has bounds of its own.
  if (!nvfp4) return scale;
  const absl::Status usable = GlobalScaleFromModelOpt(scale).status();
  if (usable.ok()) return scale;
  return WithMetadata(Annotate(usable, request.module), "module", request.module);
}

namespace {

absl::Status CheckFinite(const EncodeRequest& request) {
  const auto bad = std::find_if(request.weights.begin(), request.weights.end(),
                                [](float weight) { return !std::isfinite(weight); });
  if (bad == request.weights.end()) return absl::OkStatus();
  const auto at = bad - request.weights.begin();
  return WrongWeight(request,
                     absl::StrCat("the weight [", at / request.size.columns, ", ",
                                  at % request.size.columns, "] is ", *bad,
                                  ", which no quant layout can store; repair the checkpoint, "
                                  "or keep this layer in BF16"));
}

}  // namespace
}  // namespace internal

absl::StatusOr<RawProjection> Encode(const EncodeRequest& request) {
  // For its checks of the sizes: encoders divide by groups and words without looking.
  SY_RETURN_IF_ERROR(ExpectedTensors(request.quant, request.projection, request.size).status());
  SY_RETURN_IF_ERROR(internal::CheckFinite(request));
  RawProjection raw{request.quant, request.size, {}};
  SY_ASSIGN_OR_RETURN(raw.tensors, internal::EncoderOf(request.quant.layout).encode(request));
  return raw;
}

float AmaxOf(std::span<const float> weights) {
  float amax = 0;
  for (const float weight : weights) amax = std::max(amax, std::abs(weight));
  return amax;
}

absl::Status CheckInputAmax(const ProjectionQuant& quant, float input_amax,
                            absl::string_view module) {
  if (!quant.static_inputs) return absl::OkStatus();
  EncodeRequest request;
  request.quant = quant;
  request.module = module;
  request.input_amax = input_amax;
  return internal::InputScale(request).status();
}

}  // namespace switchyard
