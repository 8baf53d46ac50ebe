#include "model/experts/layer_experts.h"

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "model/io/checkpoint_error.h"
#include "model/quant/layout/expected_tensors.h"
#include "tests/model/quant/golden_folder.h"
#include "tests/model/quant/spoiled_checkpoint.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::FailsWith;
using testing::GoldenRow;
using testing::Spoiled;
using testing::WrittenTensor;

constexpr char kExperts[] = "model.layers.0.mlp.experts.";

std::string F32Bytes(float value) { return testing::BytesOf(std::span<const float>(&value, 1)); }

void OtherDtype(Spoiled& spoiled, const std::string& name) {
  WrittenTensor& tensor = spoiled.at(name);
  // Of the same width, so that the file stays well-formed.
  const std::vector<std::pair<std::string, std::string>> other{
      {"F8_E4M3", "I8"}, {"I8", "U8"},   {"U8", "I8"},   {"F32", "I32"},   {"I32", "F32"},
      {"BF16", "I16"},   {"F16", "I16"}, {"I64", "F64"}, {"F8_E8M0", "U8"}};
  for (const auto& [from, to] : other) {
    if (tensor.dtype == from) {
      tensor.dtype = to;
      return;
    }
  }
}
void OtherShape(Spoiled& spoiled, const std::string& name) {
  spoiled.at(name).shape.push_back(1);
  spoiled.at(name).shape.push_back(1);
}

absl::Status CheckAfter(const std::string& golden,
                        const std::function<void(Spoiled& spoiled)>& spoil) {
  Spoiled spoiled(golden);
  spoil(spoiled);
  const auto layer = spoiled.Open();
  return layer.ok() ? layer->experts->Check() : layer.status();
}

void ExpectRefusal(const absl::Status& status, StatusCode code, const char* kind,
                   const std::string& name) {
  EXPECT_THAT(status, FailsWith(code, Reason::kCheckpoint)) << name;
  EXPECT_EQ(MetadataOf(status)["kind"], kind);
  // Without the packed tensor of gate and up a layer has no experts at all.
  if (code == StatusCode::kNotFound && name.ends_with("gate_up_proj")) return;
  EXPECT_EQ(MetadataOf(status)["tensor"], PrintableName(name));
}

bool IsOptional(const std::string& golden, const std::string& name) {
  return name.ends_with("scale_bias") || name.ends_with("offset_second") ||
         (name.ends_with("weight_offset") && golden.find("w4a8") != std::string::npos);
}

void ExpectEachSpoilingIsRefused(const std::string& golden, const std::string& name) {
  const absl::Status gone = CheckAfter(golden, [&](Spoiled& spoiled) { spoiled.Remove(name); });
  if (IsOptional(golden, name)) {
    SY_EXPECT_OK(gone) << name;
  } else {
    ExpectRefusal(gone, StatusCode::kNotFound, "TENSOR_NOT_FOUND", name);
  }
  ExpectRefusal(CheckAfter(golden, [&](Spoiled& spoiled) { OtherDtype(spoiled, name); }),
                StatusCode::kUnimplemented, "WRONG_DTYPE", name);
  ExpectRefusal(CheckAfter(golden, [&](Spoiled& spoiled) { OtherShape(spoiled, name); }),
                StatusCode::kDataLoss, "WRONG_SHAPE", name);
}

// R74-R85: names, dtypes and shapes of every layout, each tensor missing, of another dtype and of
// another shape, refused by name with what is there and what was expected.
TEST(LayerExpertsTest, EveryTensorOfEveryLayoutIsCheckedByName) {
  int spoiled_tensors = 0;
  std::set<std::string> checkpoints;
  for (const GoldenRow& row : testing::GoldenRows()) checkpoints.insert(row.checkpoint);
  for (const std::string& golden : checkpoints) {
    SY_ASSERT_OK_AND_ASSIGN(const auto whole, testing::OpenGolden(golden));
    const ExpertModules& modules = whole.experts->modules();
    const std::string prefix =
        modules.packed ? modules.container : modules.Name(0, Projection::kDown);
    for (const std::string& name : whole.tensors->names()) {
      if (name.rfind(prefix, 0) != 0) continue;
      ExpectEachSpoilingIsRefused(golden, name);
      ++spoiled_tensors;
    }
  }
  EXPECT_EQ(spoiled_tensors, 54);
}

