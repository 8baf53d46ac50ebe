#include "ctl/inspection_text.h"

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "report/text_table.h"
#include "tests/model/quant/whole_checkpoints.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::TempDir;

// tests/ctl/goldens/NAME, in which DIR stands for the folder.
void ExpectGolden(const Inspection& found, std::size_t width, const std::string& name) {
  const std::string text =
      absl::StrReplaceAll(InspectionText(found, width), {{found.summary.dir, "DIR"}});
  EXPECT_EQ(text, switchyard::testing::ReadBytes(SY_CTL_GOLDENS "/" + name));
  if (width == 0) return;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(CharactersOf(line), width) << std::string(line);
  }
}

TEST(InspectionTextTest, TheShippedModelAt120Columns) {
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({SY_SHIPPED_MODEL, {}, ""}));
  ExpectGolden(found, 120, "inspect_shipped_120.txt");
}

TEST(InspectionTextTest, AModelWithADraftAt80Columns) {
  const TempDir dir;
  switchyard::testing::WriteDeepseek(dir, 5, /*draft_in_fp8=*/false);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, ""}));
  ExpectGolden(found, 80, "inspect_draft_80.txt");
}

TEST(InspectionTextTest, Nvfp4SaysWhoTakesItAndWhoRefuses) {
  const TempDir dir;
  switchyard::testing::CopyGolden("nvfp4_modelopt_flat", dir);
  SY_ASSERT_OK_AND_ASSIGN(Inspection found, Inspect({dir.path(), {}, ""}));
  ExpectGolden(found, 80, "inspect_nvfp4_80.txt");
}

TEST(InspectionTextTest, TwoLayoutsInOneLayerAndWhatIsSlow) {
  const TempDir dir;
  switchyard::testing::CopyGolden("modelslim_w4a4", dir);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, "npu"}));
  ExpectGolden(found, 80, "inspect_w4a4_80.txt");
}

TEST(InspectionTextTest, BrokenLayersAndMissingDrafts) {
  const TempDir dir;
  switchyard::testing::WriteQwen35(dir, 2);
  std::string bytes = switchyard::testing::ReadBytes(dir.Join("model.safetensors"));
  const std::string name = "layers.1.mlp.experts.0.gate_proj.weight_scale_inv";
  bytes[bytes.find(name) + name.size() - 1] = 'x';
  dir.Write("model.safetensors", bytes);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, "gpu"}));
  ExpectGolden(found, 0, "inspect_broken.txt");  // lines that hold the folder are as long as it
}

TEST(InspectionTextTest, JsonHasNumbersAndReasons) {
  const TempDir dir;
  switchyard::testing::CopyGolden("nvfp4_modelopt_flat", dir);
  SY_ASSERT_OK_AND_ASSIGN(const Inspection found, Inspect({dir.path(), {}, "ascend_a2"}));
  const Json json = InspectionJson(found);

  EXPECT_EQ(json["layers"][0]["scheme"], "nvfp4");
  EXPECT_EQ(json["layers"][0]["expert_bytes_each"], found.layers[0].first.expert_bytes);
  EXPECT_EQ(json["layers"][0]["input_scales"]["down"][1],
            found.layers[0].first.input_scales->down_max);
  EXPECT_FALSE(json["layers"][0].contains("error"));
  std::uint64_t bytes = 0;
  for (const Json& total : json["tensors"]) bytes += total["bytes"].get<std::uint64_t>();
  EXPECT_EQ(bytes, found.layers[0].first.expert_bytes);
  const Json& would = json["dispatch"]["groups"][0]["would"];
  ASSERT_EQ(would.size(), 2U);
  for (const Json& row : would) {
    EXPECT_EQ(row["worker"], "ascend_a2");
    EXPECT_NE(row.contains("dtype"), row.contains("refusal"));
  }
}

}  // namespace
}  // namespace switchyard::ctl
