// docs/OPERATIONS.md against the checks of 'syctl doctor': its table has each of them, and the
// pages to which they point have the headings that they name.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ctl/doctor/check.h"
#include "tests/docs/pages.h"

namespace switchyard {
namespace {

using ::testing::Contains;

// The anchor that a heading gets: "## What to do" -> "what-to-do". Empty for any other line.
std::string AnchorOf(const std::string& line) {
  const std::size_t begin = line.find_first_not_of('#');
  if (begin == 0 || begin == std::string::npos || line[begin] != ' ') return "";
  std::string anchor;
  for (const char each : line.substr(begin + 1)) {
    const auto byte = static_cast<unsigned char>(each);
    if (absl::ascii_isalnum(byte) || each == '-' || each == '_') {
      anchor += absl::ascii_tolower(byte);
    } else if (each == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

TEST(DoctorPageTest, HasEveryCheckInOrder) {
  std::vector<std::string> told;
  for (const auto& row :
       docs::TableBelow("docs/OPERATIONS.md", {"check", "fails when", "warns when"})) {
    told.push_back(row.front());
  }
  std::vector<std::string> wanted;
  for (const ctl::CheckPage& each : ctl::kCheckPages) wanted.emplace_back(each.check);
  EXPECT_EQ(told, wanted);
}

TEST(DoctorPageTest, ChecksPointToHeadingsThatAreThere) {
  for (const ctl::CheckPage& each : ctl::kCheckPages) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(each.page, absl::MaxSplits('#', 1));
    std::vector<std::string> anchors;
    for (const std::string& line : docs::LinesOf(parts.first)) {
      if (std::string anchor = AnchorOf(line); !anchor.empty())
        anchors.push_back(std::move(anchor));
    }
    EXPECT_THAT(anchors, Contains(parts.second)) << each.check << ": " << each.page;
  }
}

}  // namespace
}  // namespace switchyard
