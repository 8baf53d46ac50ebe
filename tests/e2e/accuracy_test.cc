// scripts/accuracy on a window of the shipped text, and the page that it writes, against the tables
// of the schemes.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/format/wire_format.h"
#include "core/quant_scheme.h"
#include "core/resolve/dtype_option.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::ReadBytes;
using ::testing::StartsWith;
using testing::TempDir;

constexpr DispatchMode kModes[] = {DispatchMode::kNormal, DispatchMode::kLowLatency};
constexpr DtypeChoice kChoices[] = {DtypeChoice::kAuto, DtypeChoice::kBf16, DtypeChoice::kFp8,
                                    DtypeChoice::kInt8, DtypeChoice::kNvfp4};

// What the tables say of rows of `dtype` that somebody asks for: their dtype; nullopt: refused.
std::optional<DispatchDtype> WireOf(QuantScheme scheme, DispatchMode mode, DispatchDtype dtype) {
  if (scheme == QuantScheme::kNone) return DispatchDtype::kBf16;  // with a warning
  if (scheme == QuantScheme::kNvfp4 && dtype == DispatchDtype::kNvfp4 &&
      mode == DispatchMode::kNormal) {
    dtype = DispatchDtype::kBf16;
  }
  const SchemeUse use{
      .worker = DeviceKind::kCpu, .mode = mode, .global_scale = scheme == QuantScheme::kNvfp4};
  if (!Accepts(scheme, dtype, use, DtypeOrigin::kExplicit)) return std::nullopt;
  return dtype;
}

// One row of the page, or one cell of a run.
struct Row {
  std::string scheme;
  std::string mode;
  std::string asked;
  std::string wire;  // "refused" where it is
  std::string why;   // rule, or refusal
  std::string row_bytes{};
  std::string bits{};
  std::string added{};  // against BF16 rows, "+0.00 %"; "" where those are refused
};

void ExpectAsTheTablesSay(const Row& row) {
  SCOPED_TRACE(absl::StrCat(row.scheme, " ", row.mode, " ", row.asked));
  const auto scheme = QuantSchemeFromName(row.scheme);
  DispatchMode mode = DispatchMode::kNormal;
  ASSERT_TRUE(scheme.has_value());
  ASSERT_TRUE(DispatchModeFromName(row.mode, &mode));
  if (row.asked == "auto") {
    EXPECT_NE(row.wire, "refused");
    return;
  }
  const auto wire = WireOf(*scheme, mode, *DispatchDtypeFromName(row.asked));
  if (wire.has_value()) {
    EXPECT_THAT(row.wire, StartsWith(std::string(DispatchDtypeName(*wire))));
    EXPECT_THAT(row.why, HasSubstr("0 explicit"));
  } else {
    EXPECT_EQ(row.wire, "refused");
    EXPECT_THAT(row.why,
                HasSubstr(absl::StrCat("experts of scheme ", row.scheme, " do not take ")));
    EXPECT_THAT(row.why, HasSubstr(absl::StrCat(" rows in mode ", row.mode, " on cpu")));
  }
}

std::vector<Row> RowsOfThePage() {
  std::vector<Row> rows;
  const std::string page = ReadBytes(SWITCHYARD_SOURCE_DIR "/docs/ACCURACY.md");
  const std::vector<std::string> parts = absl::StrSplit(page, "<!-- cells -->");
  EXPECT_EQ(parts.size(), 2U);
  for (const absl::string_view line : absl::StrSplit(parts.back(), '\n')) {
    std::vector<std::string> words = absl::StrSplit(line, " | ");
    if (words.size() < 6 || words[0] == "| checkpoint" || words[0] == "| ---") continue;
    words.resize(10);
    rows.push_back(
        {words[1], words[2], words[3], words[4], words[5], words[6], words[7], words[8]});
  }
  return rows;
}

