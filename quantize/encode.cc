#include "quantize/encode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "core/format/fp8.h"
#include "core/format/nvfp4_scale.h"
#include "model/io/checkpoint_error.h"
#include "quantize/encoders.h"

namespace switchyard {
namespace internal {

absl::Status WrongWeight(const EncodeRequest& request, absl::string_view what) {
  return MakeCheckpointError(
      CheckpointErrorKind::kWrongValue,
      {.file = "", .tensor = absl::StrCat(request.module, ".weight"), .offset = std::nullopt},
      what);
}

absl::StatusOr<float> InputScale(const EncodeRequest& request) {
  const QuantLayout layout = request.quant.layout;
  const bool nvfp4 =
      layout == QuantLayout::kNvfp4ModelOpt || layout == QuantLayout::kNvfp4Compressed;
  float scale = request.input_amax / (nvfp4 ? kNvfp4Range : kE4m3Max);
  if (layout == QuantLayout::kW4Afp8) scale = Bf16ToFloat(FloatToBf16(scale));
  if (!(scale > 0) || !std::isfinite(scale)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrCat(request.module, ": the inputs' largest magnitude ", request.input_amax,
                     " gives no scale above zero; calibrate with rows that reach it"),
        {{"module", std::string(request.module)}});
  }
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
  return WrongWeight(request, absl::StrCat("the weight [", at / request.size.columns, ", ",
                                           at % request.size.columns, "] is ", *bad,
                                           ", which no quant layout can hold; mend the checkpoint, "
                                           "or keep this layer in BF16"));
}

EncodedTensors EncodeBf16(const EncodeRequest& request) {
  std::vector<Bf16> values(request.weights.size());
  FloatsToBf16(request.weights, values);
  return std::vector<RawTensor>{TensorOf(TensorRole::kWeight, TensorDtype::kBf16,
                                         {request.size.rows, request.size.columns}, values)};
}

EncodedTensors EncodeAs(const EncodeRequest& request) {
  switch (request.quant.layout) {
    case QuantLayout::kBf16:
      break;
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
      return EncodeFp8Block(request);
    case QuantLayout::kFp8Tensor:
      return EncodeFp8Tensor(request);
    case QuantLayout::kFp8Channel:
      return EncodeFp8Channel(request);
    case QuantLayout::kNvfp4ModelOpt:
    case QuantLayout::kNvfp4Compressed:
      return EncodeNvfp4(request);
    case QuantLayout::kW4Afp8:
      return EncodeW4Afp8(request);
    case QuantLayout::kInt8Channel:
    case QuantLayout::kModelSlimW8A8:
      return EncodeInt8(request);
    case QuantLayout::kModelSlimW4A8:
      return EncodeModelSlimW4A8(request);
    case QuantLayout::kModelSlimW4A4:
      return EncodeModelSlimW4A4(request);
    case QuantLayout::kPackQuantized:
      return EncodePackQuantized(request);
    case QuantLayout::kAwq:
      return EncodeAwq(request);
  }
  return EncodeBf16(request);
}

}  // namespace
}  // namespace internal

absl::StatusOr<RawProjection> Encode(const EncodeRequest& request) {
  SY_RETURN_IF_ERROR(ExpectedTensors(request.quant, request.projection, request.size).status());
  SY_RETURN_IF_ERROR(internal::CheckFinite(request));
  RawProjection raw{request.quant, request.size, {}};
  SY_ASSIGN_OR_RETURN(raw.tensors, internal::EncodeAs(request));
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
