#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "model/quant/layout/dequantize.h"
#include "model/quant/layout/expected_tensors.h"
#include "model/quant/layout/scale_range.h"
#include "model/quant/layout/tensor_values.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/targets.h"

namespace switchyard::fuzz {
namespace {

// One of each layout, with and without what may be left out.
constexpr std::array kQuants{
    ProjectionQuant{.layout = QuantLayout::kBf16},
    ProjectionQuant{.layout = QuantLayout::kFp8Block, .block = {128, 128}},
    ProjectionQuant{
        .layout = QuantLayout::kFp8Block, .block = {128, 128}, .power_of_two_scales = true},
    ProjectionQuant{.layout = QuantLayout::kFp8BlockCompressed, .block = {128, 128}},
    ProjectionQuant{.layout = QuantLayout::kFp8Tensor, .static_inputs = true},
    ProjectionQuant{.layout = QuantLayout::kFp8Channel},
    ProjectionQuant{.layout = QuantLayout::kNvfp4ModelOpt, .group_size = 16, .static_inputs = true},
    ProjectionQuant{
        .layout = QuantLayout::kNvfp4Compressed, .group_size = 16, .static_inputs = true},
    ProjectionQuant{.layout = QuantLayout::kW4Afp8, .group_size = 128, .static_inputs = true},
    ProjectionQuant{.layout = QuantLayout::kInt8Channel},
    ProjectionQuant{.layout = QuantLayout::kModelSlimW8A8},
    ProjectionQuant{.layout = QuantLayout::kModelSlimW4A8},
    ProjectionQuant{.layout = QuantLayout::kModelSlimW4A8, .group_size = 16},
    ProjectionQuant{.layout = QuantLayout::kModelSlimW4A4},
    ProjectionQuant{.layout = QuantLayout::kPackQuantized, .group_size = 32},
    ProjectionQuant{.layout = QuantLayout::kAwq, .group_size = 128, .zero_points = true},
};
constexpr bool HasEveryLayout() {
  for (std::size_t i = 0; i <= static_cast<std::size_t>(kLastQuantLayout); ++i) {
    const auto is_it = [i](const ProjectionQuant& q) {
      return static_cast<std::size_t>(q.layout) == i;
    };
    if (std::none_of(kQuants.begin(), kQuants.end(), is_it)) return false;
  }
  return true;
}
static_assert(HasEveryLayout());

// The input's bytes, over and over; zeros when there are none.
class Bytes {
 public:
  explicit Bytes(absl::string_view input) : input_(input) {}
  std::byte Next() {
    if (input_.empty()) return std::byte{0};
    const char byte = input_[at_];
    at_ = (at_ + 1) % input_.size();
    return static_cast<std::byte>(byte);
  }
  std::size_t Below(std::size_t count) { return std::to_integer<std::size_t>(Next()) % count; }

 private:
  absl::string_view input_;
  std::size_t at_ = 0;
};

std::size_t ElementsOf(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

RawTensor Fill(const ExpectedTensor& expected, Bytes* input) {
  RawTensor tensor{
      expected.role, expected.dtypes[input->Below(expected.dtypes.size())], expected.shape, {}};
  tensor.bytes.resize(ElementsOf(tensor.shape) * TensorDtypeBits(tensor.dtype) / 8);
  // Tensors that are all of one value now and then: else a wrong one is never far.
  const bool one_value = input->Below(2) == 0;
  const std::size_t width = TensorDtypeBits(tensor.dtype) / 8;
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
    tensor.bytes[i] = one_value && i >= width ? tensor.bytes[i - width] : input->Next();
  }
  return tensor;
}

bool IsNumber(const RawTensor& tensor) {
  switch (tensor.role) {
    case TensorRole::kScale:
    case TensorRole::kScaleSecond:
    case TensorRole::kGlobalScale:
    case TensorRole::kInputScale:
    case TensorRole::kBias:
    case TensorRole::kScaleBias:
      return true;
    default:
      return false;
  }
}

// What the checks let pass holds numbers alone, and gives weights that are numbers.
void CheckPassed(const RawProjection& raw) {
  for (const RawTensor& tensor : raw.tensors) {
    if (!IsNumber(tensor)) continue;
    for (std::size_t i = 0; i < ElementsOf(tensor.shape); ++i) {
      Check(std::isfinite(FloatAt(tensor, static_cast<std::int64_t>(i))), "scales are finite");
    }
  }
  for (const float weight : Dequantize(raw)) Check(std::isfinite(weight), "weights are finite");
}

}  // namespace

void FuzzTensorValues(absl::string_view input) {
  Bytes bytes(input);
  RawProjection raw;
  raw.quant = kQuants[bytes.Below(kQuants.size())];
  const auto projection = static_cast<Projection>(bytes.Below(3));
  raw.size = {static_cast<std::int64_t>(8 * (1 + bytes.Below(4))), 128};
  const auto expected = ExpectedTensors(raw.quant, projection, raw.size);
  Check(expected.ok(), "these sizes fit every layout");
  bool wrong = false;
  for (const ExpectedTensor& tensor : *expected) {
    if (!tensor.required && bytes.Below(2) == 0) continue;
    raw.tensors.push_back(Fill(tensor, &bytes));
    const auto fault = FindValueFault(raw.tensors.back(), raw);
    wrong = wrong || fault.has_value();
    if (!fault) continue;
    Check(fault->index >= 0 && static_cast<std::size_t>(fault->index) <
                                   std::max<std::size_t>(1, ElementsOf(tensor.shape)),
          "a fault is an element of its tensor");
    Check(!fault->what.empty() && fault->what.size() < 256, "a fault is short");
  }
  if (wrong || FindScaleFault(raw).has_value()) return;
  CheckPassed(raw);
}

}  // namespace switchyard::fuzz
