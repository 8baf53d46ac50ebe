#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "model/experts/expert_values.h"
#include "model/experts/layer_experts.h"
#include "model/io/checkpoint_error.h"
#include "model/quant/layout/dequantize.h"
#include "tests/model/quant/spoiled_checkpoint.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::FailsWith;
using testing::GoldenRow;
using testing::Spoiled;

void ExpectRefusal(const absl::Status& status, StatusCode code, const char* kind,
                   const std::string& name) {
  EXPECT_THAT(status, FailsWith(code, Reason::kCheckpoint)) << name;
  EXPECT_EQ(MetadataOf(status)["kind"], kind);
  EXPECT_EQ(MetadataOf(status)["tensor"], PrintableName(name));
}

// Quantized experts have no place for a bias: without it they would be other experts.
TEST(ExpertBiasesTest, RefusesBiasesBesideQuantizedWeights) {
  std::set<std::string> checkpoints;
  for (const GoldenRow& row : testing::GoldenRows()) checkpoints.insert(row.checkpoint);
  checkpoints.erase("bf16_packed");
  for (const std::string& golden : checkpoints) {
    SY_ASSERT_OK_AND_ASSIGN(const auto whole, testing::OpenGolden(golden));
    const std::string module = whole.experts->modules().Name(0, Projection::kUp);
    Spoiled spoiled(golden);
    spoiled.Add(testing::Bf16Tensor(absl::StrCat(module, ".bias"), {2}, std::vector{0.5F, -1.0F}));
    SY_ASSERT_OK_AND_ASSIGN(const auto layer, spoiled.Open());
    ExpectRefusal(layer.experts->Check(), StatusCode::kUnimplemented, "UNEXPECTED_TENSOR",
                  absl::StrCat(module, ".bias"));
  }
}

constexpr char kPackedExperts[] = "model.language_model.layers.0.mlp.experts.";

std::vector<float> RandomBiases(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = Bf16ToFloat(FloatToBf16(std::uniform_real_distribution<float>(-2, 2)(random)));
  }
  return values;
}

// Of 3 experts: [3, 2 * 8] for gate above up, [3, 12] for down.
TEST(ExpertBiasesTest, BiasesOfPackedExpertsAreCutOutOfTheirTensor) {
  const std::vector<float> gate_up = RandomBiases(48, 61);
  const std::vector<float> down = RandomBiases(36, 62);
  Spoiled with("bf16_packed");
  with.Add(
      testing::Bf16Tensor(absl::StrCat(kPackedExperts, "gate_up_proj_bias"), {3, 16}, gate_up));
  with.Add(testing::Bf16Tensor(absl::StrCat(kPackedExperts, "down_proj_bias"), {3, 12}, down));
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, with.Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto without, testing::OpenGolden("bf16_packed"));

  SY_EXPECT_OK(layer.experts->Check());
  for (std::int32_t expert = 0; expert < 3; ++expert) {
    SY_ASSERT_OK_AND_ASSIGN(const RawExpert raw, layer.experts->Load(expert));
    SY_ASSERT_OK_AND_ASSIGN(const RawExpert plain, without.experts->Load(expert));
    const auto part = [&](const std::vector<float>& all, std::int64_t first, std::int64_t count) {
      return std::vector<float>(all.begin() + first, all.begin() + first + count);
    };
    EXPECT_EQ(ValuesOf(raw.of(Projection::kGate)).bias, part(gate_up, expert * 16, 8));
    EXPECT_EQ(ValuesOf(raw.of(Projection::kUp)).bias, part(gate_up, expert * 16 + 8, 8));
    EXPECT_EQ(ValuesOf(raw.of(Projection::kDown)).bias, part(down, expert * 12, 12));
    for (const Projection projection : kAllProjections) {
      EXPECT_EQ(Dequantize(raw.of(projection)), Dequantize(plain.of(projection)));
      EXPECT_EQ(layer.experts->Extents(expert, projection)->size(), 2U);
    }
    EXPECT_NE(raw.Stored(), plain.Stored());  // other experts, so other hashes
  }
}

TEST(ExpertBiasesTest, BiasesOfPackedExpertsAreCheckedByName) {
  const std::string name = absl::StrCat(kPackedExperts, "down_proj_bias");
  std::vector<float> values = RandomBiases(36, 63);
  Spoiled shape("bf16_packed");
  shape.Add(testing::Bf16Tensor(name, {12, 3}, values));
  SY_ASSERT_OK_AND_ASSIGN(const auto reshaped, shape.Open());
  ExpectRefusal(reshaped.experts->Check(), StatusCode::kDataLoss, "WRONG_SHAPE", name);

  Spoiled dtype("bf16_packed");
  dtype.Add(testing::F32Tensor(name, {3, 12}, values));
  SY_ASSERT_OK_AND_ASSIGN(const auto retyped, dtype.Open());
  ExpectRefusal(retyped.experts->Check(), StatusCode::kUnimplemented, "WRONG_DTYPE", name);

  values[29] = NAN;  // of expert 2
  Spoiled value("bf16_packed");
  value.Add(testing::Bf16Tensor(name, {3, 12}, values));
  SY_ASSERT_OK_AND_ASSIGN(const auto poisoned, value.Open());
  SY_EXPECT_OK(poisoned.experts->Load(1));
  const absl::Status status = poisoned.experts->Load(2).status();
  ExpectRefusal(status, StatusCode::kDataLoss, "WRONG_VALUE", name);
  EXPECT_NE(status.message().find("[2, 5]"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace switchyard
