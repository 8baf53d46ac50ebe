#include "tests/requirements/requirements.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard::requirements {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr char kJunit[] = R"xml(<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)" tests="4" failures="1" disabled="0" skipped="2">
  <testcase name="PlanTest.Passes" classname="PlanTest.Passes" time="0.01" status="run">
    <properties/>
    <system-out>[  SKIPPED ] is said by &lt;skipped/&gt; elsewhere</system-out>
  </testcase>
  <testcase name="PlanTest.Fails/&quot;x&quot;" classname="a" time="0.01" status="fail">
    <failure message=""/>
  </testcase>
  <testcase name="PlanTest.Skips" classname="a" time="0.01" status="notrun">
    <skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
  </testcase>
  <testcase name="PlanTest.Absent" classname="a" time="0" status="notrun">
    <failure message="Unable to find executable"/>
  </testcase>
</testsuite>
)xml";

const std::vector<std::string> kWanted{"R9", "R45", "R48", "R50", "R51", "R58", "R59"};

// A row may hold a bar in its text; heads and rows of other tables are no requirements.
TEST(RequirementsTest, WantsWhatThePageDoesNotLeaveOpen) {
  EXPECT_THAT(WantedOf("| number | requirement | state |\n"
                       "|---|---|---|\n"
                       "| R48 | One row. | served |\n"
                       "| R65 | A cached one. | open: worker/collective |\n"
                       "| R9 | `a | b` | reference |\n"
                       "| R0 | Not a number. | served |\n"
                       "R7 | x | served\n"),
              ElementsAre("R48", "R9"));
}

TEST(RequirementsTest, ReadsWhatCtestWrites) {
  const auto run = ParseJunit(kJunit);

  ASSERT_TRUE(run.ok());
  EXPECT_THAT(*run, ElementsAre(Pair("PlanTest.Absent", Outcome::kNotRun),
                                Pair("PlanTest.Fails/\"x\"", Outcome::kFailed),
                                Pair("PlanTest.Passes", Outcome::kPassed),
                                Pair("PlanTest.Skips", Outcome::kSkipped)));
  EXPECT_FALSE(ParseJunit("").ok());
}

TEST(RequirementsTest, ReportsTestsThatAreAbsentSkippedOrFailed) {
  const auto rows = ParseRequirements(
      "# comment\n"
      "R48\tserved\tPlanTest.Passes\n"
      "R50\tserved\tPlanTest.Passes, PlanTest.Skips\n"
      "R51\tserved\tPlanTest.Gone\n"
      "R58\tserved\tPlanTest.Absent,*Test.Fails*\n"
      "R59\tserved\tNothing*\n");
  ASSERT_TRUE(rows.ok()) << rows.status();

  const Report report = Check(*rows, kWanted, *ParseJunit(kJunit));

  EXPECT_THAT(
      report.problems,
      ElementsAre("R50: PlanTest.Skips was skipped", HasSubstr("R51: no test PlanTest.Gone"),
                  "R58: PlanTest.Absent did not run", "R58: PlanTest.Fails/\"x\" failed",
                  HasSubstr("R59: no test Nothing*")));
}

TEST(RequirementsTest, NamesWhatIsNotListed) {
  const auto rows = ParseRequirements("R48\tserved\tPlanTest.Passes\n");
  ASSERT_TRUE(rows.ok());

  const Report report = Check(*rows, kWanted, *ParseJunit(kJunit));

  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.missing, ElementsAre("R9", "R45", "R50", "R51", "R58", "R59"));
}

TEST(RequirementsTest, NamesWhatIsListedAndNotWanted) {
  const auto rows = ParseRequirements("R65\tserved\tPlanTest.Passes\n");
  ASSERT_TRUE(rows.ok());

  EXPECT_THAT(Check(*rows, kWanted, *ParseJunit(kJunit)).problems,
              ElementsAre(HasSubstr("R65: not a requirement")));
}

TEST(RequirementsTest, ReadsWhoUsesTheCode) {
  const auto rows = ParseRequirements(
      "R48\tserved\tA.B\n"
      "R45\tlibrary: worker/collective, worker/device/cuda\tA.B, C.D\n"
      "R9\treference\tA.B\n");
  ASSERT_TRUE(rows.ok()) << rows.status();

  EXPECT_EQ((*rows)[0].use, Use::kServed);
  EXPECT_THAT((*rows)[0].callers, IsEmpty());
  EXPECT_EQ((*rows)[1].use, Use::kLibrary);
  EXPECT_THAT((*rows)[1].callers, ElementsAre("worker/collective", "worker/device/cuda"));
  EXPECT_THAT((*rows)[1].tests, ElementsAre("A.B", "C.D"));
  EXPECT_EQ((*rows)[2].use, Use::kReference);
  EXPECT_THAT((*rows)[2].callers, IsEmpty());
}

TEST(RequirementsTest, RefusesAUseThatNamesNoCaller) {
  for (const char* use :
       {"", "library", "library:", "library: ,", "serve", "served: x", "reference: x"}) {
    EXPECT_THAT(ParseRequirements(absl::StrCat("R48\t", use, "\tA.B")).status().message(),
                HasSubstr("line 1: R48: use is"))
        << use;
  }
}

TEST(RequirementsTest, RefusesLinesThatSayNothing) {
  EXPECT_THAT(ParseRequirements("R48 PlanTest.Passes").status().message(), HasSubstr("line 1"));
  EXPECT_THAT(ParseRequirements("R48\tserved\t").status().message(), HasSubstr("names no test"));
  EXPECT_THAT(ParseRequirements("\nR0\tserved\tA.B").status().message(),
              HasSubstr("line 2: R0 is not the number of a requirement"));
  EXPECT_THAT(ParseRequirements("R48\tserved\tA.B\nR48\tserved\tC.D").status().message(),
              HasSubstr("two lines"));
}

}  // namespace
}  // namespace switchyard::requirements
