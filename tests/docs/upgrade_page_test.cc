// docs/UPGRADE.md against the constants that decide who speaks to whom.

#include <map>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/docs/pages.h"

namespace switchyard {
namespace {

constexpr char kPage[] = "docs/UPGRADE.md";

// By file, the constant in it. Some are private to their sources, where they belong.
const std::map<std::string, std::string>& Constants() {
  static const std::map<std::string, std::string> constants{
      {"client/switchyard.h", R"(#define SY_ABI_VERSION (\d+)u)"},
      {"coordinator/spec/deployment_record.cc", R"(kRecordFormat = (\d+);)"},
      {"coordinator/store/sqlite_store.cc", R"(kFormat = (\d+);)"},
      {"core/plan.cc", R"(kPlanFormat = (\d+);)"},
      {"core/protocol_version.h", R"(kProtocolVersion = (\d+);)"},
      {"worker/collective/step_log.h", R"(kLayout = (\d+);)"},
      {"worker/device/cuda/exchange/exchange_shape.h", R"(kExchangeVersion = (\d+);)"},
      {"worker/device/host/exchange_heap.cc", R"(kVersion = (\d+);)"},
      {"worker/transport/frame.h", R"(kFrameVersion = (\d+);)"}};
  return constants;
}

// The number in the code; empty: the constant is not there.
std::string NumberOf(const std::string& file, const std::string& pattern) {
  for (const std::string& line : docs::LinesOf(file)) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex(pattern))) return match.str(1);
  }
  return "";
}

TEST(UpgradePageTest, NumbersAreThoseOfTheCode) {
  std::map<std::string, std::string> documented;
  const std::regex last_number(R"(.*, (\d+))");
  for (const auto& cells : docs::TableBelow(kPage, {"between", "number", "rule", "where"})) {
    ASSERT_EQ(cells.size(), 4U) << absl::StrJoin(cells, "|");
    std::smatch match;
    // UCX's number is that of a package.
    if (std::regex_match(cells[1], match, last_number)) documented[cells[3]] = match.str(1);
  }
  std::map<std::string, std::string> wanted;
  for (const auto& [file, pattern] : Constants()) wanted[file] = NumberOf(file, pattern);

  EXPECT_THAT(documented, ::testing::ContainerEq(wanted));
}

// What a newer file is refused with, in the block that shows it.
TEST(UpgradePageTest, ExampleIsOfTheFormatOfTheCode) {
  const std::string page = absl::StrJoin(docs::LinesOf(kPage), "\n");
  const std::string format = NumberOf("coordinator/store/sqlite_store.cc",
                                      Constants().at("coordinator/store/sqlite_store.cc"));

  EXPECT_THAT(page, ::testing::HasSubstr(absl::StrCat("\nformat ", format, "\n")));
}

}  // namespace
}  // namespace switchyard