TEST(LayerExpertsTest, TheRefusalSaysWhatIsThereAndWhatWasExpected) {
  Spoiled spoiled("fp8_block");
  const std::string name = absl::StrCat(kExperts, "0.gate_proj.weight_scale_inv");
  spoiled.at(name).shape = {4, 1};

  SY_ASSERT_OK_AND_ASSIGN(const auto layer, spoiled.Open());
  const absl::Status status = layer.experts->Check();

  for (const char* part : {name.c_str(), "[4, 1]", "[2, 2]", "fp8_block", "model.safetensors"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << part << " in " << status;
  }
}

// Tensors that the quant config does not describe and that would change the weights.
TEST(LayerExpertsTest, RefusesTensorsThatWouldChangeWhatTheWeightsMean) {
  const std::vector<std::pair<std::string, std::string>> extra{
      {"w4a16_kimi", "language_model.model.layers.0.mlp.experts.1.up_proj.weight_zero_point"},
      {"w4a16_kimi", "language_model.model.layers.0.mlp.experts.0.up_proj.weight_g_idx"},
      {"w8a8_compressed", "model.layers.0.block_sparse_moe.experts.0.w2.weight_zero_point"},
      {"awq", absl::StrCat(kExperts, "0.down_proj.g_idx")}};
  for (const auto& [golden, name] : extra) {
    Spoiled spoiled(golden);
    spoiled.Add({name, "I32", {1}, std::string(4, '\1')});
    SY_ASSERT_OK_AND_ASSIGN(const auto layer, spoiled.Open());
    const absl::Status status = layer.experts->Check();
    EXPECT_THAT(status, FailsWith(StatusCode::kUnimplemented, Reason::kCheckpoint)) << name;
    EXPECT_EQ(MetadataOf(status)["kind"], "UNEXPECTED_TENSOR");
    EXPECT_EQ(MetadataOf(status)["tensor"], PrintableName(name));
  }
}

void ExpectWrongValue(Spoiled& spoiled, const std::string& tensor, std::int32_t expert) {
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, spoiled.Open());
  SY_EXPECT_OK(layer.experts->Check());
  const absl::Status status = layer.experts->Load(expert).status();
  EXPECT_THAT(status, FailsWith(StatusCode::kDataLoss, Reason::kCheckpoint)) << tensor;
  EXPECT_EQ(MetadataOf(status)["kind"], "WRONG_VALUE");
  EXPECT_EQ(MetadataOf(status)["tensor"], PrintableName(tensor));
}

// R81: offsets are there and must be zero.
TEST(LayerExpertsTest, OffsetsThatAreNotZeroAreRefused) {
  for (const auto& [golden, suffix] : std::vector<std::pair<std::string, std::string>>{
           {"modelslim_w8a8", "weight_offset"},
           {"modelslim_w4a4", "weight_offset"},
           {"modelslim_w4a8_channel", "weight_offset"},
           {"modelslim_w4a8_group", "weight_offset_second"}}) {
    Spoiled spoiled(golden);
    const std::string name = absl::StrCat(kExperts, "1.up_proj.", suffix);
    std::string& bytes = spoiled.at(name).bytes;
    bytes.replace(bytes.size() - 4, 4, F32Bytes(-3));
    ExpectWrongValue(spoiled, name, 1);
  }
  Spoiled negative_zero("modelslim_w8a8");
  negative_zero.at(absl::StrCat(kExperts, "1.up_proj.weight_offset"))
      .bytes.replace(0, 4, F32Bytes(-0.0F));
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, negative_zero.Open());
  SY_EXPECT_OK(layer.experts->Load(1));
}

TEST(LayerExpertsTest, ValuesThatNoLayoutAllowsAreRefused) {
  for (const float value : {0.0F, -1.0F, INFINITY, NAN}) {
    Spoiled global("nvfp4_compressed");
    const std::string name = absl::StrCat(kExperts, "0.down_proj.weight_global_scale");
    global.at(name).bytes = F32Bytes(value);
    ExpectWrongValue(global, name, 0);
    Spoiled input("fp8_tensor_static");
    const std::string input_name = absl::StrCat(kExperts, "1.gate_proj.input_scale");
    input.at(input_name).bytes = F32Bytes(value);
    ExpectWrongValue(input, input_name, 1);
  }
  Spoiled int4("modelslim_w4a4");
  int4.at(absl::StrCat(kExperts, "0.up_proj.weight")).bytes[7] = 8;
  ExpectWrongValue(int4, absl::StrCat(kExperts, "0.up_proj.weight"), 0);
  Spoiled shape("w4a16_kimi");
  const std::string name = "language_model.model.layers.0.mlp.experts.0.gate_proj.weight_shape";
  shape.at(name).bytes[0] = 33;
  ExpectWrongValue(shape, name, 0);
}