TEST(AccuracyPageTest, HasARowForEveryCellOfTheTables) {
  std::map<std::tuple<std::string, std::string, std::string>, int> seen;
  for (const Row& row : RowsOfThePage()) {
    ++seen[{row.scheme, row.mode, row.asked}];
    if (row.wire != "not measured") ExpectAsTheTablesSay(row);
  }
  for (const QuantSchemeInfo& scheme : AllQuantSchemes()) {
    for (const DispatchMode mode : kModes) {
      for (const DtypeChoice choice : kChoices) {
        const std::string asked(DtypeChoiceName(choice));
        EXPECT_GE((seen[{scheme.name, std::string(DispatchModeName(mode)), asked}]), 1)
            << scheme.name << " " << DispatchModeName(mode) << " " << asked
            << ": run make accuracy with --markdown";
      }
    }
  }
}

// R127: what a row costs is what its format says, and no format costs more than its bound.
TEST(AccuracyPageTest, FiguresAreThoseOfTheFormatsAndWithinTheBounds) {
  int measured = 0;
  for (const Row& row : RowsOfThePage()) {
    const auto format = WireFormatFromName(row.wire);
    if (!format.has_value()) continue;  // refused, or not measured
    SCOPED_TRACE(absl::StrCat(row.scheme, " ", row.mode, " ", row.asked));
    ++measured;
    EXPECT_EQ(row.row_bytes, absl::StrCat(RowBytesOf(*format, 256).total()));
    if (row.added.find_first_not_of(' ') == std::string::npos) continue;
    double percent = 100;
    EXPECT_TRUE(absl::SimpleAtod(row.added.substr(0, row.added.find(' ')), &percent)) << row.added;
    EXPECT_LE(percent, format->dtype == DispatchDtype::kNvfp4 ? 2.0 : 0.5);
  }
  EXPECT_GT(measured, 60);
}

struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

Ran RunAccuracy(const TempDir& work, const std::string& arguments) {
  const std::string command =
      absl::StrCat("cd " SWITCHYARD_SOURCE_DIR " && BUILD=" SWITCHYARD_BIN_DIR "/.. ACCURACY_OUT=",
                   work.Join("kept"), " scripts/accuracy ", arguments, " > ", work.Join("out"),
                   " 2> ", work.Join("err"));
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadBytes(work.Join("out")),
          ReadBytes(work.Join("err"))};
}

