#include "model/presets.h"

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

#include "model/decoder_family.h"
#include "model/experts/expert_names.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::FailsWith;

constexpr std::array kRanks{8, 16, 32, 64};
constexpr std::array kModes{DispatchMode::kNormal, DispatchMode::kLowLatency};

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The wire dtype, or "-" for what does not fit.
std::string Cell(const ModelPreset& preset, const PresetUse& use) {
  const auto fit = FitPreset(preset, use);
  return fit.ok() ? std::string(DispatchDtypeName(*fit)) : "-";
}

// Every use of every preset, one line each: a column for each number of ranks.
std::string FitTable() {
  std::string out =
      "# Wire dtype of rows that nobody asked for, by ranks; -: this use is refused.\n"
      "# preset<TAB>scheme<TAB>device profile<TAB>mode<TAB>8<TAB>16<TAB>32<TAB>64\n";
  for (const ModelPreset& preset : ModelPresets()) {
    for (const QuantScheme scheme : preset.schemes) {
      for (const DeviceProfile& profile : DeviceProfiles()) {
        for (const DispatchMode mode : kModes) {
          std::vector<std::string> row{preset.name, QuantSchemeInfoOf(scheme).name, profile.name,
                                       std::string(DispatchModeName(mode))};
          for (const std::int32_t ranks : kRanks) {
            row.push_back(Cell(preset, {scheme, &profile, mode, ranks}));
          }
          absl::StrAppend(&out, absl::StrJoin(row, "\t"), "\n");
        }
      }
    }
  }
  return out;
}

std::string RoutingText(const ModelPreset& preset) {
  if (std::holds_alternative<SoftmaxRule>(preset.routing)) return "softmax, renormalized";
  const auto& rule = std::get<SigmoidRule>(preset.routing);
  return absl::StrFormat("sigmoid with bias, %d of %d groups, times %g", rule.topk_groups,
                         rule.groups, rule.scaling);
}

std::string SharedText(const SharedExpertFacts& shared) {
  if (shared.count == 0) return "none";
  return absl::StrCat(shared.count, shared.sigmoid_gate ? ", gated" : "",
                      shared.intermediate > 0 ? absl::StrCat(", ", shared.intermediate) : "");
}

// The tables of docs/MODELS.md.
std::string PresetTable() {
  std::string out =
      "| preset | layers (dense, MTP) | experts | top-k | hidden | intermediate | shared | routing "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const ModelPreset& p : ModelPresets()) {
    absl::StrAppendFormat(&out, "| `%s` | %d (%d, %d) | %d | %d | %d | %d | %s | %s |\n", p.name,
                          p.layers, p.dense_first, p.mtp_layers, p.shape.experts, p.shape.top_k,
                          p.shape.hidden, p.shape.intermediate, SharedText(p.shared),
                          RoutingText(p));
  }
  return out;
}

// The dtypes of all numbers of ranks, once each.
std::string ModeCell(const ModelPreset& preset, PresetUse use) {
  std::vector<std::string> cells;
  for (const std::int32_t ranks : kRanks) {
    use.ranks = ranks;
    std::string cell = Cell(preset, use);
    if (cells.empty() || cells.back() != cell) cells.push_back(std::move(cell));
  }
  return absl::StrJoin(cells, "..");
}

std::string WireTable() {
  std::vector<std::string> heads{"preset", "scheme"};
  for (const DeviceProfile& profile : DeviceProfiles()) heads.emplace_back(profile.name);
  std::string out = absl::StrCat("| ", absl::StrJoin(heads, " | "), " |\n|");
  for (std::size_t i = 0; i < heads.size(); ++i) out += "---|";
  out += '\n';
  for (const ModelPreset& preset : ModelPresets()) {
    for (const QuantScheme scheme : preset.schemes) {
      absl::StrAppend(&out, "| `", preset.name, "` | ", QuantSchemeInfoOf(scheme).name, " |");
      for (const DeviceProfile& profile : DeviceProfiles()) {
        const std::string normal = ModeCell(preset, {scheme, &profile, DispatchMode::kNormal});
        const std::string low = ModeCell(preset, {scheme, &profile, DispatchMode::kLowLatency});
        absl::StrAppend(&out, " ", normal == low ? low : absl::StrCat(normal, " / ", low), " |");
      }
      out += '\n';
    }
  }
  return out;
}

