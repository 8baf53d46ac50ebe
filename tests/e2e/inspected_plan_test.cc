// What 'syctl model inspect' tells the resolver of a checkpoint is what a plan tells it: two
// readers, one answer.
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "coordinator/checkpoints/model_loader.h"
#include "model/checkpoint_summary.h"
#include "tests/e2e/served_golden.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ServedGolden;

void ExpectTheSame(const std::string& path) {
  SY_ASSERT_OK_AND_ASSIGN(const ModelFacts planned, LoadModelFacts(path));
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointSummary summary, SummarizeCheckpoint(path));
  ASSERT_EQ(planned.storage.size(), summary.layers.size());
  for (std::size_t i = 0; i < planned.storage.size(); ++i) {
    SCOPED_TRACE(i);
    const LayerStorage& plan = planned.storage[i];
    SY_ASSERT_OK(summary.layers[i].status);
    SY_ASSERT_OK_AND_ASSIGN(const LayerFacts seen, FactsOf(summary, summary.layers[i]));
    EXPECT_EQ(seen.scheme, plan.scheme);
    EXPECT_EQ(seen.role, plan.role);
    EXPECT_EQ(seen.excluded, plan.excluded);
    EXPECT_EQ(seen.power_of_two_scales, plan.power_of_two_scales);
    EXPECT_EQ(seen.quant_config, plan.quant_config);
    EXPECT_EQ(summary.layers[i].quant->why, plan.why);
  }
}

// Puts `keys` into quantization_config, where there is one. That of a text_config moves up: the
// sizes of a served golden stand there.
bool Rewrite(const ServedGolden& golden, const nlohmann::json& keys) {
  const std::string path = golden.path() + "/config.json";
  nlohmann::json config = nlohmann::json::parse(testing::ReadBytes(path));
  if (config.contains("text_config")) {
    config.update(config["text_config"]);
    config.erase("text_config");
  }
  const bool quantized = config.contains("quantization_config");
  if (quantized) config["quantization_config"].update(keys);
  std::ofstream(path) << config.dump();
  return quantized;
}

class InspectedPlanTest : public ::testing::TestWithParam<const char*> {};

TEST_P(InspectedPlanTest, PlansAndInspectionsAgree) {
  for (const bool draft : {false, true}) {
    SCOPED_TRACE(draft ? "with a draft" : "alone");
    const ServedGolden golden(GetParam(), draft);
    Rewrite(golden, nlohmann::json::object());
    ExpectTheSame(golden.path());
  }
}

TEST_P(InspectedPlanTest, TheyAgreeOnWhatTheConfigSaysOfRows) {
  const std::vector<nlohmann::json> all{{{"input_global_scale", nullptr}},
                                        {{"dispatcher_output_dtype", "bf16"}},
                                        {{"bf16_dispatch", true}}};
  for (const nlohmann::json& keys : all) {
    SCOPED_TRACE(keys.dump());
    const ServedGolden golden(GetParam(), /*draft=*/true);
    if (!Rewrite(golden, keys)) GTEST_SKIP() << "no quantization_config";
    ExpectTheSame(golden.path());
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, InspectedPlanTest, ::testing::ValuesIn(testing::kServedGoldens),
                         [](const auto& golden) { return std::string(golden.param); });

}  // namespace
}  // namespace switchyard