// R127. Acceptance on one window: rows as the experts' own format cost no more than the bounds,
// they do travel so, and what the tables refuse is refused in their words.
TEST(AccuracyScriptTest, QuantizedRowsKeepTheBoundsAndIllegalOnesAreRefused) {
  const TempDir work;
  const Ran ran = RunAccuracy(
      work,
      "--schemes fp8_block,compressed_tensors_int8,modelopt_nvfp4 --windows 1 --whole 1 "
      "--calibration models/sqlite-moe-7m/README.md --format json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const nlohmann::json result = nlohmann::json::parse(ran.out);

  ASSERT_EQ(result["cells"].size(), 3U * 2 * 5);
  for (const nlohmann::json& cell : result["cells"]) {
    const bool refused = cell.contains("refused");
    ExpectAsTheTablesSay({cell["scheme"], cell["mode"], cell["asked"],
                          refused ? "refused" : cell["wire"].get<std::string>(),
                          refused ? cell["refused"] : cell["rule"]});
    if (refused) continue;
    const std::map<std::string, double> bytes{
        {"bf16", 512}, {"fp8", 256 + 8}, {"int8", 256 + 4}, {"nvfp4", 128 + 16}};
    EXPECT_EQ(cell["row_bytes"].get<double>(), bytes.at(cell["wire"])) << cell;
  }
  ASSERT_EQ(result["bounds"].size(), 3U);
  for (const nlohmann::json& bound : result["bounds"]) {
    EXPECT_EQ(bound["passed"], bound["added"].get<double>() <= bound["most"].get<double>());
    EXPECT_LE(bound["added"].get<double>(), bound["wire"] == "nvfp4" ? 0.02 : 0.005) << bound;
    EXPECT_EQ(bound["layer_diffs"].size(), 4U);
  }
}

// The page's rows of GPU workers, which an earlier run of the script wrote.
TEST(AccuracyPageTest, GpuWorkersAreAsNearToCpuWorkersAsEvalAsks) {
  const std::string page = ReadBytes(SWITCHYARD_SOURCE_DIR "/docs/ACCURACY.md");
  const std::vector<std::string> begin = absl::StrSplit(page, "<!-- cuda -->");
  ASSERT_EQ(begin.size(), 2U);
  const std::vector<std::string> end = absl::StrSplit(begin[1], "<!-- end of cuda -->");
  ASSERT_EQ(end.size(), 2U);
  for (const absl::string_view line : absl::StrSplit(end[0], '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, " | ");
    if (words.size() < 9 || words[4].find_first_of("0123456789") == std::string::npos) continue;
    double apart = 100;
    EXPECT_TRUE(absl::SimpleAtod(words[6].substr(0, words[6].find(' ')), &apart)) << line;
    EXPECT_LE(std::abs(apart), 0.3) << line;
  }
}

// A tree with the script, the page and a run on a GPU that found `bits_per_byte` for FP8 rows.
Ran WriteGpuRun(const TempDir& tree, double bits_per_byte) {
  std::filesystem::create_directories(tree.Join("scripts"));
  std::filesystem::create_directories(tree.Join("docs"));
  std::filesystem::copy(SWITCHYARD_SOURCE_DIR "/scripts/accuracy", tree.Join("scripts/accuracy"),
                        std::filesystem::copy_options::overwrite_existing);
  tree.Write("docs/ACCURACY.md", ReadBytes(SWITCHYARD_SOURCE_DIR "/docs/ACCURACY.md"));
  nlohmann::json cell = {{"checkpoint", "fp8_block"},
                         {"scheme", "fp8_block"},
                         {"mode", "normal"},
                         {"asked", "auto"},
                         {"wire", "fp8"},
                         {"rule", "3b scheme"},
                         {"bits_per_byte", bits_per_byte},
                         {"logits_diff", 2.5e-5}};
  nlohmann::json refused = {{"checkpoint", "none"},
                            {"scheme", "none"},
                            {"mode", "normal"},
                            {"asked", "int8"},
                            {"refused", "no"}};
  const nlohmann::json run = {{"device", "cuda:0"},
                              {"date", "2026-01-02"},
                              {"gpu", "A GPU, 1.2"},
                              {"cells", {refused, cell}},
                              {"bounds", nlohmann::json::array()}};
  tree.Write("run.json", run.dump());
  const std::string command =
      absl::StrCat(tree.Join("scripts/accuracy"), " --format json --markdown --from ",
                   tree.Join("run.json"), " > ", tree.Join("out"), " 2> ", tree.Join("err"));
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadBytes(tree.Join("out")),
          ReadBytes(tree.Join("err"))};
}

TEST(AccuracyScriptTest, WritesARunOnAGpuBesideTheFiguresOfCpuWorkers) {
  std::string cpu_bits;
  for (const Row& row : RowsOfThePage()) {
    if (row.scheme == "fp8_block" && row.mode == "normal" && row.wire == "fp8") cpu_bits = row.bits;
  }
  double bits = 0;
  ASSERT_TRUE(absl::SimpleAtod(cpu_bits, &bits)) << cpu_bits;
  const TempDir tree;

  const Ran near = WriteGpuRun(tree, bits * 1.001);

  EXPECT_EQ(near.code, 0) << near.err;
  const std::string page = ReadBytes(tree.Join("docs/ACCURACY.md"));
  EXPECT_THAT(page, HasSubstr("Measured on 2026-01-02 on one A GPU with driver 1.2."));
  EXPECT_THAT(page,
              HasSubstr(absl::StrCat("| fp8_block | normal | auto | fp8 | ", cpu_bits, " | ")));
  EXPECT_THAT(page, HasSubstr("| +0.10 % | "));
  EXPECT_THAT(page, HasSubstr("| none | normal | int8 | refused |"));
  const Ran far = WriteGpuRun(tree, bits * 1.004);
  EXPECT_EQ(far.code, 2);
  EXPECT_THAT(far.err, HasSubstr("fp8_block normal fp8: bits per byte are +0.40 %"));
}

TEST(AccuracyScriptTest, SaysWhatItCannotMeasure) {
  const TempDir work;
  const Ran unknown = RunAccuracy(work, "--schemes fp8_blok");
  const Ran no_text = RunAccuracy(work, "--schemes none --text /no/such/text");

  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no scheme fp8_blok"));
  EXPECT_EQ(no_text.code, 2);
  EXPECT_THAT(no_text.err, HasSubstr("/no/such/text"));
}

}  // namespace
}  // namespace switchyard