// R87: gate's scale for both would make up's weights wrong by their ratio.
TEST(LayerExpertsTest, GateAndUpKeepTheirOwnGlobalScales) {
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, testing::OpenGolden("nvfp4_modelopt_flat"));
  SY_ASSERT_OK_AND_ASSIGN(const RawExpert expert, layer.experts->Load(1));

  const RawTensor& gate = *expert.of(Projection::kGate).Find(TensorRole::kGlobalScale);
  const RawTensor& up = *expert.of(Projection::kUp).Find(TensorRole::kGlobalScale);

  EXPECT_NE(up.bytes, gate.bytes);
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection alone, layer.experts->Load(1, Projection::kUp));
  EXPECT_EQ(up.bytes, alone.Find(TensorRole::kGlobalScale)->bytes);
}

// R87: rows are encoded once for all experts, so unequal input scales mean BF16 rows, not an abort.
TEST(LayerExpertsTest, InputGlobalScaleIsThereOnlyWhenAllExpertsAgree) {
  SY_ASSERT_OK_AND_ASSIGN(const auto modelopt, testing::OpenGolden("nvfp4_modelopt_file"));
  SY_ASSERT_OK_AND_ASSIGN(const LayerInputScales equal, modelopt.experts->InputScales());
  EXPECT_EQ(equal.gate_up_max, 0.0078125F);
  EXPECT_EQ(equal.InputGlobalScale(), 128.0F);

  Spoiled spoiled("nvfp4_modelopt_file");
  spoiled.at(absl::StrCat(kExperts, "1.up_proj.input_scale")).bytes = F32Bytes(0.25F);
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, spoiled.Open());
  SY_ASSERT_OK_AND_ASSIGN(const LayerInputScales unequal, layer.experts->InputScales());
  EXPECT_EQ(unequal.gate_up_min, 0.0078125F);
  EXPECT_EQ(unequal.gate_up_max, 0.25F);
  EXPECT_EQ(unequal.InputGlobalScale(), std::nullopt);
}

// R89: compressed-tensors keeps the reciprocal.
TEST(LayerExpertsTest, InputScalesOfCompressedTensorsAreTurnedOver) {
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, testing::OpenGolden("nvfp4_compressed"));
  SY_ASSERT_OK_AND_ASSIGN(const LayerInputScales scales, layer.experts->InputScales());

  EXPECT_EQ(scales.gate_up_max, 128.0F);
  EXPECT_EQ(scales.InputGlobalScale(), 0.0078125F);
}

TEST(LayerExpertsTest, LayoutsWithoutStaticInputsHaveNoInputScales) {
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, testing::OpenGolden("fp8_block"));

  EXPECT_EQ(layer.experts->InputScales()->InputGlobalScale(), std::nullopt);
}

// Sizes that a layout cannot hold are a contradiction of the config, found before any tensor.
TEST(LayerExpertsTest, SizesThatTheLayoutCannotHoldAreRefused) {
  struct Bad {
    ProjectionQuant quant;
    ProjectionSize size;
  };
  const Bad bad[] = {{{.layout = QuantLayout::kNvfp4ModelOpt, .group_size = 16}, {32, 40}},
                     {{.layout = QuantLayout::kW4Afp8, .group_size = 128}, {32, 64}},
                     {{.layout = QuantLayout::kModelSlimW4A8}, {33, 64}},
                     {{.layout = QuantLayout::kModelSlimW4A8, .group_size = 48}, {32, 64}},
                     {{.layout = QuantLayout::kPackQuantized, .group_size = 32}, {32, 48}},
                     {{.layout = QuantLayout::kPackQuantized}, {32, 44}},
                     {{.layout = QuantLayout::kAwq, .group_size = 32}, {36, 64}},
                     {{.layout = QuantLayout::kAwq, .group_size = 128}, {32, 64}}};
  for (const Bad& row : bad) {
    EXPECT_THAT(ExpectedTensors(row.quant, Projection::kGate, row.size),
                FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig))
        << QuantLayoutInfoOf(row.quant.layout).name;
  }
}

// A group size of 0 is one scale for each row.
TEST(LayerExpertsTest, WithoutGroupsARowHasOneScale) {
  SY_ASSERT_OK_AND_ASSIGN(
      const auto tensors,
      ExpectedTensors({.layout = QuantLayout::kPackQuantized}, Projection::kGate, {32, 64}));
  EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{32, 1}));
}

}  // namespace
}  // namespace switchyard