// The numbers of the rows, once more by hand.
TEST(PresetsTest, HaveTheirNumbers) {
  struct Want {
    const char* name;
    std::int32_t layers, dense, mtp;
    MoeShape shape;
    std::int32_t shared;
  };
  const Want wanted[] = {
      {"deepseek-v3", 61, 3, 1, {7168, 2048, 256, 8}, 1},
      {"deepseek-r1", 61, 3, 1, {7168, 2048, 256, 8}, 1},
      {"kimi-k2", 61, 1, 0, {7168, 2048, 384, 8}, 1},
      {"kimi-k2.5", 61, 1, 0, {7168, 2048, 384, 8}, 1},
      {"qwen3.5-397b-a17b", 60, 0, 1, {4096, 1024, 512, 10}, 1},
      {"qwen3.5-35b-a3b", 40, 0, 1, {2048, 512, 256, 8}, 1},
      {"qwen3-next-80b-a3b", 48, 0, 1, {2048, 512, 512, 10}, 1},
      {"qwen3-235b-a22b", 94, 0, 0, {4096, 1536, 128, 8}, 0},
      {"qwen3-30b-a3b", 48, 0, 0, {2048, 768, 128, 8}, 0},
  };
  EXPECT_EQ(ModelPresets().size(), std::size(wanted));
  for (const Want& want : wanted) {
    const ModelPreset* preset = FindModelPreset(want.name);
    ASSERT_NE(preset, nullptr) << want.name;
    EXPECT_EQ(preset->layers, want.layers) << want.name;
    EXPECT_EQ(preset->dense_first, want.dense) << want.name;
    EXPECT_EQ(preset->MoeLayers(), want.layers - want.dense);
    EXPECT_EQ(preset->mtp_layers, want.mtp) << want.name;
    EXPECT_EQ(preset->shape, want.shape) << want.name;
    EXPECT_EQ(preset->shared.count, want.shared) << want.name;
    EXPECT_EQ(preset->shared.sigmoid_gate, want.shared > 0 && absl::StartsWith(want.name, "qwen"))
        << want.name;
    EXPECT_FALSE(preset->schemes.empty());
  }
  EXPECT_EQ(FindModelPreset("deepseek-v4"), nullptr);
}

// R110
TEST(PresetsTest, EveryPresetValidates) {
  for (const ModelPreset& preset : ModelPresets()) {
    SY_EXPECT_OK(CheckPreset(preset));
    for (const std::int32_t ranks : kRanks) {
      EXPECT_EQ(preset.shape.experts % ranks, 0) << preset.name << " on " << ranks;
    }
  }
}

TEST(PresetsTest, RefusesNumbersThatDoNotHoldTogether) {
  const ModelPreset good = *FindModelPreset("deepseek-v3");
  const auto shape = FailsWith(StatusCode::kInvalidArgument, Reason::kBadShape);
  ModelPreset bad = good;
  bad.dense_first = bad.layers;
  EXPECT_THAT(CheckPreset(bad), shape);
  bad = good;
  bad.mtp_layers = -1;
  EXPECT_THAT(CheckPreset(bad), shape);
  bad = good;
  bad.shape.hidden = 0;
  EXPECT_THAT(CheckPreset(bad), shape);
  bad = good;
  bad.shape.top_k = 9;
  EXPECT_THAT(CheckPreset(bad), shape);
  bad = good;
  std::get<SigmoidRule>(bad.routing).groups = 7;
  EXPECT_THAT(CheckPreset(bad), shape);
  bad = good;
  std::get<SigmoidRule>(bad.routing).top_k = bad.shape.top_k = 200;
  const absl::Status top_k = CheckPreset(bad);
  EXPECT_THAT(top_k, FailsWith(StatusCode::kInvalidArgument, Reason::kBadTopK));
  EXPECT_NE(top_k.message().find("deepseek-v3"), absl::string_view::npos);
}

