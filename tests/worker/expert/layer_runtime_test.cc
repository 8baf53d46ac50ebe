#include "worker/expert/layer_runtime.h"

#include "gtest/gtest.h"

#include "tests/worker/expert/epoch_testing.h"

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

TEST(LayerRuntimeTest, TakesOnlyTheFormatsOfThePlan) {
  LayerRuntime layer;
  layer.wire_dtypes = {{{.format = kBf16Format}, nullptr}, {{.format = kFp8Ue8m0Format}, nullptr}};

  EXPECT_TRUE(layer.Takes(kBf16Format));
  EXPECT_TRUE(layer.Takes(kFp8Ue8m0Format));
  EXPECT_FALSE(layer.Takes(kFp8Format));
  EXPECT_FALSE(layer.Takes(kInt8Format));
  EXPECT_EQ(layer.Find(DispatchDtype::kFp8), &layer.wire_dtypes[1]);
  EXPECT_EQ(layer.Find(DispatchDtype::kInt8), nullptr);
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

  EXPECT_EQ(testing::WeightBytes(*staged.runtime), 6 * 3 * 24 * 10 * 2);  // 3 experts in 2 layers
  EXPECT_EQ(staged.runtime->epoch(), Epoch{1});
  EXPECT_EQ(staged.runtime->deployment(), "demo");
}

}  // namespace
}  // namespace switchyard
