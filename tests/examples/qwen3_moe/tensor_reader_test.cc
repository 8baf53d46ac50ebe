#include "examples/qwen3_moe/tensor_reader.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;

constexpr char kMatrix[] = "model.layers.0.self_attn.k_proj.weight";  // [30, 24]
constexpr char kVector[] = "model.norm.weight";                       // [24]

std::vector<float> AsFloats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

TEST(TensorReaderTest, ReadsBf16AndF32AsFloatsAndRemembersNames) {
  RandomModel model({.seed = 22});
  for (testing::WrittenTensor& tensor : model.tensors()) {
    if (tensor.name != kVector) continue;
    tensor = testing::F32Tensor(kVector, tensor.shape, AsFloats(model.of(kVector)));
  }
  model.Rewrite();
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));
  TensorReader reader(*checkpoint);

  SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> matrix, reader.Matrix(kMatrix, 30, 24));
  SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> vector, reader.Vector(kVector, 24));

  EXPECT_EQ(matrix, AsFloats(model.of(kMatrix)));
  EXPECT_EQ(vector, AsFloats(model.of(kVector)));
  EXPECT_THAT(reader.names(), ElementsAre(kMatrix, kVector));
}

TEST(TensorReaderTest, PacksWhatMatrixReads) {
  const RandomModel model({.seed = 23});
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));
  TensorReader reader(*checkpoint);
  std::vector<float> x(24, 0.0F);
  x[5] = 1.0F;
  std::vector<float> y(30, -7.0F);

  SY_ASSERT_OK_AND_ASSIGN(const PackedMatrix packed, reader.Packed(kMatrix, 30, 24));
  packed.Apply(x.data(), 1, y.data());

  for (std::size_t r = 0; r < 30; ++r) {
    EXPECT_EQ(y[r], AsFloats(model.of(kMatrix))[r * 24 + 5]);
  }
}

TEST(TensorReaderTest, RefusesATensorThatIsNotThereOrOfAnotherShape) {
  const RandomModel model({.seed = 24});
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));
  TensorReader reader(*checkpoint);

  EXPECT_THAT(reader.Vector("no.such.weight", 24),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(reader.Matrix(kMatrix, 24, 30),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_THAT(reader.Vector(kMatrix, 720),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_THAT(reader.Packed(kVector, 24, 1),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_TRUE(reader.names().empty());
}

}  // namespace
}  // namespace switchyard::qwen3_moe
