#include "model/checkpoint_summary.h"

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "model/safetensors/safetensors.h"
#include "tests/model/quant/golden_folder.h"
#include "tests/model/quant/whole_checkpoints.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::CopyGolden;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;

std::uint64_t BytesOfTotals(const CheckpointSummary& summary) {
  std::uint64_t bytes = 0;
  for (const DtypeTotal& total : summary.totals) bytes += total.bytes;
  return bytes;
}

// Every golden checkpoint has the scheme that its generator wrote, and every byte of it is an
// expert's.
TEST(CheckpointSummaryTest, GoldensHaveTheirSchemes) {
  std::set<std::string> seen;
  for (const testing::GoldenRow& row : testing::GoldenRows()) {
    if (!seen.insert(row.checkpoint).second) continue;
    const TempDir dir;
    CopyGolden(row.checkpoint, dir);
    SY_ASSERT_OK_AND_ASSIGN(const CheckpointSummary summary, SummarizeCheckpoint(dir.path()));

    ASSERT_EQ(summary.layers.size(), 1U) << row.checkpoint;
    const LayerSummary& layer = summary.layers[0];
    SY_EXPECT_OK(layer.status) << row.checkpoint;
    EXPECT_EQ(QuantSchemeInfoOf(layer.quant->scheme).name, row.scheme) << row.checkpoint;
    EXPECT_EQ(layer.expert_bytes, BytesOfTotals(summary)) << row.checkpoint;
    EXPECT_EQ(layer.quant->scheme == QuantScheme::kNone, summary.quant_family == "none");
    EXPECT_THAT(summary.warnings, IsEmpty()) << row.checkpoint;
  }
  EXPECT_GE(seen.size(), 18U);
}

TEST(CheckpointSummaryTest, ReadsTheShippedModel) {
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointSummary summary, SummarizeCheckpoint(SY_SHIPPED_MODEL));

  EXPECT_EQ(summary.outline.model_type, "qwen3_moe");
  EXPECT_EQ(summary.quant_family, "none");
  ASSERT_EQ(summary.layers.size(), 4U);
  const MoeShape& shape = summary.outline.shape;
  for (const LayerSummary& layer : summary.layers) {
    SY_EXPECT_OK(layer.status);
    EXPECT_EQ(layer.expert_bytes, static_cast<std::uint64_t>(shape.experts) * 3 * 2 *
                                      static_cast<std::uint64_t>(shape.hidden) *
                                      static_cast<std::uint64_t>(shape.intermediate));
    EXPECT_FALSE(layer.input_scales.has_value());
  }
  EXPECT_LT(summary.layers[0].expert_bytes * 4, BytesOfTotals(summary));
}

TEST(CheckpointSummaryTest, ADraftBehindTheOthersIsADraft) {
  for (const bool fp8 : {false, true}) {
    const TempDir dir;
    testing::WriteDeepseek(dir, 3, fp8);
    SY_ASSERT_OK_AND_ASSIGN(const CheckpointSummary summary, SummarizeCheckpoint(dir.path()));

    ASSERT_EQ(summary.layers.size(), 4U);
    EXPECT_EQ(summary.layers[2].role, LayerRole::kBase);
    EXPECT_EQ(summary.layers[2].quant->scheme, QuantScheme::kFp8Block);
    const LayerSummary& draft = summary.layers[3];
    EXPECT_EQ(draft.role, LayerRole::kDraft);
    EXPECT_EQ(draft.layer.value, 4);
    SY_EXPECT_OK(draft.status);
    EXPECT_EQ(draft.quant->scheme, fp8 ? QuantScheme::kFp8Block : QuantScheme::kNone);
    EXPECT_THAT(summary.warnings, IsEmpty());
  }
}

TEST(CheckpointSummaryTest, ADraftInAListOfItsOwnBeginsAtZero) {
  const TempDir dir;
  testing::WriteQwen35(dir, 1);
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointSummary summary, SummarizeCheckpoint(dir.path()));

  ASSERT_EQ(summary.layers.size(), 3U);
  EXPECT_EQ(summary.layers[2].role, LayerRole::kDraft);
  EXPECT_EQ(summary.layers[2].layer.value, 0);
  EXPECT_EQ(summary.layers[2].modules.container, "mtp.layers.0.mlp.experts");
  EXPECT_EQ(summary.layers[2].quant->why, "draft layer stored in BF16");
}

