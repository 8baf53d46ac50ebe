#include "worker/layer/layer_runtime.h"

#include "gtest/gtest.h"

#include "tests/worker/layer/epoch_testing.h"

namespace switchyard {
namespace {

using testing::FakeDevice;
using testing::MakePlan;
using testing::MakeStaged;

TEST(LayerRuntimeTest, FindsLayersThatSkipNumbers) {
  EpochRuntime runtime;
  for (const std::int32_t layer : {1, 3, 4, 9}) {
    runtime.layers.push_back(
        {.layer = LayerId{layer}, .index = layer, .slots = {}, .wire_dtypes = {}});
  }

  for (const std::int32_t layer : {1, 3, 4, 9}) {
    ASSERT_NE(runtime.FindLayer(LayerId{layer}), nullptr);
    EXPECT_EQ(runtime.FindLayer(LayerId{layer})->index, layer);
  }
  for (const std::int32_t layer : {-1, 0, 2, 5, 10}) {
    EXPECT_EQ(runtime.FindLayer(LayerId{layer}), nullptr);
  }
}

TEST(LayerRuntimeTest, TakesOnlyTheDtypesOfThePlan) {
  LayerRuntime layer;
  layer.wire_dtypes = {{DispatchDtype::kBf16, {}, nullptr}, {DispatchDtype::kInt8, {}, nullptr}};

  EXPECT_TRUE(layer.Takes(DispatchDtype::kBf16));
  EXPECT_TRUE(layer.Takes(DispatchDtype::kInt8));
  EXPECT_FALSE(layer.Takes(DispatchDtype::kFp8));
}

TEST(LayerRuntimeTest, KeysTellWeightsApartByEachTensor) {
  ExpertKey key;
  key.tensors[0].bytes[0] = 1;
  for (std::size_t tensor = 0; tensor < 3; ++tensor) {
    ExpertKey other = key;
    other.tensors[tensor].bytes[31] ^= 1;

    EXPECT_NE(key, other);
  }
}

TEST(LayerRuntimeTest, WeightBytesAreThoseOfTheWorkersExperts) {
  FakeDevice device;

  const StagedEpoch staged = MakeStaged(0, MakePlan(1, 2), &device);

  EXPECT_EQ(staged.runtime->weight_bytes(), 6 * 3 * 24 * 10 * 2);  // 3 experts in 2 layers
  EXPECT_EQ(staged.runtime->epoch(), Epoch{1});
  EXPECT_EQ(staged.runtime->deployment(), "demo");
}

}  // namespace
}  // namespace switchyard
