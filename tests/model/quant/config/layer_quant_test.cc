#include "model/quant/config/layer_quant.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/model/quant/quant_configs.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FilesOf;
using testing::Json;

ExpertModules Layer(int layer, int experts = 4) {
  return {.container = absl::StrCat("model.layers.", layer, ".mlp.experts"),
          .projections = {"gate_proj", "up_proj", "down_proj"},
          .experts = experts};
}

QuantConfig Parsed(const Json& quantization_config) {
  return ParseQuantConfig(FilesOf(quantization_config)).value();
}

TEST(LayerQuantTest, NamesOfModules) {
  EXPECT_EQ(Layer(3).Name(7, Projection::kDown), "model.layers.3.mlp.experts.7.down_proj");
  const ExpertModules packed{.container = "m.experts",
                             .projections = {"gate_up_proj", "gate_up_proj", "down_proj"},
                             .experts = 4,
                             .packed = true};
  EXPECT_EQ(packed.Name(2, Projection::kUp), "m.experts.gate_up_proj");
}

TEST(LayerQuantTest, AModelWithoutQuantConfigIsBf16) {
  SY_ASSERT_OK_AND_ASSIGN(const LayerQuant quant, ResolveLayerQuant(QuantConfig{}, Layer(0)));

  EXPECT_EQ(quant.scheme, QuantScheme::kNone);
  EXPECT_EQ(quant.why, "no quant config");
}

// R95: exclusions of each family reach exactly the layers that they name.
TEST(LayerQuantTest, ExclusionsAreAppliedLayerByLayer) {
  const auto scheme = [](const Json& config, int layer) {
    const auto quant = ResolveLayerQuant(Parsed(config), Layer(layer));
    SY_EXPECT_OK(quant.status());
    return quant.ok() ? quant->scheme : QuantScheme::kMxfp8;
  };
  EXPECT_EQ(scheme(testing::ModelOptFlatConfig(), 60), QuantScheme::kNvfp4);
  EXPECT_EQ(scheme(testing::ModelOptFlatConfig(), 61), QuantScheme::kNone);

  Json kimi = testing::KimiConfig();
  kimi["ignore"] = {"model.layers.2.mlp.experts", "re:.*layers\\.5\\.mlp\\.experts\\..*"};
  EXPECT_EQ(scheme(kimi, 2), QuantScheme::kNone);
  EXPECT_EQ(scheme(kimi, 5), QuantScheme::kNone);
  EXPECT_EQ(scheme(kimi, 15), QuantScheme::kW4A16Int4);

  Json awq = testing::AwqConfig();
  awq["modules_to_not_convert"] = {"gate", "mlp.gate_", "layers.7", "shared_expert"};
  EXPECT_EQ(scheme(awq, 7), QuantScheme::kNone);
  EXPECT_EQ(scheme(awq, 70), QuantScheme::kAwqInt4);
}

// R95: neither "shared_expert" (Qwen) nor "shared_experts" (DeepSeek, Kimi) is the routed experts.
TEST(LayerQuantTest, SharedExpertsAreNotTheRoutedOnes) {
  for (const char* entry : {"shared_expert", "shared_experts", "expert"}) {
    Json fp8 = testing::Fp8BlockConfig();
    fp8["modules_to_not_convert"] = {entry};
    EXPECT_EQ(ResolveLayerQuant(Parsed(fp8), Layer(1))->scheme, QuantScheme::kFp8Block) << entry;
  }
  Json routed = testing::Fp8BlockConfig();
  routed["modules_to_not_convert"] = {"experts"};
  EXPECT_EQ(ResolveLayerQuant(Parsed(routed), Layer(1))->why, "excluded by 'experts'");
}

