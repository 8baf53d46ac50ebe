// A large header is read in memory bounded by its size, whatever it is made of. Headers that are
// refused on the way have the limit's 100,000,000 bytes, those that are taken a tenth of that.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "model/safetensors/safetensors_header.h"
#include "tests/testing/child_process.h"

namespace switchyard {
namespace {

constexpr std::size_t kLimitBytes = 100'000'000;
constexpr std::size_t kTenthBytes = kLimitBytes / 10;

// `unit` again and again: at least `bytes` bytes, less than one unit more.
std::string Repeat(absl::string_view unit, std::size_t bytes) {
  std::string text(unit);
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) {
    const std::size_t missing = (bytes - text.size() + unit.size() - 1) / unit.size() * unit.size();
    text.append(text, 0, std::min(text.size(), missing));
  }
  return text;
}

// Empty tensors, each with its own name and this shape, up to kTenthBytes.
std::string EmptyTensors(absl::string_view shape) {
  std::string json = "{";
  for (std::size_t i = 0; json.size() < kTenthBytes; ++i) {
    absl::StrAppend(&json, i == 0 ? "\"" : ",\"", absl::Hex(i), R"(":{"dtype":"I8","shape":)",
                    shape, R"(,"data_offsets":[0,0]})");
  }
  return json + "}";
}

// "<peak of parsing, in headers> <kind of error, if any>". What making the header took at its peak
// counts too: the figure errs to the safe side.
std::string ParseAndMeasure(const std::string& json) {
  const std::size_t before = testing::ResidentBytes();
  const auto header = ParseSafetensorsHeader({.json = json, .data_bytes = 0, .file = "f"});
  const double growth =
      static_cast<double>(testing::PeakBytes() - before) / static_cast<double>(json.size());
  const auto metadata = MetadataOf(header.status());
  return absl::StrCat(growth, " ", metadata.contains("kind") ? metadata.at("kind") : "");
}

struct Outcome {
  double growth = 1e9;  // peak memory of parsing, in headers
  std::string kind;     // empty when the header was taken
};

// Makes the header and parses it in a child of its own, so that the peak is that of this parse.
template <typename Make>
Outcome ParseInChild(Make make) {
  const std::string text = testing::InChild([&make] { return ParseAndMeasure(make()); });
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return {};
  return {.growth = std::stod(text.substr(0, space)), .kind = text.substr(space + 1)};
}

// Sanitizers keep memory of their own, so there only the outcome is checked.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kGrowthMax = 1e6;
#else
constexpr double kGrowthMax = 6;
#endif

void ExpectBounded(const Outcome& outcome, absl::string_view kind) {
  GTEST_LOG_(INFO) << "peak memory of parsing: " << outcome.growth << " headers";
  EXPECT_EQ(outcome.kind, kind);
  EXPECT_LT(outcome.growth, kGrowthMax);
}

TEST(SafetensorsLimitsTest, ManySmallTensorsStayWithinTheBound) {
  ExpectBounded(ParseInChild([] { return EmptyTensors("[0]"); }), "");
}

TEST(SafetensorsLimitsTest, TensorsOfManyDimsStayWithinTheBound) {
  const std::string shape = absl::StrCat("[0", Repeat(",0", 126), "]");
  ExpectBounded(ParseInChild([&shape] { return EmptyTensors(shape); }), "");
}

TEST(SafetensorsLimitsTest, OneLongNameStaysWithinTheBound) {
  ExpectBounded(ParseInChild([] {
                  return absl::StrCat("{\"", Repeat("x", kTenthBytes),
                                      R"(":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})");
                }),
                "");
}

TEST(SafetensorsLimitsTest, SpacesStayWithinTheBound) {
  ExpectBounded(ParseInChild([] { return absl::StrCat("{}", Repeat(" ", kTenthBytes)); }), "");
}

TEST(SafetensorsLimitsTest, OneLongShapeStopsAtTheLimitOfDims) {
  ExpectBounded(ParseInChild([] {
                  return absl::StrCat(R"({"t":{"dtype":"I8","data_offsets":[0,0],"shape":[0)",
                                      Repeat(",0", kLimitBytes), "]}}");
                }),
                "TOO_MANY_DIMS");
}

TEST(SafetensorsLimitsTest, EndlessNestingStopsAtTheLimitOfDepth) {
  ExpectBounded(
      ParseInChild([] { return absl::StrCat(R"({"t":{"x":)", Repeat("[", kLimitBytes)); }),
      "HEADER_TOO_DEEP");
}

TEST(SafetensorsLimitsTest, ManyMetadataEntriesStopAtTheirLimit) {
  ExpectBounded(ParseInChild([] {
                  return absl::StrCat(R"({"__metadata__":{"a":"")",
                                      Repeat(R"(,"a":"")", kLimitBytes), "}}");
                }),
                "TOO_MANY_METADATA_ENTRIES");
}

}  // namespace
}  // namespace switchyard
