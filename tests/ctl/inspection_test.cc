#include "ctl/inspection.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/format/wire_format.h"
#include "ctl/inspection_text.h"
#include "ctl/json.h"
#include "ctl/syctl.h"
#include "tests/model/quant/whole_checkpoints.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using absl::StatusCode;
using switchyard::testing::FailsWith;
using switchyard::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Terminal kPipe{false, 0};

// Renames a tensor of layer 2 and one of layer 3 in the same way.
void Spoil(const TempDir& dir) {
  std::string bytes = switchyard::testing::ReadBytes(dir.Join("model.safetensors"));
  for (const char* layer : {"2", "3"}) {
    const std::string name =
        absl::StrCat("model.layers.", layer, ".mlp.experts.1.up_proj.weight_scale_inv");
    const std::size_t at = bytes.find(name);
    ASSERT_NE(at, std::string::npos) << name;
    bytes[at + name.size() - 1] = 'x';
  }
  dir.Write("model.safetensors", bytes);
}

DispatchDtype DtypeFor(const TravelGroup& group, absl::string_view profile, Phase phase) {
  for (const WouldTravel& would : group.would) {
    if (would.profile->name != profile || would.phase != phase) continue;
    SY_EXPECT_OK(would.trace.refusal);
    return would.trace.outcome.value_or(DispatchOutcome{}).dtype();
  }
  ADD_FAILURE() << "no row for " << std::string(profile);
  return DispatchDtype::kBf16;
}

TEST(InspectionTest, LayersThatAreAlikeAreOne) {
  const TempDir dir;
  switchyard::testing::WriteDeepseek(dir, 5, /*draft_in_fp8=*/false);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, ""}));

  ASSERT_EQ(found.layers.size(), 2U);
  EXPECT_THAT(found.layers[0].layers, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(found.layers[0].first.role, LayerRole::kBase);
  EXPECT_THAT(found.layers[1].layers, ElementsAre(6));
  EXPECT_EQ(found.layers[1].first.role, LayerRole::kDraft);
  ASSERT_EQ(found.travel.size(), 2U);
  EXPECT_EQ(found.travel[0].would.size(), 12U);  // 6 profiles in 2 phases
  SY_EXPECT_OK(CheckServable(found));
}

// R27: an unquantized draft sends BF16 and leaves the dtype of the base layers alone.
TEST(InspectionTest, ADraftTravelsByItself) {
  const TempDir dir;
  switchyard::testing::WriteDeepseek(dir, 1, /*draft_in_fp8=*/false);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, ""}));

  ASSERT_EQ(found.travel.size(), 2U);
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    EXPECT_EQ(DtypeFor(found.travel[0], "cuda_sm90", phase), DispatchDtype::kFp8);
    EXPECT_EQ(DtypeFor(found.travel[0], "ascend_a3", phase), DispatchDtype::kBf16);
    EXPECT_EQ(DtypeFor(found.travel[1], "cuda_sm90", phase), DispatchDtype::kBf16);
  }
}

TEST(InspectionTest, Int8ExpertsGetInt8RowsFromNpusAndBf16FromGpus) {
  const TempDir dir;
  switchyard::testing::CopyGolden("w8a8_compressed", dir);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, ""}));

  ASSERT_EQ(found.travel.size(), 1U);
  EXPECT_EQ(DtypeFor(found.travel[0], "ascend_a2", Phase::kDecode), DispatchDtype::kInt8);
  EXPECT_EQ(DtypeFor(found.travel[0], "cuda_sm100", Phase::kDecode), DispatchDtype::kBf16);
}

const WouldTravel& On(const TravelGroup& group, absl::string_view profile, Phase phase) {
  for (const WouldTravel& would : group.would) {
    if (would.profile->name == profile && would.phase == phase) return would;
  }
  ADD_FAILURE() << "no row for " << std::string(profile);
  return group.would.front();
}

