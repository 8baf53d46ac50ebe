#include "ctl/doctor/check.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace switchyard::ctl {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const std::vector<Check> kChecks{Good(kMemlockCheck, "8MiB"),
                                 Warning(kWorkersCheck, "1 of 2", "look"),
                                 Failure(kDnsCheck, "no such name", "correct it"),
                                 Skipped(kCertificateCheck, "none", "--tls-dir")};

TEST(CheckTest, IsALineThatSaysWhatToDoAndWhereThatIsExplained) {
  EXPECT_EQ(ChecksText(kChecks, 0),
            "CHECK        STATE  FOUND\n"
            "memlock      OK     8MiB\n"
            "workers      WARN   1 of 2. Next: look (docs/OPERATIONS.md#faults)\n"
            "dns          FAIL   no such name. Next: correct it "
            "(docs/SEVERAL_HOSTS.md#who-connects-to-whom)\n"
            "certificate  SKIP   none. Next: --tls-dir (docs/SECURITY.md#turn-on-mutual-tls)\n");
}

TEST(CheckTest, IsAnObjectForPrograms) {
  const nlohmann::ordered_json json = ChecksJson(kChecks);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["warned"], 1);
  ASSERT_THAT(json["checks"], SizeIs(4));
  EXPECT_EQ(json["checks"][2].dump(),
            "{\"check\":\"dns\",\"state\":\"FAIL\",\"found\":\"no such name\",\"next\":"
            "\"correct it\",\"page\":\"docs/SEVERAL_HOSTS.md#who-connects-to-whom\"}");
  EXPECT_EQ(json["checks"][0]["next"], "");
}

// An error of a peer may hold anything.
TEST(CheckTest, IsOneLineOfBoundedLength) {
  const Check check = Failure(kDnsCheck, "a\nb\x1b" + std::string(5000, 'x'), "c\rd");
  EXPECT_THAT(check.found, SizeIs(603));
  EXPECT_THAT(check.found, EndsWith("..."));
  EXPECT_THAT(check.found, Not(HasSubstr("\n")));
  EXPECT_THAT(check.found, Not(HasSubstr("\x1b")));
  EXPECT_EQ(check.next, "c d");
  // "é" is not cut in two.
  const std::string text = Failure(kDnsCheck, "x" + std::string(599, 'y') + "\xc3\xa9", "").found;
  EXPECT_THAT(text, EndsWith("y..."));
}

TEST(CheckTest, HasAPageForEveryName) {
  for (const CheckPage& each : kCheckPages) EXPECT_EQ(PageOf(each.check), each.page);
  EXPECT_THAT(std::string(PageOf("moon")), IsEmpty());
}

}  // namespace
}  // namespace switchyard::ctl
