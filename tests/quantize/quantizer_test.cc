#include "quantize/quantizer.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "model/experts/expert_names.h"
#include "model/experts/layer_experts.h"
#include "model/quant/config/quant_files.h"
#include "model/quant/layout/dequantize.h"
#include "quantize/encode.h"
#include "tests/quantize/checkpoints.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using testing::CheckpointShape;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::RandomAmax;
using testing::ReadBytes;
using testing::TempDir;
using testing::WriteCheckpoint;

constexpr char kShipped[] = SY_SHIPPED_MODEL;

const WriteScheme* Scheme(const std::string& name) { return *FindWriteScheme(name); }

std::map<std::string, std::string> FilesOf(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    files[entry.path().filename().string()] = ReadBytes(entry.path().string());
  }
  return files;
}

std::string TensorBytes(const CheckpointTensors& tensors, const std::string& name) {
  std::string bytes(tensors.Find(name)->bytes, '\x5a');
  SY_EXPECT_OK(tensors.Read(name, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

// A layer of a checkpoint, opened like any other.
absl::StatusOr<LayerExperts> OpenLayer(const CheckpointTensors& tensors, const MoeShape& shape,
                                       std::int32_t layer,
                                       const std::string& model_type = "qwen3_moe") {
  const auto config = LoadQuantConfig(tensors);
  if (!config.ok()) return config.status();
  const auto modules = FindExpertModules(
      tensors, {.model_type = model_type, .layer = layer, .experts = shape.experts});
  if (!modules.ok()) return modules.status();
  const auto quant = ResolveLayerQuant(*config, *modules);
  if (!quant.ok()) return quant.status();
  return LayerExperts(tensors, *modules, *quant, shape);
}

class QuantizerTest : public ::testing::Test {
 protected:
  QuantizeOptions OptionsFor(const std::string& scheme, const std::string& out) {
    return {.scheme = Scheme(scheme),
            .in = in_.path(),
            .out = work_.Join(out),
            .calibration = RandomAmax({0, 2}, 4, 5)};
  }

  const CheckpointShape shape_;
  const MoeShape moe_{.hidden = 128, .intermediate = 256, .experts = 4};
  const TempDir in_;
  const TempDir work_;
};

class EverySchemeTest : public QuantizerTest, public ::testing::WithParamInterface<std::string> {};

// R74 to R85: a checkpoint of each layout, written and read back, has the encoder's own bytes, and
// everything that is no routed expert is what it was.
TEST_P(EverySchemeTest, ReadsBackBitForBit) {
  WriteCheckpoint(in_, shape_, 1);
  const QuantizeOptions options = OptionsFor(GetParam(), "out");

  SY_ASSERT_OK_AND_ASSIGN(const QuantizeSummary summary, Quantize(options));

  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors before, CheckpointTensors::Open(in_.path()));
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors after, CheckpointTensors::Open(options.out));
  std::set<std::string> seen;
  for (const std::string& name : before.names()) {
    if (absl::StrContains(name, ".experts.")) continue;
    ASSERT_NE(after.Find(name), nullptr) << name;
    EXPECT_EQ(after.Find(name)->dtype, before.Find(name)->dtype) << name;
    EXPECT_EQ(after.Find(name)->shape, before.Find(name)->shape) << name;
    EXPECT_EQ(TensorBytes(after, name), TensorBytes(before, name)) << name;
    seen.insert(name);
  }
  for (const std::int32_t layer : {0, 2}) {
    SY_ASSERT_OK_AND_ASSIGN(const LayerExperts old, OpenLayer(before, moe_, layer));
    SY_ASSERT_OK_AND_ASSIGN(const LayerExperts made, OpenLayer(after, moe_, layer));
    SY_ASSERT_OK(made.Check());
    for (std::int32_t expert = 0; expert < 4; ++expert) {
      SY_ASSERT_OK_AND_ASSIGN(const RawExpert raw, made.Load(expert));
      // Engines that compute gate and up in one product take one global scale for both.
      const RawTensor* gate_scale = raw.of(Projection::kGate).Find(TensorRole::kGlobalScale);
      if (gate_scale != nullptr) {
        EXPECT_EQ(raw.of(Projection::kUp).Find(TensorRole::kGlobalScale)->bytes, gate_scale->bytes);
      }
      for (const Projection projection : kAllProjections) {
        SY_ASSERT_OK_AND_ASSIGN(const RawProjection bf16, old.Load(expert, projection));
        const std::vector<float> weights = Dequantize(bf16);
        SY_ASSERT_OK_AND_ASSIGN(const RawProjection gate, old.Load(expert, Projection::kGate));
        SY_ASSERT_OK_AND_ASSIGN(const RawProjection up, old.Load(expert, Projection::kUp));
        const float shared = std::max(AmaxOf(Dequantize(gate)), AmaxOf(Dequantize(up)));
        float gate_up = 0;
        for (const ExpertAmax& one : options.calibration->Find(layer)->experts) {
          gate_up = std::max(gate_up, one.gate_up);
        }
        const bool down = projection == Projection::kDown;
        const auto index = static_cast<std::size_t>(expert);
        SY_ASSERT_OK_AND_ASSIGN(
            const RawProjection encoded,
            Encode({.quant = options.scheme->of(projection),
                    .projection = projection,
                    .size = bf16.size,
                    .weights = weights,
                    .module = "again",
                    .global_amax = down ? AmaxOf(weights) : shared,
                    .input_amax =
                        down ? options.calibration->Find(layer)->experts[index].down : gate_up}));
        ASSERT_EQ(raw.of(projection).tensors.size(), encoded.tensors.size());
        for (const RawTensor& tensor : encoded.tensors) {
          const RawTensor* read = raw.of(projection).Find(tensor.role);
          ASSERT_NE(read, nullptr);
          EXPECT_EQ(read->dtype, tensor.dtype);
          EXPECT_EQ(read->shape, tensor.shape);
          EXPECT_EQ(read->bytes, tensor.bytes);
        }
        const double diff = testing::CalcDiff(weights, Dequantize(raw.of(projection)));
        EXPECT_LE(diff, summary.diff_max[static_cast<std::size_t>(projection)]);
      }
    }
  }
  EXPECT_EQ(summary.tensors, after.names().size());
  EXPECT_EQ(summary.experts, 8);
  EXPECT_THAT(summary.quantized_layers, ElementsAre(0, 2));
}

TEST_P(EverySchemeTest, EqualRunsGiveEqualBytes) {
  WriteCheckpoint(in_, shape_, 2);
  QuantizeOptions first = OptionsFor(GetParam(), "first");
  QuantizeOptions second = OptionsFor(GetParam(), "second");
  first.shard_bytes = second.shard_bytes = 100'000;

  SY_ASSERT_OK(Quantize(first));
  SY_ASSERT_OK(Quantize(second));

  EXPECT_EQ(FilesOf(first.out), FilesOf(second.out));
  EXPECT_GT(FilesOf(first.out).size(), 8U);
}

// R95: a layer that is to stay in BF16 is named in the config's exclusions, and stays what it was.
TEST_P(EverySchemeTest, LayersCanStayInBf16) {
  WriteCheckpoint(in_, shape_, 3);
  QuantizeOptions options = OptionsFor(GetParam(), "kept");
  options.keep_bf16_layers = {2};

  SY_ASSERT_OK_AND_ASSIGN(const QuantizeSummary summary, Quantize(options));

  EXPECT_THAT(summary.bf16_layers, ElementsAre(2));
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors after, CheckpointTensors::Open(options.out));
  SY_ASSERT_OK_AND_ASSIGN(const LayerExperts kept, OpenLayer(after, moe_, 2));
  SY_ASSERT_OK_AND_ASSIGN(const LayerExperts made, OpenLayer(after, moe_, 0));
  EXPECT_EQ(kept.quant().scheme, QuantScheme::kNone);
  EXPECT_EQ(made.quant().scheme, options.scheme->scheme());
  SY_EXPECT_OK(kept.Check());
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors before, CheckpointTensors::Open(in_.path()));
  const std::string name = "model.layers.2.mlp.experts.3.up_proj.weight";
  EXPECT_EQ(TensorBytes(after, name), TensorBytes(before, name));
}

