#include "model/quant/layout/tensor_values.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

#include "core/format/fp8.h"
#include "model/io/checkpoint_error.h"
#include "model/quant/layout/f16.h"
#include "tests/model/quant/spoiled_checkpoint.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::GoldenRow;
using testing::Spoiled;
using testing::WrittenTensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
template <typename T>
std::string Bytes(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

// The code of `value`; empty where the dtype has none.
std::string CodeOf(const std::string& dtype, float value) {
  if (dtype == "F32") return Bytes(value);
  if (dtype == "BF16") return Bytes(FloatToBf16(value));
  if (dtype == "F16") return Bytes(FloatToF16(value));
  if (dtype == "F8_E4M3" && !std::isinf(value)) return Bytes(FloatToE4m3(value));
  if (dtype == "F8_E8M0" && std::isnan(value)) return Bytes(kUe8m0Nan);
  return "";
}

bool IsPlainInt4(QuantLayout layout) {
  return layout == QuantLayout::kPackQuantized || layout == QuantLayout::kAwq;
}

// Values that no tensor of `role` may hold.
std::vector<std::string> PoisonsOf(TensorRole role, const std::string& dtype, QuantLayout layout) {
  std::vector<float> values{kNan, -kNan, kInf, -kInf};
  switch (role) {
    case TensorRole::kScale:
      if (!IsPlainInt4(layout)) values.push_back(-1.0F);
      break;
    case TensorRole::kScaleSecond:
      values.push_back(-1.0F);
      break;
    case TensorRole::kGlobalScale:
    case TensorRole::kInputScale:
      values.insert(values.end(), {-1.0F, 0.0F, -0.0F});
      break;
    case TensorRole::kOffset:
    case TensorRole::kOffsetSecond:
      values.push_back(2.0F);
      break;
    default:
      break;
  }
  std::vector<std::string> codes;
  for (const float value : values) {
    const std::string code = CodeOf(dtype, value);
    if (!code.empty()) codes.push_back(code);
  }
  return codes;
}

std::string ElementOf(const std::vector<std::int64_t>& shape, std::size_t index) {
  std::vector<std::size_t> at(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    at[i] = index % static_cast<std::size_t>(shape[i]);
    index /= static_cast<std::size_t>(shape[i]);
  }
  return absl::StrCat("element [", absl::StrJoin(at, ", "), "]");
}

void ExpectRefusalByName(const Spoiled& spoiled, const WrittenTensor& tensor, std::size_t element) {
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, spoiled.Open());
  const absl::Status status = layer.experts->Load(0).status();
  const std::string where = absl::StrCat(tensor.name, " ", element);
  ASSERT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint)) << where;
  EXPECT_EQ(MetadataOf(status)["kind"], "WRONG_VALUE");
  EXPECT_EQ(MetadataOf(status)["tensor"], PrintableName(tensor.name));
  EXPECT_TRUE(absl::StrContains(MetadataOf(status)["file"], "model.safetensors")) << status;
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  if (count == 1) return;
  EXPECT_TRUE(absl::StrContains(status.message(), ElementOf(tensor.shape, element))) << status;
}

// One tensor of expert 0, spoiled at a random place among its first `elements`.
int SpoilEach(const std::string& golden, const std::string& name, TensorRole role,
              QuantLayout layout, std::size_t first, std::size_t elements, std::mt19937& random) {
  Spoiled whole(golden);
  const WrittenTensor& before = whole.at(name);
  const std::vector<std::string> codes = PoisonsOf(role, before.dtype, layout);
  for (const std::string& code : codes) {
    Spoiled spoiled(golden);
    WrittenTensor& tensor = spoiled.at(name);
    const std::size_t element =
        first + std::uniform_int_distribution<std::size_t>(0, elements - 1)(random);
    tensor.bytes.replace(element * code.size(), code.size(), code);
    ExpectRefusalByName(spoiled, tensor, element);
  }
  return static_cast<int>(codes.size());
}

// A value that is none, in any tensor of any layout that holds floats, is refused by the
// tensor's name, its element and its file.
TEST(TensorValuesTest, EveryTensorOfEveryLayoutRefusesWhatIsNoValue) {
  std::mt19937 random(20);
  std::set<std::string> checkpoints;
  for (const GoldenRow& row : testing::GoldenRows()) checkpoints.insert(row.checkpoint);
  std::set<TensorRole> roles;
  int poisons = 0;
  for (const std::string& golden : checkpoints) {
    SCOPED_TRACE(golden);
    SY_ASSERT_OK_AND_ASSIGN(const auto whole, testing::OpenGolden(golden));
    for (const Projection projection : kAllProjections) {
      SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, whole.experts->Load(0, projection));
      SY_ASSERT_OK_AND_ASSIGN(const auto extents, whole.experts->Extents(0, projection));
      ASSERT_EQ(raw.tensors.size(), extents.size());
      for (std::size_t i = 0; i < extents.size(); ++i) {
        const RawTensor& tensor = raw.tensors[i];
        const std::size_t width = TensorDtypeBits(tensor.dtype) / 8;
        const int here = SpoilEach(golden, extents[i].name, tensor.role, raw.quant.layout,
                                   extents[i].offset / width, tensor.bytes.size() / width, random);
        if (here > 0) roles.insert(tensor.role);
        poisons += here;
      }
    }
  }
  EXPECT_GT(poisons, 300);
  EXPECT_EQ(roles, (std::set<TensorRole>{TensorRole::kWeight, TensorRole::kScale,
                                         TensorRole::kScaleSecond, TensorRole::kGlobalScale,
                                         TensorRole::kInputScale, TensorRole::kOffset,
                                         TensorRole::kOffsetSecond, TensorRole::kScaleBias}));
}

