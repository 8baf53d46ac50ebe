// Implementation of encode.h: the encoders of the layouts and their common parts. Not for others.
//
// Each takes a request whose sizes and weights Encode has checked. Pure; thread-safe.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "quantize/encode.h"

namespace switchyard::internal {

using EncodedTensors = absl::StatusOr<std::vector<RawTensor>>;

EncodedTensors EncodeFp8Block(const EncodeRequest& request);  // and the compressed-tensors spelling
EncodedTensors EncodeFp8Tensor(const EncodeRequest& request);
EncodedTensors EncodeFp8Channel(const EncodeRequest& request);
EncodedTensors EncodeNvfp4(const EncodeRequest& request);  // both spellings
EncodedTensors EncodeW4Afp8(const EncodeRequest& request);
EncodedTensors EncodeInt8(const EncodeRequest& request);           // compressed-tensors
EncodedTensors EncodeModelSlimInt8(const EncodeRequest& request);  // the same with offsets
EncodedTensors EncodeModelSlimW4A4(const EncodeRequest& request);
EncodedTensors EncodeModelSlimW4A8(const EncodeRequest& request);
EncodedTensors EncodePackQuantized(const EncodeRequest& request);
EncodedTensors EncodeAwq(const EncodeRequest& request);

// kDataLoss (CHECKPOINT, WRONG_VALUE) naming the module of `request`.
absl::Status WrongWeight(const EncodeRequest& request, absl::string_view what);

// The scale of the static inputs of `request`, rounded as its layout stores it: amax over the
// largest value that the codes of rows hold. Errors: kInvalidArgument (BAD_CONFIG) when it, or for
// NVFP4 its reciprocal, is not a number above zero.
absl::StatusOr<float> InputScale(const EncodeRequest& request);

template <typename T>
RawTensor TensorOf(TensorRole role, TensorDtype dtype, std::vector<std::int64_t> shape,
                   const std::vector<T>& values) {
  RawTensor tensor{role, dtype, std::move(shape), {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

// w / scale rounded to a whole number in [low, high]; 0 when the scale is.
inline std::int32_t Rounded(float weight, float scale, std::int32_t low, std::int32_t high) {
  if (scale == 0) return 0;
  const float ratio = std::nearbyint(weight / scale);
  if (ratio <= static_cast<float>(low)) return low;
  if (ratio >= static_cast<float>(high)) return high;
  return static_cast<std::int32_t>(ratio);
}

// The smallest and largest value, extended to include 0.
struct Range {
  float low = 0;
  float high = 0;

  void Take(float value) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  // The scale of symmetric INT4 that reaches both ends. Two FP32 divisions.
  [[nodiscard]] float Int4Scale() const {
    const float above = high / 7.0F;
    const float below = -low / 8.0F;
    return above > below ? above : below;
  }
};

// The range of the weights [row][first, first + count).
inline Range RangeOf(const EncodeRequest& request, std::int64_t row, std::int64_t first,
                     std::int64_t count) {
  Range range;
  for (std::int64_t k = first; k < first + count; ++k) {
    range.Take(request.weights[static_cast<std::size_t>(row * request.size.columns + k)]);
  }
  return range;
}

// Values of K that share a scale.
inline std::int64_t GroupOf(const EncodeRequest& request) {
  return GroupSizeOf(request.quant, request.size.columns);
}

}  // namespace switchyard::internal