TEST(LayerQuantTest, NamedTargetsGoBeforeTheClassOfLinearModules) {
  Json config = testing::Int8Config();
  Json experts = testing::KimiConfig()["config_groups"]["group_0"];
  experts["targets"] = {"re:.*mlp\\.experts\\.\\d+\\..*_proj$"};
  experts["format"] = "pack-quantized";
  config["config_groups"]["group_1"] = experts;

  SY_ASSERT_OK_AND_ASSIGN(const LayerQuant quant, ResolveLayerQuant(Parsed(config), Layer(0)));
  EXPECT_EQ(quant.scheme, QuantScheme::kW4A16Int4);
  EXPECT_EQ(quant.of(Projection::kDown).group_size, 32);
  EXPECT_NE(quant.why.find("group_1"), std::string::npos) << quant.why;

  config["config_groups"].erase("group_0");
  config["config_groups"]["group_1"]["targets"] = {"re:.*self_attn.*"};
  SY_ASSERT_OK_AND_ASSIGN(const LayerQuant none, ResolveLayerQuant(Parsed(config), Layer(0)));
  EXPECT_EQ(none.scheme, QuantScheme::kNone);
  EXPECT_EQ(none.why, "named by no group of the quant config");
}

TEST(LayerQuantTest, ExpertsThatAreStoredInSeveralWaysAreRefused) {
  for (const char* entry : {"model.layers.1.mlp.experts.2", "re:.*experts\\.3\\.down_proj",
                            "re:.*experts\\.\\d+\\.down_proj"}) {
    Json config = testing::KimiConfig();
    config["ignore"] = {entry};
    const absl::Status status = ResolveLayerQuant(Parsed(config), Layer(1)).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
    EXPECT_NE(MetadataOf(status).at("key").find("model.layers.1.mlp.experts."), std::string::npos);
  }
}

// The main model is quantized, its draft layer is not and no list says so.
TEST(LayerQuantTest, DraftLayersStoredInBf16StayBf16) {
  ExpertModules draft = Layer(61);
  draft.draft = true;
  draft.stored_in_bf16 = true;
  const QuantConfig config = Parsed(testing::Fp8BlockConfig());

  EXPECT_EQ(ResolveLayerQuant(config, draft)->scheme, QuantScheme::kNone);
  draft.stored_in_bf16 = false;  // DeepSeek-V3's own draft layer is FP8
  EXPECT_EQ(ResolveLayerQuant(config, draft)->scheme, QuantScheme::kFp8Block);
  ExpertModules main = Layer(4);
  main.stored_in_bf16 = true;  // a damaged checkpoint: the tensors are checked against FP8
  EXPECT_EQ(ResolveLayerQuant(config, main)->scheme, QuantScheme::kFp8Block);
}

