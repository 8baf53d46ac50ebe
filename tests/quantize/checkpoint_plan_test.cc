#include "quantize/checkpoint_plan.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/quantize/checkpoints.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::CheckpointShape;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::WrittenTensor;

constexpr auto kBad = absl::StatusCode::kInvalidArgument;

class CheckpointPlanTest : public ::testing::Test {
 protected:
  absl::StatusOr<CheckpointPlan> Plan(const PlanRequest& request) {
    auto tensors = CheckpointTensors::Open(dir_.path());
    if (!tensors.ok()) return tensors.status();
    return PlanCheckpoint(*tensors, testing::ReadBytes(dir_.Join("config.json")), request);
  }
  static PlanRequest Scheme(const char* name) {
    return {.scheme = *FindWriteScheme(name), .exclude = {}, .keep_bf16_layers = {}};
  }
  void Rewrite(const std::vector<WrittenTensor>& tensors) {
    dir_.Write("model.safetensors", testing::SafetensorsBytes(tensors));
  }

  const testing::TempDir dir_;
};

std::vector<bool> QuantizedOf(const CheckpointPlan& plan) {
  std::vector<bool> quantized;
  for (const PlannedLayer& layer : plan.layers) quantized.push_back(layer.quantized);
  return quantized;
}

TEST_F(CheckpointPlanTest, TakesExpertsOfMoeLayersAndCopiesTheRest) {
  testing::WriteCheckpoint(dir_, {}, 41);

  SY_ASSERT_OK_AND_ASSIGN(const CheckpointPlan plan, Plan(Scheme("fp8_block")));

  ASSERT_EQ(plan.layers.size(), 2U);  // layer 1 is dense
  EXPECT_EQ(plan.layers[1].layer, 2);
  EXPECT_EQ(plan.layers[1].shape.intermediate, 256);
  for (const std::string& name : plan.copied) EXPECT_THAT(name, Not(HasSubstr(".experts.")));
  EXPECT_EQ(plan.tensors.size(), plan.copied.size() + 2U * 4 * 3 * 2);
  EXPECT_EQ(plan.tensors.size(), plan.described.size());
  EXPECT_LT(plan.bytes_after, plan.bytes_before);
}

TEST_F(CheckpointPlanTest, LayersStayByNumberOrByPattern) {
  testing::WriteCheckpoint(dir_, {}, 42);
  const auto quantized = [&](const PlanRequest& request) {
    const auto plan = Plan(request);
    SY_EXPECT_OK(plan);
    return QuantizedOf(*plan);
  };
  PlanRequest request = Scheme("awq");
  request.keep_bf16_layers = {0};
  EXPECT_EQ(quantized(request), (std::vector<bool>{false, true}));
  for (const char* pattern : {"model.layers.2.*", "model.layers.2.mlp.experts",
                              "re:model\\.layers\\.2\\.mlp\\.experts"}) {
    request = Scheme("awq");
    request.exclude = {pattern};
    EXPECT_EQ(quantized(request), (std::vector<bool>{true, false})) << pattern;
  }
  request.exclude = {"*.self_attn*"};  // stays anyway
  EXPECT_EQ(quantized(request), (std::vector<bool>{true, true}));
}

TEST_F(CheckpointPlanTest, RefusesChoicesThatCannotBe) {
  testing::WriteCheckpoint(dir_, {}, 43);
  const auto refused = [&](std::vector<std::string> exclude, std::vector<std::int32_t> keep) {
    PlanRequest request = Scheme("fp8_block");
    request.exclude = std::move(exclude);
    request.keep_bf16_layers = std::move(keep);
    const absl::Status status = Plan(request).status();
    EXPECT_THAT(status, FailsWith(kBad, Reason::kBadConfig));
    return std::string(status.message());
  };
  EXPECT_THAT(refused({}, {1}), HasSubstr("no MoE layer 1"));
  EXPECT_THAT(refused({}, {0, 2}), HasSubstr("--keep-bf16-layers: every MoE layer"));
  EXPECT_THAT(refused({"*.mlp.experts"}, {}), HasSubstr("--exclude: every MoE layer"));
  EXPECT_THAT(refused({"*.layers.0.mlp.experts"}, {2}),
              HasSubstr("--keep-bf16-layers: with --exclude, every MoE layer"));
  EXPECT_THAT(refused({"*.nowhere.*"}, {}), HasSubstr("no module"));
  EXPECT_THAT(refused({"*.experts.3.*"}, {}), HasSubstr("3 of 12 modules"));
  EXPECT_THAT(refused({"a?b"}, {}), HasSubstr("wildcard"));
}

