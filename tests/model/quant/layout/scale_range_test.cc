#include "model/quant/layout/scale_range.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "model/io/checkpoint_error.h"
#include "model/quant/layout/dequantize.h"
#include "model/quant/layout/f16.h"
#include "tests/model/quant/spoiled_checkpoint.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::Spoiled;

// Finite codes of any magnitude, most of them near the largest; not negative.
std::vector<std::byte> AnyFinite(TensorDtype dtype, std::size_t bytes, std::mt19937& random) {
  const std::size_t width = TensorDtypeBits(dtype) / 8;
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; i += width) {
    std::uint32_t most = 0xfe;  // UE8M0
    if (dtype == TensorDtype::kF32) most = 0x7f7fffff;
    if (dtype == TensorDtype::kBf16) most = 0x7f7f;
    if (dtype == TensorDtype::kF16) most = 0x7bff;
    if (dtype == TensorDtype::kF8E4m3) most = 0x7e;
    const double share = std::uniform_real_distribution<double>(0, 1)(random);
    const auto code = static_cast<std::uint32_t>(std::max(1.0, most * (1 - share * share * 0.3)));
    std::memcpy(out.data() + i, &code, width);
  }
  return out;
}

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

// Scales that pass give finite weights, and refused ones are not all harmless.
TEST(ScaleRangeTest, ScalesThatPassGiveNoInfiniteWeight) {
  std::mt19937 random(31);
  std::set<std::string> checkpoints;
  for (const testing::GoldenRow& row : testing::GoldenRows()) checkpoints.insert(row.checkpoint);
  int refused = 0;
  int infinite = 0;
  int passed = 0;
  for (const std::string& golden : checkpoints) {
    SY_ASSERT_OK_AND_ASSIGN(const auto whole, testing::OpenGolden(golden));
    SY_ASSERT_OK_AND_ASSIGN(const RawProjection before, whole.experts->Load(0, Projection::kUp));
    EXPECT_FALSE(FindScaleFault(before).has_value()) << golden;
    for (int draw = 0; draw < 40; ++draw) {
      RawProjection raw = before;
      for (RawTensor& tensor : raw.tensors) {
        const bool scale = tensor.role == TensorRole::kScale ||
                           tensor.role == TensorRole::kScaleSecond ||
                           tensor.role == TensorRole::kGlobalScale;
        // One of the scales, or all of them.
        if (!scale || random() % 2 == 0) continue;
        tensor.bytes = AnyFinite(tensor.dtype, tensor.bytes.size(), random);
      }
      const auto fault = FindScaleFault(raw);
      const bool finite = AllFinite(Dequantize(raw));
      ASSERT_TRUE(fault.has_value() || finite) << golden << ", draw " << draw;
      refused += fault.has_value() ? 1 : 0;
      infinite += finite ? 0 : 1;
      passed += fault.has_value() ? 0 : 1;
      if (!fault) continue;
      EXPECT_TRUE(absl::StrContains(fault->value.what, "beyond FP")) << fault->value.what;
    }
  }
  EXPECT_GT(infinite, 40);
  EXPECT_GT(passed, 40);
  EXPECT_GE(refused, infinite);
}

// The largest scale that passes is the largest that the largest code can bear.
TEST(ScaleRangeTest, TheLimitIsThatOfFp32) {
  SY_ASSERT_OK_AND_ASSIGN(const auto whole, testing::OpenGolden("fp8_block"));
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection before, whole.experts->Load(0, Projection::kUp));
  constexpr float kMost = std::numeric_limits<float>::max() / 448;
  for (const float scale : {std::nextafter(kMost, 0.0F), std::nextafter(kMost, 1e38F)}) {
    RawProjection raw = before;
    for (RawTensor& tensor : raw.tensors) {
      if (tensor.role != TensorRole::kScale) continue;
      ASSERT_EQ(tensor.dtype, TensorDtype::kF32);
      std::memcpy(tensor.bytes.data() + sizeof(scale), &scale, sizeof(scale));
    }
    const auto fault = FindScaleFault(raw);
    ASSERT_EQ(fault.has_value(), scale > kMost) << scale;
    if (!fault) continue;
    EXPECT_EQ(fault->value.index, 1);
  }
}

struct Spoil {
  const char* golden;
  const char* tensor;  // below expert 0's up projection
  std::string value;   // of its first element
  const char* says;
};

template <typename T>
std::string Bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

TEST(ScaleRangeTest, LoadingNamesTheTensorAndSaysWhy) {
  for (const Spoil& spoil : std::vector<Spoil>{
           {"fp8_block", "weight_scale_inv", Bytes(1e37F), "times the largest code, 448"},
           {"fp8_tensor_dynamic", "weight_scale", Bytes(1e37F), "times the largest code, 448"},
           {"fp8_block_ue8m0", "weight_scale_inv", std::string(1, '\xfe'), "largest code, 448"},
           {"nvfp4_modelopt_flat", "weight_scale_2", Bytes(3e38F), "with a group's scale of"},
           {"nvfp4_compressed", "weight_global_scale", Bytes(1e-38F), "with a group's scale of"},
           {"modelslim_w4a8_group", "weight_scale_second", Bytes(1e30F), "beyond FP16"}}) {
    SCOPED_TRACE(spoil.golden);
    Spoiled spoiled(spoil.golden);
    const std::string name = absl::StrCat("model.layers.0.mlp.experts.0.up_proj.", spoil.tensor);
    testing::WrittenTensor& tensor = spoiled.at(name);
    ASSERT_EQ(tensor.name, name);
    tensor.bytes.replace(0, spoil.value.size(), spoil.value);

    SY_ASSERT_OK_AND_ASSIGN(const auto layer, spoiled.Open());
    const absl::Status status = layer.experts->Load(0).status();

    ASSERT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
    EXPECT_EQ(MetadataOf(status)["kind"], "WRONG_VALUE");
    EXPECT_EQ(MetadataOf(status)["tensor"], name);
    EXPECT_TRUE(absl::StrContains(status.message(), spoil.says)) << status;
  }
}

}  // namespace
}  // namespace switchyard