// Blocks of nothing but zeros have a scale of zero, of either sign.
TEST(TensorValuesTest, ZeroScalesOfBlocksAreServed) {
  for (const std::string& value : {Bytes(0.0F), Bytes(-0.0F)}) {
    Spoiled spoiled("fp8_block");
    spoiled.at("model.layers.0.mlp.experts.0.up_proj.weight_scale_inv").bytes.replace(4, 4, value);
    SY_ASSERT_OK_AND_ASSIGN(const auto layer, spoiled.Open());
    SY_EXPECT_OK(layer.experts->Load(0));
  }
}

// Plain INT4 may: a negative scale turns the code -8 into the largest weight of its group.
TEST(TensorValuesTest, GroupsOfPlainInt4MayHaveNegativeScales) {
  int groups = 0;
  for (const GoldenRow& row : testing::GoldenRows()) {
    SY_ASSERT_OK_AND_ASSIGN(const auto whole, testing::OpenGolden(row.checkpoint));
    SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, whole.experts->Load(0, Projection::kUp));
    if (!IsPlainInt4(raw.quant.layout)) continue;
    RawTensor scale = *raw.Find(TensorRole::kScale);
    scale.bytes.back() ^= std::byte{0x80};  // Little-endian: the sign of the last one.
    EXPECT_FALSE(FindValueFault(scale, raw).has_value()) << row.checkpoint;
    ++groups;
  }
  EXPECT_GE(groups, 2);
}

// Kernels take one scale of a whole tensor apart from its values, and refuse a zero there.
TEST(TensorValuesTest, TheScaleOfAWholeTensorIsAboveZero) {
  Spoiled spoiled("fp8_tensor_dynamic");
  const std::string name = "model.layers.0.mlp.experts.0.up_proj.weight_scale";
  WrittenTensor& scale = spoiled.at(name);
  scale.bytes.assign(scale.bytes.size(), '\0');
  ExpectRefusalByName(spoiled, scale, 0);
}

// The obvious reference.
bool IsWrong(float value, TensorRole role) {
  return !std::isfinite(value) || (role == TensorRole::kScale && value < 0);
}

void ExpectLikeReference(TensorDtype dtype, TensorRole role, std::uint32_t code) {
  const std::size_t width = TensorDtypeBits(dtype) / 8;
  RawTensor tensor{role, dtype, {1}, std::vector<std::byte>(width)};
  std::memcpy(tensor.bytes.data(), &code, width);
  const RawProjection projection{{}, {1, 1}, {}};
  const bool wrong = IsWrong(FloatAt(tensor, 0), role);
  ASSERT_EQ(FindValueFault(tensor, projection).has_value(), wrong)
      << TensorDtypeName(dtype) << " " << code;
}

TEST(TensorValuesTest, EveryCodeIsCheckedAsInTheReference) {
  std::mt19937 random(21);
  for (const TensorRole role : {TensorRole::kScale, TensorRole::kWeight}) {
    for (std::uint32_t code = 0; code < 0x10000U; ++code) {
      ExpectLikeReference(TensorDtype::kBf16, role, code);
      ExpectLikeReference(TensorDtype::kF16, role, code);
      ExpectLikeReference(TensorDtype::kF32, role, code << 16U);
      ExpectLikeReference(TensorDtype::kF32, role, static_cast<std::uint32_t>(random()));
    }
    for (std::uint32_t code = 0; code < 0x100U; ++code) {
      ExpectLikeReference(TensorDtype::kF8E4m3, role, code);
      ExpectLikeReference(TensorDtype::kF8E8m0, role, code);
    }
    for (const std::uint32_t code : {0x7f7fffffU, 0x7f800000U, 0x7f800001U, 0x80000001U}) {
      ExpectLikeReference(TensorDtype::kF32, role, code);
    }
  }
}

// Wherever it stands, the first one is found: around the ends of the blocks that are looked at
// together, and with a second one behind it.
TEST(TensorValuesTest, TheFirstWrongElementIsFoundWhereverItStands) {
  std::mt19937 random(22);
  const RawProjection projection{{}, {1, 1}, {}};
  for (const std::int64_t count : {1, 127, 128, 129, 300}) {
    RawTensor tensor{TensorRole::kScale, TensorDtype::kF32, {count}, {}};
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = std::uniform_real_distribution<float>(0, 9)(random);
    for (std::size_t at = 0; at < values.size(); ++at) {
      std::vector<float> spoiled = values;
      spoiled[at] = kNan;
      spoiled.back() = kNan;
      tensor.bytes.resize(spoiled.size() * sizeof(float));
      std::memcpy(tensor.bytes.data(), spoiled.data(), tensor.bytes.size());
      const auto fault = FindValueFault(tensor, projection);
      ASSERT_TRUE(fault.has_value());
      EXPECT_EQ(fault->index, static_cast<std::int64_t>(at)) << count;
    }
  }
}

// One INT4 in a byte: all 256 bytes.
TEST(TensorValuesTest, OneInt4InAByteIsInItsRange) {
  const RawProjection projection{{.layout = QuantLayout::kModelSlimW4A4}, {1, 1}, {}};
  for (int value = -128; value < 128; ++value) {
    const RawTensor tensor{
        TensorRole::kWeight, TensorDtype::kI8, {1, 1}, {static_cast<std::byte>(value)}};
    EXPECT_EQ(FindValueFault(tensor, projection).has_value(), value < -8 || value > 7) << value;
  }
}

}  // namespace
}  // namespace switchyard
