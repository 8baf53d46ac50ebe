#include "worker/collective/source/step_places.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

// Two workers, eight experts; the layers of `swapped` are not in order.
Plan PlanOf(const std::vector<std::int32_t>& swapped) {
  Plan plan;
  plan.shape = {.hidden = 32, .intermediate = 32, .experts = 8, .top_k = 2};
  plan.workers.resize(2);
  for (const std::int32_t number : {1, 2, 5}) {
    LayerPlacement layer{.layer = LayerId{number}, .experts = {}};
    for (std::int32_t e = 0; e < 8; ++e) {
      layer.experts.push_back({ExpertId{e}, WorkerOrdinal{e / 4}, SlotId{e % 4}});
    }
    if (std::ranges::count(swapped, number) > 0) {
      std::swap(layer.experts[static_cast<std::size_t>(number)].expert, layer.experts[7].expert);
    }
    plan.layers.push_back(std::move(layer));
  }
  return plan;
}

TEST(StepPlacesTest, AreOfTheLayersThatAreNotInOrder) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, MakeDevice("cpu"));
  SY_ASSERT_OK_AND_ASSIGN(const auto stream, device->MakeStream({}));

  SY_ASSERT_OK_AND_ASSIGN(const auto places,
                          StepPlaces::Make(device.get(), stream.get(), PlanOf({2, 5})));

  ASSERT_NE(places, nullptr);
  EXPECT_EQ(places->Of(LayerId{1}), nullptr);
  EXPECT_EQ(places->Of(LayerId{3}), nullptr);
  const auto of = [&](std::int32_t layer) {
    const std::int32_t* const at = places->Of(LayerId{layer});
    return at == nullptr ? std::vector<std::int32_t>() : std::vector<std::int32_t>(at, at + 8);
  };
  EXPECT_EQ(of(2), (std::vector<std::int32_t>{0, 1, 7, 3, 4, 5, 6, 2}));
  EXPECT_EQ(of(5), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 7, 6, 5}));
}

TEST(StepPlacesTest, APlanInOrderNeedsNone) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, MakeDevice("cpu"));
  SY_ASSERT_OK_AND_ASSIGN(const auto stream, device->MakeStream({}));
  SY_ASSERT_OK_AND_ASSIGN(const auto places,
                          StepPlaces::Make(device.get(), stream.get(), PlanOf({})));
  EXPECT_EQ(places, nullptr);
}

}  // namespace
}  // namespace switchyard