TEST_F(CheckpointPlanTest, SizesThatDoNotFitNameLayoutTensorAndWhatDoes) {
  CheckpointShape shape;
  shape.intermediate = 96;
  testing::WriteCheckpoint(dir_, shape, 44);

  const absl::Status status = Plan(Scheme("w4afp8")).status();

  EXPECT_THAT(status, FailsWith(kBad, Reason::kBadConfig));
  auto metadata = MetadataOf(status);
  EXPECT_EQ(metadata["tensor"], "model.layers.0.mlp.experts.0.down_proj.weight");
  EXPECT_EQ(metadata["fits"], "modelopt_nvfp4");
  EXPECT_THAT(std::string(status.message()), HasSubstr("w4afp8"));
}

TEST_F(CheckpointPlanTest, WhatHasNoPlaceInALayoutIsRefusedByName) {
  std::vector<WrittenTensor> tensors = testing::WriteCheckpoint(dir_, {}, 45);
  SeededRng rng(46);
  tensors.push_back(testing::RandomBf16("model.layers.2.mlp.experts.1.up_proj.bias", {256}, rng));
  Rewrite(tensors);

  const absl::Status status = Plan(Scheme("fp8_block")).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnimplemented, Reason::kCheckpoint));
  EXPECT_EQ(MetadataOf(status)["tensor"], "model.layers.2.mlp.experts.1.up_proj.bias");
  PlanRequest kept = Scheme("fp8_block");
  kept.keep_bf16_layers = {2};
  SY_EXPECT_OK(Plan(kept));
}

TEST_F(CheckpointPlanTest, MissingAndForeignExpertsAreRefused) {
  std::vector<WrittenTensor> tensors = testing::WriteCheckpoint(dir_, {}, 47);
  const std::vector<WrittenTensor> whole = tensors;
  std::erase_if(tensors, [](const WrittenTensor& tensor) {
    return tensor.name == "model.layers.0.mlp.experts.2.down_proj.weight";
  });
  Rewrite(tensors);
  EXPECT_THAT(Plan(Scheme("awq")), FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  std::erase_if(tensors, [](const WrittenTensor& tensor) {
    return tensor.name.find("model.layers.0.mlp.experts.") == 0;
  });
  Rewrite(tensors);  // the router is still there, so the layer is no dense one
  EXPECT_THAT(Plan(Scheme("awq")), FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  tensors = whole;
  for (WrittenTensor& tensor : tensors) {
    if (tensor.name == "model.layers.2.mlp.experts.0.gate_proj.weight") tensor.dtype = "F16";
  }
  Rewrite(tensors);
  EXPECT_THAT(Plan(Scheme("awq")),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kCheckpoint));
}

TEST_F(CheckpointPlanTest, ConfigMustSayWhatModelItIs) {
  testing::WriteCheckpoint(dir_, {}, 48);
  dir_.Write("config.json", "{\"model_type\": \"qwen3_moe\"}");
  EXPECT_THAT(Plan(Scheme("awq")), FailsWith(kBad, Reason::kBadConfig));
  CheckpointShape other;
  other.model_type = "llama";
  dir_.Write("config.json", testing::ConfigOf(other));
  EXPECT_THAT(Plan(Scheme("awq")),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

}  // namespace
}  // namespace switchyard