TEST(CheckpointSummaryTest, DraftsThatAreNotAsAnnouncedGiveAWarning) {
  for (const int announced : {0, 2}) {
    const TempDir dir;
    testing::WriteQwen35(dir, announced);
    SY_ASSERT_OK_AND_ASSIGN(const CheckpointSummary summary, SummarizeCheckpoint(dir.path()));

    EXPECT_EQ(summary.layers.size(), 3U);
    EXPECT_THAT(summary.warnings,
                ElementsAre(absl::StrCat("Draft layers: config.json announces ", announced,
                                         ", the checkpoint has the experts of 1.")));
  }
}

TEST(CheckpointSummaryTest, ABrokenLayerDoesNotStopTheRest) {
  const TempDir dir;
  testing::WriteDeepseek(dir, 3, true);
  std::string bytes = testing::ReadBytes(dir.Join("model.safetensors"));
  const std::string name = "model.layers.2.mlp.experts.1.up_proj.weight_scale_inv";
  ASSERT_NE(bytes.find(name), std::string::npos);
  bytes[bytes.find(name) + name.size() - 1] = 'x';
  dir.Write("model.safetensors", bytes);
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointSummary summary, SummarizeCheckpoint(dir.path()));

  ASSERT_EQ(summary.layers.size(), 4U);
  SY_EXPECT_OK(summary.layers[0].status);
  EXPECT_THAT(summary.layers[1].status, FailsWith(StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(std::string(summary.layers[1].status.message()), HasSubstr(name));
  EXPECT_EQ(summary.layers[1].quant->scheme, QuantScheme::kFp8Block);  // known all the same
  SY_EXPECT_OK(summary.layers[2].status);
}

TEST(CheckpointSummaryTest, OnlyScalesThatAllExpertsShareMakeNvfp4Rows) {
  const TempDir dir;
  CopyGolden("nvfp4_modelopt_flat", dir);
  SY_ASSERT_OK_AND_ASSIGN(CheckpointSummary summary, SummarizeCheckpoint(dir.path()));
  LayerSummary& layer = summary.layers[0];
  ASSERT_TRUE(layer.input_scales.has_value());
  const bool equal = layer.input_scales->gate_up_min == layer.input_scales->gate_up_max;
  EXPECT_EQ(layer.warnings.empty(), equal);

  layer.input_scales = LayerInputScales{0.5F, 0.5F, 0.25F, 0.75F};
  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts one, FactsOf(summary, layer));
  ASSERT_TRUE(one.quant_config.has_value());
  EXPECT_EQ(one.quant_config->input_global_scale, 2.0F);
  layer.input_scales = LayerInputScales{0.5F, 0.75F, 0.25F, 0.25F};
  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts several, FactsOf(summary, layer));
  EXPECT_FALSE(several.quant_config->input_global_scale.has_value());
}

TEST(CheckpointSummaryTest, TheResolverGetsTheKeysOfQuantizedLayersOnly) {
  const TempDir dir;
  testing::WriteDeepseek(dir, 1, false);
  SY_ASSERT_OK_AND_ASSIGN(CheckpointSummary summary, SummarizeCheckpoint(dir.path()));
  summary.dispatch.dispatcher_output_dtype = "bf16";

  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts base, FactsOf(summary, summary.layers[0]));
  EXPECT_EQ(base.quant_config->dispatcher_output_dtype, DispatchDtype::kBf16);
  EXPECT_FALSE(base.excluded);
  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts draft, FactsOf(summary, summary.layers[1]));
  EXPECT_FALSE(draft.quant_config.has_value());
  EXPECT_FALSE(draft.excluded);
  EXPECT_EQ(draft.role, LayerRole::kDraft);

  summary.dispatch.dispatcher_output_dtype = "bf17";
  EXPECT_THAT(FactsOf(summary, summary.layers[0]),
              FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(CheckpointSummaryTest, WhatCannotBeReadIsRefused) {
  const TempDir dir;
  EXPECT_FALSE(SummarizeCheckpoint(dir.Join("nowhere")).ok());
  testing::WriteDeepseek(dir, 1, false);
  dir.Write("config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(SummarizeCheckpoint(dir.path()),
              FailsWith(StatusCode::kUnimplemented, Reason::kUnsupported));
  std::filesystem::remove(dir.Join("config.json"));
  EXPECT_THAT(SummarizeCheckpoint(dir.path()),
              FailsWith(StatusCode::kNotFound, Reason::kCheckpoint));
}

}  // namespace
}  // namespace switchyard