// FP8 scales that are powers of two take a byte: 256 values and 2 scales, as the plan has it.
TEST(InspectionTest, ScalesThatArePowersOfTwoTravelAsSuch) {
  for (const bool powers : {false, true}) {
    const TempDir dir;
    switchyard::testing::WriteDeepseek(dir, 2, /*draft_in_fp8=*/true);
    nlohmann::json config =
        nlohmann::json::parse(switchyard::testing::ReadBytes(dir.Join("config.json")));
    if (powers) config["quantization_config"]["scale_fmt"] = "ue8m0";
    dir.Write("config.json", config.dump());
    SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, "cpu"}));

    const WouldTravel& would = On(found.travel[0], "cpu", Phase::kDecode);
    ASSERT_TRUE(would.trace.outcome.has_value());
    EXPECT_EQ(would.trace.outcome->format, powers ? kFp8Ue8m0Format : kFp8Format);
    EXPECT_EQ(would.trace.outcome->wire.total(), powers ? 258 : 264);
    const Json json = InspectionJson(found);
    EXPECT_EQ(json["dispatch"]["groups"][0]["would"][0]["dtype"], "fp8");
    EXPECT_EQ(json["dispatch"]["groups"][0]["would"][0]["wire_format"],
              powers ? "fp8_ue8m0" : "fp8");
  }
}

// A null in the config switches NVFP4 rows off, whatever the tensors hold.
TEST(InspectionTest, ANullScaleMeansBf16Rows) {
  const TempDir dir;
  switchyard::testing::CopyGolden("nvfp4_modelopt_flat", dir);
  nlohmann::json config =
      nlohmann::json::parse(switchyard::testing::ReadBytes(dir.Join("config.json")));
  config["quantization_config"]["input_global_scale"] = nullptr;
  dir.Write("config.json", config.dump());
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, ""}));

  ASSERT_EQ(found.travel.size(), 1U);
  EXPECT_EQ(found.travel[0].global_scales, std::nullopt);
  EXPECT_EQ(DtypeFor(found.travel[0], "cuda_sm100", Phase::kDecode), DispatchDtype::kBf16);
}

// The golden NVFP4 layer, and behind it the same with inputs half as large.
void WriteTwoNvfp4Layers(const TempDir& dir) {
  switchyard::testing::CopyGolden("nvfp4_modelopt_flat", dir);
  nlohmann::json config =
      nlohmann::json::parse(switchyard::testing::ReadBytes(dir.Join("config.json")));
  config["num_hidden_layers"] = 2;
  dir.Write("config.json", config.dump());
  const auto tensors = CheckpointTensors::Open(dir.path());
  SY_ASSERT_OK(tensors.status());
  std::vector<switchyard::testing::WrittenTensor> written;
  for (const std::string& name : tensors->names()) {
    const TensorInfo& info = *tensors->Find(name);
    std::string bytes(info.bytes, '\0');
    SY_ASSERT_OK(tensors->Read(name, std::as_writable_bytes(std::span(bytes))));
    written.push_back({name, std::string(TensorDtypeName(info.dtype)), info.shape, bytes});
    if (name.ends_with("input_scale")) {
      const float half = 0.00390625F;
      bytes = switchyard::testing::BytesOf(std::span<const float>(&half, 1));
    }
    written.push_back({absl::StrReplaceAll(name, {{"layers.0.", "layers.1."}}),
                       std::string(TensorDtypeName(info.dtype)), info.shape, bytes});
  }
  dir.Write("model.safetensors", switchyard::testing::SafetensorsBytes(written));
}

TEST(InspectionTest, AGroupOfLayersNamesAllItsGlobalScales) {
  const TempDir dir;
  WriteTwoNvfp4Layers(dir);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, ""}));

  ASSERT_EQ(found.travel.size(), 1U);
  EXPECT_THAT(found.travel[0].layers, ElementsAre(0, 1));
  ASSERT_TRUE(found.travel[0].global_scales.has_value());
  EXPECT_EQ(*found.travel[0].global_scales, std::make_pair(128.0F, 256.0F));
  const OrderDecision& decision = *On(found.travel[0], "cpu", Phase::kDecode).trace.decision;
  EXPECT_EQ(decision.rules[decision.winner].why, "the layer has input_global_scale 128..256");

  SY_ASSERT_OK_AND_ASSIGN(const Inspection second, Inspect({dir.path(), 1, ""}));
  const OrderDecision& own = *On(second.travel[0], "cpu", Phase::kDecode).trace.decision;
  EXPECT_EQ(own.rules[own.winner].why, "the layer has input_global_scale 256");
}