// R110: cells of the table that follow from what is published, by hand.
TEST(PresetsTest, FitsWhatIsKnownAboutDevices) {
  const auto cell = [](const char* preset, QuantScheme scheme, const char* profile,
                       DispatchMode mode, std::int32_t ranks) {
    return Cell(*FindModelPreset(preset), {scheme, FindDeviceProfile(profile), mode, ranks});
  };
  constexpr auto kNormal = DispatchMode::kNormal;
  constexpr auto kLow = DispatchMode::kLowLatency;
  EXPECT_EQ(cell("deepseek-v3", QuantScheme::kFp8Block, "deepep_v1", kLow, 64), "fp8");
  EXPECT_EQ(cell("deepseek-v3", QuantScheme::kW8A8Int8, "ascend_a3", kLow, 64), "int8");
  EXPECT_EQ(cell("deepseek-v3", QuantScheme::kW8A8Int8, "cuda_sm90", kNormal, 8), "bf16");
  EXPECT_EQ(cell("deepseek-v3", QuantScheme::kW8A8Int8, "ascend_a2", kNormal, 8), "int8");
  EXPECT_EQ(cell("deepseek-v3", QuantScheme::kW8A8Int8, "ascend_a2", kNormal, 16), "bf16");
  EXPECT_EQ(cell("deepseek-v3", QuantScheme::kNvfp4, "cuda_sm100", kLow, 8), "nvfp4");
  EXPECT_EQ(cell("deepseek-v3", QuantScheme::kNvfp4, "cuda_sm100", kNormal, 8), "bf16");
  EXPECT_EQ(cell("deepseek-v3", QuantScheme::kNvfp4, "ascend_a3", kLow, 8), "-");
  EXPECT_EQ(cell("kimi-k2.5", QuantScheme::kW4A16Int4, "cuda_sm90", kLow, 16), "bf16");
  EXPECT_EQ(cell("qwen3.5-397b-a17b", QuantScheme::kNone, "deepep_v1", kLow, 32), "bf16");
}

TEST(PresetsTest, RefusesUsesOutsideTheLimitsByName) {
  const ModelPreset& qwen = *FindModelPreset("qwen3.5-397b-a17b");
  const auto bad = FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig);
  PresetUse use{
      .profile = FindDeviceProfile("deepep_v1"), .mode = DispatchMode::kLowLatency, .ranks = 24};
  const absl::Status uneven = FitPreset(qwen, use).status();
  EXPECT_THAT(uneven, bad);
  EXPECT_NE(uneven.message().find("512 experts do not divide by 24"), absl::string_view::npos);
  EXPECT_NE(uneven.message().find("qwen3.5-397b-a17b"), absl::string_view::npos);
  use.ranks = 8;
  use.tokens = 1025;
  EXPECT_THAT(FitPreset(qwen, use), bad);
  use.mode = DispatchMode::kNormal;
  SY_EXPECT_OK(FitPreset(qwen, use));
  use.ranks = 0;
  EXPECT_THAT(FitPreset(qwen, use), bad);
  EXPECT_THAT(FitPreset(qwen, {}), bad);
  ModelPreset wide = qwen;
  wide.shape.top_k = 12;
  EXPECT_THAT(FitPreset(wide, {.profile = FindDeviceProfile("deepep_v1"),
                               .mode = DispatchMode::kLowLatency}),
              FailsWith(StatusCode::kInvalidArgument, Reason::kBadTopK));
}

// R110: the whole table. When it changes on purpose, the difference is to be read and kept.
TEST(PresetsTest, FitsAreThoseOfTheTable) {
  EXPECT_EQ(FitTable(), TextOf(SY_PRESET_FITS)) << "expected file:\n" << SY_PRESET_FITS;
}

TEST(PresetsTest, ThePageOfModelsHoldsTheTables) {
  const std::string page = TextOf(SY_MODELS_PAGE);

  EXPECT_NE(page.find(PresetTable()), std::string::npos) << PresetTable();
  EXPECT_NE(page.find(WireTable()), std::string::npos) << WireTable();
}

// A row for each set of names, those of packed experts left out.
std::string FamilyTable() {
  std::string table;
  for (const ExpertNameMap& map : ExpertNameMaps()) {
    if (map.packed) continue;
    std::vector<std::string> types;
    std::vector<std::string> decoders;
    for (const char* type : map.model_types) {
      if (type == nullptr) continue;
      types.push_back(absl::StrCat("`", type, "`"));
      if (FindDecoderFamily(type) != nullptr) decoders.push_back(types.back());
    }
    absl::StrAppend(&table, "| ", absl::StrJoin(types, ", "), " | `", map.container, "` | `",
                    map.draft_container, "` | ",
                    decoders.empty() ? "none" : absl::StrJoin(decoders, ", "), " |\n");
  }
  return table;
}

TEST(PresetsTest, ThePageOfModelsHoldsTheFamilies) {
  EXPECT_NE(TextOf(SY_MODELS_PAGE).find(FamilyTable()), std::string::npos) << FamilyTable();
}

}  // namespace
}  // namespace switchyard
