// What diff compares, and what it prints.
#include "ctl/diff.h"

#include <ostream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {

void PrintTo(const Difference& one, std::ostream* out) {
  *out << one.key << ": \"" << one.from << "\" to \"" << one.to << "\"";
}

namespace {

using switchyard::testing::ScriptedCoordinator;
using switchyard::testing::SmallPlan;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

DiffSide Side(const Json& spec, std::vector<DispatchConfig> configs = {}) {
  return {spec, std::move(configs)};
}

TEST(CompareTest, EqualSidesDoNotDiffer) {
  const Json spec{{"name", "a"}, {"layers", Json::array()}, {"min_workers", 2}};

  EXPECT_THAT(Compare(Side(spec, SmallPlan().configs), Side(spec, SmallPlan().configs)), IsEmpty());
}

TEST(CompareTest, NamesEachValueWithItsPlace) {
  const Json from{{"dtype", "fp8"},
                  {"phases", {{{"phase", "decode"}, {"mode", "normal"}}, {{"phase", "mixed"}}}},
                  {"layers", {{{"layer", 3}, {"phase", "decode"}, {"dtype", "bf16"}}}},
                  {"min_workers", 2}};
  const Json to{{"dtype", "bf16"},
                {"phases", {{{"phase", "decode"}, {"mode", "low_latency"}}, {{"phase", "mixed"}}}},
                {"layers", Json::array()},
                {"min_workers", 2},
                {"kept", "5s"}};

  EXPECT_THAT(
      Compare(Side(from), Side(to)),
      ElementsAre(Difference{"dtype", "fp8", "bf16"},
                  Difference{"phases[decode].mode", "normal", "low_latency"},
                  Difference{"kept", "", "5s"}, Difference{"layers[3 decode].layer", "3", ""},
                  Difference{"layers[3 decode].phase", "decode", ""},
                  Difference{"layers[3 decode].dtype", "bf16", ""}));
}

TEST(CompareTest, ShowsHowRowsWouldTravelOtherwise) {
  std::vector<DispatchConfig> after = SmallPlan().configs;
  for (DispatchConfig& config : after) {
    if (config.phase == Phase::kDecode) config.mode = DispatchMode::kNormal;
  }

  EXPECT_THAT(
      Compare(Side({}, SmallPlan().configs), Side({}, after)),
      ElementsAre(
          Difference{"layers 0-1 4, decode, cpu -> cpu", "low_latency bf16, 512 tokens", ""},
          Difference{"layers 0-1 4, decode, cpu -> cpu", "", "normal bf16, 512 tokens"}));
  EXPECT_THAT(Compare(Side({}), Side({}, after)), IsEmpty()) << "nothing to compare with";
}

class DiffTest : public ::testing::Test {
 protected:
  SyctlResult Run(const std::string& yaml, const std::vector<std::string>& more = {}) {
    folder_.Write("local.yaml", yaml);
    std::vector<std::string> words{"diff", "-f", folder_.Join("local.yaml"), "--target",
                                   coordinator_.endpoint()};
    words.insert(words.end(), more.begin(), more.end());
    return RunSyctl(words, {.is_terminal = true, .width = 0});
  }
  // The revision that serves, as the coordinator would complete a file with name and checkpoint.
  void ServeWhatIsApplied() {
    v1::Revision& serving = *coordinator_.revisions.mutable_revisions(2);
    serving.clear_spec();
    serving.mutable_spec()->set_name("local");
    serving.mutable_spec()->set_checkpoint("/models/toy");
    serving.clear_manifest_hash();
  }

  const switchyard::testing::TempDir folder_;
  ScriptedCoordinator coordinator_;
};

constexpr char kSame[] = "name: local\ncheckpoint: /models/toy\n";

TEST_F(DiffTest, SaysNothingWhereNothingDiffers) {
  ServeWhatIsApplied();

  const SyctlResult result = Run(kSame);

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  ASSERT_EQ(coordinator_.applied().size(), 1U);
  EXPECT_TRUE(coordinator_.applied()[0].validate_only());
}

TEST_F(DiffTest, ShowsWhatDiffersFromTheRevisionThatServes) {
  ServeWhatIsApplied();

  const SyctlResult result = Run("name: local\ncheckpoint: /models/b\nmin_workers: 3\n");

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("deployment local: revision 3 serves; "),
                                HasSubstr("- checkpoint: /models/toy\n+ checkpoint: /models/b\n"),
                                HasSubstr("- min_workers: 0\n+ min_workers: 3\n"),
                                HasSubstr("  checked; a plan with 2 workers is possible\n"),
                                Not(HasSubstr("name:"))));
  const Json json =
      Json::parse(Run("name: local\ncheckpoint: /models/b\n", {"-o", "json"}).out)["diff"][0];
  EXPECT_EQ(json["deployment"], "local");
  EXPECT_EQ(json["differences"][0]["key"], "checkpoint");
  EXPECT_EQ(json["differences"][0]["to"], "/models/b");
}

TEST_F(DiffTest, WhereNothingServesTheLastOneAppliedCounts) {
  ServeWhatIsApplied();
  coordinator_.revisions.mutable_revisions(2)->set_state(v1::REVISION_STATE_PENDING);

  EXPECT_EQ(Run(kSame).exit_code, 0);
  EXPECT_THAT(Run("name: local\ncheckpoint: /models/b\n").out,
              HasSubstr("revision 3 was applied last, and none serves"));
}

TEST_F(DiffTest, ANewDeploymentDiffersInAllItHas) {
  const SyctlResult result = Run("name: fresh\ncheckpoint: /models/toy\n");

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("deployment fresh: does not exist; "),
                                HasSubstr("+ name: fresh\n"), Not(HasSubstr("\n- "))));
}

TEST_F(DiffTest, AnErrorIsNeitherOfThem) {
  EXPECT_EQ(Run("name: [\n").exit_code, 2);
  coordinator_.refuse_apply_of = "local";
  const SyctlResult refused = Run(kSame);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("checkpoint is missing"));
}

TEST_F(DiffTest, WhatWouldBeRefusedIsAnErrorToo) {
  coordinator_.problem =
      MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig, "no fp8");

  const SyctlResult refused = Run("name: local\ncheckpoint: /models/b\n");

  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.out, HasSubstr("+ checkpoint: /models/b"));
  EXPECT_THAT(refused.err, HasSubstr("no fp8"));
}

}  // namespace
}  // namespace switchyard::ctl