TEST(InspectionTest, OneLayerAndOneKindOfWorkerAreEnoughForSome) {
  const TempDir dir;
  switchyard::testing::WriteDeepseek(dir, 3, /*draft_in_fp8=*/true);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), 2, "npu"}));

  ASSERT_EQ(found.layers.size(), 1U);
  EXPECT_THAT(found.layers[0].layers, ElementsAre(2));
  ASSERT_EQ(found.travel.size(), 1U);
  EXPECT_EQ(found.travel[0].would.size(), 6U);
  EXPECT_EQ(found.travel[0].would[0].profile->kind, DeviceKind::kAscend);
}

TEST(InspectionTest, ALayerWithoutExpertsIsNamedWithThoseThatHave) {
  const TempDir dir;
  switchyard::testing::WriteDeepseek(dir, 3, /*draft_in_fp8=*/true);
  const absl::Status status = Inspect({dir.path(), 0, ""}).status();

  EXPECT_THAT(status, FailsWith(StatusCode::kNotFound, Reason::kUnknownLayer));
  EXPECT_THAT(std::string(status.message()), HasSubstr("these have: 1-4"));
}

TEST(InspectionTest, BrokenLayersAreToldOfAndTheRestIsShown) {
  const TempDir dir;
  switchyard::testing::WriteDeepseek(dir, 4, /*draft_in_fp8=*/true);
  Spoil(dir);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, ""}));

  ASSERT_EQ(found.layers.size(), 3U);
  EXPECT_THAT(found.layers[0].layers, ElementsAre(1, 4));
  EXPECT_THAT(found.layers[1].layers, ElementsAre(2, 3));
  EXPECT_EQ(found.broken, 2);
  EXPECT_THAT(CheckServable(found),
              FailsWith(StatusCode::kFailedPrecondition, Reason::kCheckpoint));
  EXPECT_THAT(std::string(CheckServable(found).message()),
              HasSubstr("layer 2 cannot be served (nor those of 1 more)"));
  SY_ASSERT_OK_AND_ASSIGN(const Inspection good, Inspect({dir.path(), 4, ""}));
  SY_EXPECT_OK(CheckServable(good));
}

TEST(InspectionTest, TheProgramNeedsNoCoordinator) {
  const TempDir dir;
  switchyard::testing::WriteQwen35(dir, 1);
  const std::vector<std::string> words{"model", "inspect", dir.path(), "--target", "127.0.0.1:1"};
  const SyctlResult piped = RunSyctl(words, kPipe);

  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  const Json json = Json::parse(piped.out);
  EXPECT_EQ(json["model_type"], "qwen3_5_moe");
  EXPECT_EQ(json["layers"][1]["role"], "draft");
  EXPECT_EQ(json["dispatch"]["groups"][0]["would"][2]["worker"], "cuda_sm90");
  EXPECT_EQ(json["dispatch"]["groups"][0]["would"][2]["dtype"], "fp8");
}

TEST(InspectionTest, WhatCannotBeReadExitsWithOneAndNoAdviceAboutTheCoordinator) {
  const TempDir dir;
  switchyard::testing::WriteDeepseek(dir, 1, /*draft_in_fp8=*/true);
  dir.Write("config.json", R"({"model_type": "llama"})");
  const SyctlResult unknown = RunSyctl({"model", "inspect", dir.path(), "-o", "table"}, kPipe);
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.out, "");
  EXPECT_THAT(unknown.err, HasSubstr("'llama'"));
  EXPECT_THAT(unknown.err, ::testing::Not(HasSubstr("next:")));

  switchyard::testing::WriteDeepseek(dir, 1, /*draft_in_fp8=*/true);
  nlohmann::json config =
      nlohmann::json::parse(switchyard::testing::ReadBytes(dir.Join("config.json")));
  config["quantization_config"]["quant_method"] = "bitsandbytes";
  dir.Write("config.json", config.dump());
  const SyctlResult quant = RunSyctl({"model", "inspect", dir.path()}, kPipe);
  EXPECT_EQ(quant.exit_code, 1);
  EXPECT_THAT(quant.err, HasSubstr("'bitsandbytes' is not supported; supported:"));
  EXPECT_EQ(Json::parse(quant.out)["error"]["reason"], "UNSUPPORTED");
}

}  // namespace
}  // namespace switchyard::ctl
