#include "quantize/scheme_table.h"

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr auto kBad = absl::StatusCode::kInvalidArgument;

TEST(SchemeTableTest, HasEveryLayoutAndEveryNameOnce) {
  std::set<std::string> names;
  std::set<QuantLayout> layouts;
  for (const WriteScheme& row : WriteSchemes()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    layouts.insert(row.gate_up.layout);
    EXPECT_NE(row.scheme(), QuantScheme::kNone) << row.name;
  }
  for (const QuantLayoutInfo& layout : AllQuantLayouts()) {
    EXPECT_EQ(layouts.contains(layout.layout), layout.layout != QuantLayout::kBf16) << layout.name;
  }
}

// The table of docs/QUANTIZE.md.
TEST(SchemeTableTest, ThePageListsEveryRow) {
  std::string table = "| name | scheme | what is stored | calibrated |\n|---|---|---|---|\n";
  for (const WriteScheme& row : WriteSchemes()) {
    absl::StrAppend(&table, "| `", row.name, "` | `", QuantSchemeInfoOf(row.scheme()).name, "` | ",
                    row.description, " | ", row.needs_calibration() ? "yes" : "no", " |\n");
  }
  std::ifstream page(SY_QUANTIZE_PAGE);
  const std::string text{std::istreambuf_iterator<char>(page), {}};

  EXPECT_THAT(text, HasSubstr(table + "\n")) << "docs/QUANTIZE.md needs:\n" << table;
}

TEST(SchemeTableTest, FindsRowsBySchemeAndLayout) {
  const auto name = [](const char* scheme, const char* layout = "") -> std::string {
    const auto row = FindWriteScheme(scheme, layout);
    return row.ok() ? (*row)->name : std::string(row.status().message());
  };
  for (const WriteScheme& row : WriteSchemes()) EXPECT_EQ(name(row.name), row.name);
  EXPECT_EQ(name("nvfp4"), "modelopt_nvfp4");
  EXPECT_EQ(name("nvfp4", "compressed_tensors_nvfp4"), "compressed_tensors_nvfp4");
  EXPECT_EQ(name("nvfp4", "modelopt_nvfp4_file"), "modelopt_nvfp4_file");
  EXPECT_EQ(name("fp8_block", "compressed_tensors_fp8_block"), "compressed_tensors_fp8_block");
  EXPECT_EQ(name("w8a8_int8", "modelslim_w8a8"), "modelslim_w8a8");
  EXPECT_EQ(name("w4a4_int4"), "modelslim_w4a4");
}

TEST(SchemeTableTest, SaysWhatIsMeant) {
  const auto misspelled = FindWriteScheme("fp8-blok");
  EXPECT_THAT(misspelled, FailsWith(kBad, Reason::kBadConfig));
  EXPECT_THAT(std::string(misspelled.status().message()), HasSubstr("did you mean \"fp8_block\"?"));
  EXPECT_THAT(FindWriteScheme("awq", "fp8_block"), FailsWith(kBad, Reason::kBadConfig));
  EXPECT_THAT(std::string(FindWriteScheme("fp8").status().message()),
              HasSubstr("did you mean \"fp8_block\"?"));
}

// The suggestions are the scheme's own layouts, under the names that --layout takes.
TEST(SchemeTableTest, SaysWhichLayoutIsMeant) {
  const auto meant = [](const char* scheme, const char* layout) {
    return std::string(FindWriteScheme(scheme, layout).status().message());
  };
  EXPECT_THAT(meant("fp8_block", "fp8"), HasSubstr("did you mean \"fp8_block\"?"));
  EXPECT_THAT(meant("nvfp4", "compresed_tensors_nvfp4"),
              HasSubstr("did you mean \"compressed_tensors_nvfp4\"?"));
  EXPECT_THAT(meant("awq", "fp8"), ::testing::Not(HasSubstr("did you mean")));
}

// msModelSlim stores W4A4 like this: gate and up INT4, down INT8.
TEST(SchemeTableTest, DownOfW4A4IsInt8) {
  const WriteScheme& scheme = **FindWriteScheme("modelslim_w4a4");
  EXPECT_EQ(scheme.of(Projection::kUp).layout, QuantLayout::kModelSlimW4A4);
  EXPECT_EQ(scheme.of(Projection::kDown).layout, QuantLayout::kModelSlimW8A8);
}

TEST(SchemeTableTest, SizesThatDoNotFitNameTheNearestThatDo) {
  struct Case {
    const char* scheme;
    LayerSizes sizes;
    Projection projection;
    const char* fits;
  };
  const Case cases[] = {
      {"awq", {.hidden = 192, .intermediate = 128}, Projection::kGate, "modelslim_w4a8"},
      {"compressed_tensors_int4",
       {.hidden = 48, .intermediate = 64},
       Projection::kUp,
       "modelslim_w4a8"},
      {"w4afp8", {.hidden = 256, .intermediate = 96}, Projection::kDown, "modelopt_nvfp4"},
      {"modelopt_nvfp4", {.hidden = 40, .intermediate = 25}, Projection::kGate, "modelslim_w4a4"},
      {"modelslim_w4a8", {.hidden = 41, .intermediate = 25}, Projection::kGate, "modelslim_w4a4"},
  };
  for (const Case& one : cases) {
    const absl::Status status =
        CheckSizes(**FindWriteScheme(one.scheme), one.projection, one.sizes, "m.gate_proj");
    EXPECT_THAT(status, FailsWith(kBad, Reason::kBadConfig)) << one.scheme;
    auto metadata = MetadataOf(status);
    EXPECT_EQ(metadata["fits"], one.fits) << one.scheme;
    EXPECT_EQ(metadata["tensor"], "m.gate_proj.weight");
    EXPECT_THAT(std::string(status.message()), HasSubstr("m.gate_proj.weight"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.scheme));
  }
  for (const WriteScheme& row : WriteSchemes()) {
    SY_EXPECT_OK(CheckSizes(row, Projection::kDown, {.hidden = 256, .intermediate = 128}, "m"));
  }
}

}  // namespace
}  // namespace switchyard
