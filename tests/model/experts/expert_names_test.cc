#include "model/experts/expert_names.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testing/safetensors_writer.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::TempDir;

// A checkpoint of one tensor of that name.
absl::StatusOr<ExpertModules> Found(const std::string& tensor, const std::string& dtype,
                                    const ExpertLayer& layer) {
  const TempDir dir;
  dir.Write("model.safetensors", testing::SafetensorsBytes({{tensor, dtype, {1}, "\1\2"}}));
  const auto tensors = CheckpointTensors::Open(dir.path());
  if (!tensors.ok()) return tensors.status();
  return FindExpertModules(*tensors, layer);
}

struct Row {
  const char* model_type;
  bool draft;
  const char* tensor;  // of expert 0's gate
  const char* down;    // module of expert 5's down
};

// The names as checkpoints of each family have them, layer 3.
constexpr Row kRows[] = {
    {"qwen3_moe", false, "model.layers.3.mlp.experts.0.gate_proj.weight",
     "model.layers.3.mlp.experts.5.down_proj"},
    {"qwen3_moe", false, "model.layers.3.mlp.experts.gate_up_proj",
     "model.layers.3.mlp.experts.down_proj"},
    {"qwen3_5_moe", false, "model.language_model.layers.3.mlp.experts.0.gate_proj.weight",
     "model.language_model.layers.3.mlp.experts.5.down_proj"},
    {"qwen3_5_moe", false, "model.language_model.layers.3.mlp.experts.gate_up_proj",
     "model.language_model.layers.3.mlp.experts.down_proj"},
    {"qwen3_5_moe", true, "mtp.layers.3.mlp.experts.gate_up_proj",
     "mtp.layers.3.mlp.experts.down_proj"},
    {"qwen3_5_moe_text", false, "model.layers.3.mlp.experts.0.gate_proj.weight",
     "model.layers.3.mlp.experts.5.down_proj"},
    {"deepseek_v3", false, "model.layers.3.mlp.experts.0.gate_proj.weight",
     "model.layers.3.mlp.experts.5.down_proj"},
    {"deepseek_v3", true, "model.layers.3.mlp.experts.0.gate_proj.weight",
     "model.layers.3.mlp.experts.5.down_proj"},
    {"deepseek_v3", false, "model.layers.3.mlp.experts.gate_up_proj",
     "model.layers.3.mlp.experts.down_proj"},
    {"kimi_k25", false, "language_model.model.layers.3.mlp.experts.0.gate_proj.weight",
     "language_model.model.layers.3.mlp.experts.5.down_proj"},
    {"mixtral", false, "model.layers.3.block_sparse_moe.experts.0.w1.weight",
     "model.layers.3.block_sparse_moe.experts.5.w2"},
    {"mixtral", false, "model.layers.3.mlp.experts.gate_up_proj",
     "model.layers.3.mlp.experts.down_proj"},
};

TEST(ExpertNamesTest, EachFamilyIsFoundByTheNamesItHas) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(std::string(row.model_type) + " " + row.tensor);
    SY_ASSERT_OK_AND_ASSIGN(
        const ExpertModules modules,
        Found(row.tensor, "BF16",
              {.model_type = row.model_type, .layer = 3, .draft = row.draft, .experts = 8}));
    EXPECT_EQ(modules.Name(5, Projection::kDown), row.down);
    const std::string gate = modules.Name(0, Projection::kGate);
    EXPECT_EQ(modules.packed ? gate : gate + ".weight", row.tensor);
    EXPECT_EQ(modules.draft, row.draft);
    EXPECT_EQ(modules.experts, 8);
    EXPECT_TRUE(modules.stored_in_bf16);
  }
}

TEST(ExpertNamesTest, MixtralsW3IsUp) {
  SY_ASSERT_OK_AND_ASSIGN(const ExpertModules modules,
                          Found("model.layers.0.block_sparse_moe.experts.0.w1.weight", "BF16",
                                {.model_type = "mixtral", .experts = 2}));

  EXPECT_EQ(modules.Name(1, Projection::kUp), "model.layers.0.block_sparse_moe.experts.1.w3");
  EXPECT_EQ(modules.Name(1, Projection::kGate), "model.layers.0.block_sparse_moe.experts.1.w1");
}

TEST(ExpertNamesTest, QuantizedWeightsAreNotStoredInBf16) {
  const ExpertLayer layer{.model_type = "kimi_k25", .experts = 2};
  SY_ASSERT_OK_AND_ASSIGN(
      const ExpertModules packed_int4,
      Found("language_model.model.layers.0.mlp.experts.0.gate_proj.weight_packed", "I16", layer));
  EXPECT_FALSE(packed_int4.stored_in_bf16);
  EXPECT_FALSE(packed_int4.packed);
  SY_ASSERT_OK_AND_ASSIGN(
      const ExpertModules halves,
      Found("language_model.model.layers.0.mlp.experts.0.gate_proj.weight", "F16", layer));
  EXPECT_FALSE(halves.stored_in_bf16);
}

TEST(ExpertNamesTest, UsualNamesAreThoseOfExpertsOfTheirOwn) {
  for (const ExpertNameMap& map : ExpertNameMaps()) {
    const auto modules = UsualExpertModules({.model_type = map.model_types[0], .layer = 2});
    ASSERT_TRUE(modules.has_value()) << map.name;
    EXPECT_FALSE(modules->packed) << map.name;
  }
  EXPECT_FALSE(UsualExpertModules({.model_type = "gpt_oss"}).has_value());
}

TEST(ExpertNamesTest, ARefusalListsWhatWasTriedOrWhatIsKnown) {
  const absl::Status absent = Found("model.layers.1.mlp.experts.0.gate_proj.weight", "BF16",
                                    {.model_type = "qwen3_moe", .layer = 11, .experts = 2})
                                  .status();
  EXPECT_THAT(absent, FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  for (const char* tried : {"layers.11.mlp.experts.0.gate_proj.*", "experts.gate_up_proj"}) {
    EXPECT_NE(absent.message().find(tried), absl::string_view::npos) << absent;
  }
  const absl::Status unknown = Found("x", "BF16", {.model_type = "gpt_oss"}).status();
  EXPECT_THAT(unknown, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  for (const ExpertNameMap& map : ExpertNameMaps()) {
    EXPECT_NE(unknown.message().find(map.model_types[0]), absl::string_view::npos) << unknown;
  }
}

}  // namespace
}  // namespace switchyard