TEST(LayerQuantTest, PackedExpertsAreServedInBf16Only) {
  ExpertModules packed{.container = "model.layers.0.mlp.experts",
                       .projections = {"gate_up_proj", "gate_up_proj", "down_proj"},
                       .experts = 4,
                       .packed = true,
                       .stored_in_bf16 = true};
  Json excluded = testing::Fp8BlockConfig();
  excluded["modules_to_not_convert"] = {"experts"};

  EXPECT_EQ(ResolveLayerQuant(QuantConfig{}, packed)->scheme, QuantScheme::kNone);
  EXPECT_EQ(ResolveLayerQuant(Parsed(excluded), packed)->scheme, QuantScheme::kNone);
  EXPECT_THAT(ResolveLayerQuant(Parsed(testing::Fp8BlockConfig()), packed),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

// One row for each projection of each expert.
Json Description(const std::string& gate, const std::string& up, const std::string& down) {
  Json rows = Json::object();
  for (int expert = 0; expert < 4; ++expert) {
    const std::string module = absl::StrCat("model.layers.3.mlp.experts.", expert);
    rows[module + ".gate_proj.weight"] = gate;
    rows[module + ".up_proj.weight"] = up;
    rows[module + ".down_proj.weight"] = down;
  }
  return rows;
}

absl::StatusOr<LayerQuant> Resolved(const Json& description, const ExpertModules& modules) {
  return ResolveLayerQuant(ParseQuantConfig(testing::ModelSlimFiles(description)).value(), modules);
}

// R81, R82, R83, R94: detection from expert 0; down may differ from gate and up; FLOAT is BF16.
TEST(LayerQuantTest, ModelSlimTypesOfExpertZeroDecide) {
  const auto scheme = [](const std::string& gate, const std::string& down) {
    const auto quant = Resolved(Description(gate, gate, down), Layer(3));
    SY_EXPECT_OK(quant.status());
    return quant.ok() ? quant->scheme : QuantScheme::kMxfp8;
  };
  EXPECT_EQ(scheme("W8A8_DYNAMIC", "W8A8_DYNAMIC"), QuantScheme::kW8A8Int8);
  EXPECT_EQ(scheme("W4A8_DYNAMIC", "W4A8_DYNAMIC"), QuantScheme::kW4A8Int8);
  EXPECT_EQ(scheme("W4A4_DYNAMIC", "W4A4_DYNAMIC"), QuantScheme::kW4A4Int4);
  EXPECT_EQ(scheme("FLOAT", "FLOAT"), QuantScheme::kNone);

  SY_ASSERT_OK_AND_ASSIGN(
      const LayerQuant mixed,
      Resolved(Description("W4A4_DYNAMIC", "W4A4_DYNAMIC", "W8A8_DYNAMIC"), Layer(3)));
  EXPECT_EQ(mixed.scheme, QuantScheme::kW4A4Int4);
  EXPECT_EQ(mixed.of(Projection::kUp).layout, QuantLayout::kModelSlimW4A4);
  EXPECT_EQ(mixed.of(Projection::kDown).layout, QuantLayout::kModelSlimW8A8);
}

// R82: the file's group size is the weights'.
TEST(LayerQuantTest, ModelSlimGroupsAreThoseOfTheFile) {
  Json rows = Description("W4A8_DYNAMIC", "W4A8_DYNAMIC", "W4A8_DYNAMIC");
  EXPECT_EQ(Resolved(rows, Layer(3))->of(Projection::kGate).group_size, 0);
  rows["group_size"] = 128;
  EXPECT_EQ(Resolved(rows, Layer(3))->of(Projection::kGate).group_size, 128);
}

// R94
TEST(LayerQuantTest, ModelSlimGateAndUpMustAgree) {
  const absl::Status status =
      Resolved(Description("W8A8_DYNAMIC", "W4A8_DYNAMIC", "W8A8_DYNAMIC"), Layer(3)).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(MetadataOf(status).at("key"), "model.layers.3.mlp.experts.0.up_proj");
}

TEST(LayerQuantTest, ModelSlimRowsThatCannotBeServedAreRefused) {
  const auto unsupported = FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported);
  EXPECT_THAT(Resolved(Description("W8A8", "W8A8", "W8A8"), Layer(3)), unsupported);
  EXPECT_THAT(Resolved(Description("W8A8_DYNAMIC", "W8A8_DYNAMIC", "FLOAT"), Layer(3)),
              unsupported);

  Json other = Description("W8A8_DYNAMIC", "W8A8_DYNAMIC", "W8A8_DYNAMIC");
  other["model.layers.3.mlp.experts.2.gate_proj.weight"] = "FLOAT";
  other["model.layers.3.mlp.experts.2.up_proj.weight"] = "FLOAT";
  other["model.layers.3.mlp.experts.2.down_proj.weight"] = "FLOAT";
  EXPECT_THAT(Resolved(other, Layer(3)), unsupported);

  Json missing = Description("W8A8_DYNAMIC", "W8A8_DYNAMIC", "W8A8_DYNAMIC");
  missing.erase("model.layers.3.mlp.experts.1.down_proj.weight");
  EXPECT_THAT(Resolved(missing, Layer(3)),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

// R94: both conventions are tried, and the refusal lists what was.
TEST(LayerQuantTest, ModelSlimTriesBothSpellingsOfProjections) {
  Json rows = Json::object();
  for (const char* part : {"w1", "w2", "w3"}) {
    rows[absl::StrCat("model.layers.3.mlp.experts.0.", part, ".weight")] = "W8A8_DYNAMIC";
  }
  EXPECT_EQ(Resolved(rows, Layer(3, /*experts=*/1))->scheme, QuantScheme::kW8A8Int8);

  const absl::Status status = Resolved(Json::object(), Layer(3)).status();
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  for (const char* tried : {"0.gate_proj.weight", "0.w1.weight"}) {
    EXPECT_NE(status.message().find(tried), absl::string_view::npos) << status;
  }
  ExpertModules draft = Layer(61);
  draft.draft = true;
  EXPECT_EQ(Resolved(Json::object(), draft)->scheme, QuantScheme::kNone);
}

}  // namespace
}  // namespace switchyard