// The largest calc_diff of an expert's weights that a scheme may leave: about half its squared
// relative error, from the bits that its weights have.
double DiffBound(const WriteScheme& scheme, Projection projection) {
  switch (scheme.of(projection).layout) {
    case QuantLayout::kInt8Channel:
    case QuantLayout::kModelSlimW8A8:
      return 5e-5;
    case QuantLayout::kNvfp4ModelOpt:
    case QuantLayout::kNvfp4Compressed:
    case QuantLayout::kPackQuantized:
    case QuantLayout::kAwq:
      return 7e-3;
    case QuantLayout::kW4Afp8:
    case QuantLayout::kModelSlimW4A8:
    case QuantLayout::kModelSlimW4A4:
      return 1.2e-2;
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
    case QuantLayout::kFp8Tensor:
    case QuantLayout::kFp8Channel:
      return 5e-4;
    case QuantLayout::kBf16:
      break;
  }
  return 0;
}

// R74 to R85: the shipped model in each scheme, every expert loaded and compared with its BF16.
TEST_P(EverySchemeTest, HoldsTheShippedModelWithinItsBound) {
  const WriteScheme& scheme = *Scheme(GetParam());
  SY_ASSERT_OK_AND_ASSIGN(const QuantizeSummary summary,
                          Quantize({.scheme = &scheme,
                                    .in = kShipped,
                                    .out = work_.Join("shipped"),
                                    .calibration = RandomAmax({0, 1, 2, 3}, 16, 6)}));

  EXPECT_LT(summary.bytes_after, summary.bytes_before * 6 / 10);
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors before, CheckpointTensors::Open(kShipped));
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors after,
                          CheckpointTensors::Open(work_.Join("shipped")));
  const MoeShape shape{.hidden = 256, .intermediate = 128, .experts = 16};
  for (std::int32_t layer = 0; layer < 4; ++layer) {
    SY_ASSERT_OK_AND_ASSIGN(const LayerExperts old, OpenLayer(before, shape, layer));
    SY_ASSERT_OK_AND_ASSIGN(const LayerExperts made, OpenLayer(after, shape, layer));
    for (std::int32_t expert = 0; expert < shape.experts; ++expert) {
      SY_ASSERT_OK_AND_ASSIGN(const RawExpert raw, made.Load(expert));
      for (const Projection projection : kAllProjections) {
        SY_ASSERT_OK_AND_ASSIGN(const RawProjection bf16, old.Load(expert, projection));
        const double diff = testing::CalcDiff(Dequantize(bf16), Dequantize(raw.of(projection)));
        ASSERT_LE(diff, DiffBound(scheme, projection)) << layer << " " << expert;
        ASSERT_GT(diff, 0);
      }
    }
    SY_ASSERT_OK_AND_ASSIGN(const LayerInputScales scales, made.InputScales());
    const bool nvfp4 = scheme.scheme() == QuantScheme::kNvfp4;
    EXPECT_TRUE(!nvfp4 || scales.InputGlobalScale().has_value()) << "rows cannot travel as NVFP4";
  }
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (const WriteScheme& scheme : WriteSchemes()) names.emplace_back(scheme.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(AllSchemes, EverySchemeTest, ::testing::ValuesIn(AllNames()),
                         [](const auto& param_info) { return param_info.param; });

TEST_F(QuantizerTest, WritesWhatItSaysAndNothingElse) {
  WriteCheckpoint(in_, shape_, 4);
  const QuantizeOptions options = OptionsFor("fp8_block", "out");

  SY_ASSERT_OK_AND_ASSIGN(const QuantizeSummary summary, Quantize(options));

  EXPECT_THAT(summary.files,
              ElementsAre("config.json", "merges.txt", "model.safetensors", "tokenizer.json"));
  EXPECT_THAT(summary.left_out, ElementsAre("README.md"));
  std::vector<std::string> there;
  for (const auto& [name, bytes] : FilesOf(options.out)) there.push_back(name);
  EXPECT_EQ(there, summary.files);
  EXPECT_EQ(ReadBytes(options.out + "/tokenizer.json"), ReadBytes(in_.Join("tokenizer.json")));
}

TEST_F(QuantizerTest, ProgressGrowsToTheWhole) {
  WriteCheckpoint(in_, shape_, 5);
  QuantizeProgress last;

  SY_ASSERT_OK_AND_ASSIGN(const QuantizeSummary summary,
                          Quantize(OptionsFor("awq", "out"), [&](const QuantizeProgress& now) {
                            EXPECT_EQ(now.tensors, last.tensors + 1);
                            EXPECT_GE(now.bytes, last.bytes);
                            last = now;
                            return absl::OkStatus();
                          }));

  EXPECT_EQ(last.tensors, last.tensors_all);
  EXPECT_EQ(last.tensors, summary.tensors);
  EXPECT_EQ(last.bytes, last.bytes_all);
  EXPECT_EQ(last.bytes, summary.bytes_after);
}

TEST_F(QuantizerTest, AStoppedRunLeavesNothingBehind) {
  WriteCheckpoint(in_, shape_, 6);

  const auto stopped = Quantize(OptionsFor("awq", "out"), [](const QuantizeProgress& now) {
    return now.tensors < 30 ? absl::OkStatus() : absl::CancelledError("enough");
  });

  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(fs::is_empty(work_.path()));
}

TEST_F(QuantizerTest, AWeightThatIsNoNumberIsNamedAndNothingStays) {
  std::vector<testing::WrittenTensor> tensors = WriteCheckpoint(in_, shape_, 7);
  for (testing::WrittenTensor& tensor : tensors) {
    if (tensor.name != "model.layers.2.mlp.experts.1.down_proj.weight") continue;
    tensor.bytes[4] = '\x80';
    tensor.bytes[5] = '\x7f';  // infinity
  }
  in_.Write("model.safetensors", testing::SafetensorsBytes(tensors));

  const auto refused = Quantize(OptionsFor("fp8_block", "out"));

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_EQ(MetadataOf(refused.status())["tensor"],
            "model.layers.2.mlp.experts.1.down_proj.weight");
  EXPECT_TRUE(fs::is_empty(work_.path()));
}

TEST_F(QuantizerTest, StaticSchemesWithoutCalibrationAreRefusedWithWhatToRun) {
  WriteCheckpoint(in_, shape_, 8);
  for (const WriteScheme& scheme : WriteSchemes()) {
    QuantizeOptions options = OptionsFor(scheme.name, "out_" + std::string(scheme.name));
    options.calibration.reset();
    const auto made = Quantize(options);
    if (!scheme.needs_calibration()) {
      SY_EXPECT_OK(made);
      continue;
    }
    EXPECT_THAT(made, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    EXPECT_THAT(std::string(made.status().message()),
                HasSubstr(absl::StrCat("--scheme ", scheme.name, " --calibrate")));
    EXPECT_FALSE(fs::exists(options.out));
  }
}

TEST_F(QuantizerTest, ExpertsThatSawNoRowWarn) {
  WriteCheckpoint(in_, shape_, 9);
  QuantizeOptions options = OptionsFor("modelopt_nvfp4", "out");
  options.calibration->layers[1].experts[3] = {0, 0};

  SY_ASSERT_OK_AND_ASSIGN(const QuantizeSummary summary, Quantize(options));

  ASSERT_EQ(summary.warnings.size(), 1U);
  EXPECT_THAT(summary.warnings[0], HasSubstr("layer 2: calibration gave no row to expert 3"));
}

// For every scheme that stores a scale: magnitudes too small to give one, before a byte is
// written.
TEST_F(QuantizerTest, ACalibrationThatGivesNoScaleIsRefusedBeforeTheWork) {
  WriteCheckpoint(in_, shape_, 12);
  for (const WriteScheme& scheme : WriteSchemes()) {
    if (!scheme.needs_calibration()) continue;
    QuantizeOptions options = OptionsFor(scheme.name, "out_" + std::string(scheme.name));
    options.calibration->layers[1].experts[2].down = std::numeric_limits<float>::denorm_min();
    int written = 0;
    const auto refused = Quantize(options, [&written](const QuantizeProgress&) {
      ++written;
      return absl::OkStatus();
    });
    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << scheme.name;
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("--calibrate: model.layers.2.mlp.experts.2.down_proj"));
    EXPECT_EQ(written, 0) << scheme.name;
  }
  EXPECT_TRUE(fs::is_empty(work_.path()));
}

TEST_F(QuantizerTest, OutMustBeAnotherFolder) {
  WriteCheckpoint(in_, shape_, 10);
  QuantizeOptions options = OptionsFor("fp8_block", "out");
  options.out = in_.path() + "/.";
  options.force = true;

  EXPECT_THAT(Quantize(options), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_TRUE(fs::exists(in_.Join("model.safetensors")));
}

TEST_F(QuantizerTest, AQuantizedCheckpointIsRefused) {
  WriteCheckpoint(in_, shape_, 11);
  SY_ASSERT_OK(Quantize(OptionsFor("modelslim_w8a8", "first")));
  QuantizeOptions again = OptionsFor("fp8_block", "second");
  again.in = work_.Join("first");

  const auto refused = Quantize(again);

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("quantized already (modelslim)"));
}

// Experts that lie packed in one tensor come out one by one, with the numbers that they had.
TEST_F(QuantizerTest, PackedExpertsComeOutOneByOne) {
  CheckpointShape packed = shape_;
  packed.packed = true;
  WriteCheckpoint(in_, packed, 12);

  SY_ASSERT_OK(Quantize(OptionsFor("compressed_tensors_int8", "out")));

  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors before, CheckpointTensors::Open(in_.path()));
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors after,
                          CheckpointTensors::Open(work_.Join("out")));
  EXPECT_EQ(after.Find("model.layers.0.mlp.experts.gate_up_proj"), nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const LayerExperts old, OpenLayer(before, moe_, 0));
  SY_ASSERT_OK_AND_ASSIGN(const LayerExperts made, OpenLayer(after, moe_, 0));
  for (const Projection projection : kAllProjections) {
    SY_ASSERT_OK_AND_ASSIGN(const RawProjection bf16, old.Load(3, projection));
    SY_ASSERT_OK_AND_ASSIGN(const RawProjection int8, made.Load(3, projection));
    EXPECT_LE(testing::CalcDiff(Dequantize(bf16), Dequantize(int8)), 5e-5);
  }
}

}  // namespace
}  // namespace switchyard
