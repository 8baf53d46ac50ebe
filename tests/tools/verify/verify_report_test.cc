#include "tools/verify/verify_report.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

BlockResult Block(const std::string& name, bool passed) {
  BlockResult block;
  block.name = name;
  block.layer = LayerId{2};
  block.rows = 512;
  block.pooled_diff = 1.25e-6;
  block.worst_row_diff = passed ? 4.5e-6 : 3.25e-2;
  block.worst_row = 428;
  block.near_ties = 5;
  block.other_choice = 1;
  block.passed = passed;
  return block;
}

TextResult Text() {
  TextResult text;
  text.name = "p0";
  text.positions = 10;
  text.agreed = 9;
  text.greedy = GreedyResult{.prompt = {'a', '\n'},
                             .golden = {'b', 0x1b},
                             .ours = {'b', 'c'},
                             .difference = GreedyDifference{.position = 3, .logit_gap = 0.125}};
  return text;
}

VerifyReport Passing() {
  VerifyReport report;
  report.blocks = {Block("val", true)};
  report.texts = {Text()};
  report.positions = 10;
  report.agreed = 9;
  report.experts.how = "two workers over shm";
  report.experts.workers = {
      {.worker = "w1",
       .path = "mapped",
       .predicted = {.rows = 7, .request_bytes = 70, .reply_bytes = 71, .expert_hits = 8},
       .counted = {.rows = 7, .request_bytes = 70, .reply_bytes = 71, .expert_hits = 8},
       .differences = {}}};
  report.notes = {"something was left out"};
  return report;
}

VerifyReport Failing() {
  VerifyReport report = Passing();
  report.blocks.push_back(Block("bad", false));
  BlockResult refused = Block("no", false);
  refused.refused = MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                              "worker w1, layer 2: epoch 3");
  report.blocks.push_back(refused);
  BlockResult nan = Block("nan", false);
  nan.pooled_diff = std::numeric_limits<double>::quiet_NaN();
  report.blocks.push_back(nan);
  report.experts.workers[0].differences = {"rows differ"};
  report.failures = {"block bad layer 2: calc_diff", "worker w1: rows differ"};
  return report;
}

TEST(VerifyReportTest, TableShowsBlocksTextsWorkersAndVerdict) {
  const std::string table = VerifyTable(Passing());

  EXPECT_THAT(table, HasSubstr("val       2    512     1.25e-06   4.50e-06 (428)"));
  EXPECT_THAT(table, HasSubstr("5  ok\n"));
  EXPECT_THAT(table, HasSubstr("5 row(s) with router logits k and k+1 within 1e-03,\n"
                               "where either choice may match; 1 matched with the other choice\n"));
  EXPECT_THAT(table, HasSubstr("p0: top-1 agrees at 9 of 10 positions\n"));
  EXPECT_THAT(table, HasSubstr("greedy text after \"a\\n\"\n"));
  EXPECT_THAT(table, HasSubstr("  golden  \"b\\x1b\"\n  ours    \"bc\"\n"));
  EXPECT_THAT(table, HasSubstr("first difference at position 3, logit gap 0.125"));
  EXPECT_THAT(table, HasSubstr("worker w1 over mapped: rows 7 of 7, bytes sent 70 of 70, "
                               "returned 71 of 71, expert hits 8 of 8\n"));
  EXPECT_THAT(table, HasSubstr("note: something was left out\n"));
  EXPECT_THAT(table, EndsWith("verified: within bounds\n"));
  EXPECT_THAT(table, Not(HasSubstr("FAIL")));
}

TEST(VerifyReportTest, NearTiesAreShownBesideTheAgreement) {
  VerifyReport report = Passing();
  report.texts[0].ties = 1;
  report.ties = 1;

  EXPECT_THAT(VerifyTable(report),
              HasSubstr("p0: top-1 agrees at 9 of 10 positions, 1 of them with another token whose "
                        "golden logit is within 0.02\n"));
  const auto json = nlohmann::json::parse(VerifyJson(report));
  EXPECT_EQ(json["texts"][0]["near_ties"], 1);
  EXPECT_EQ(json["top1"]["near_ties"], 1);
  EXPECT_EQ(json["bounds"]["logit_tie"], 0.02F);
}

TEST(VerifyReportTest, TableOfAFailureNamesWhatFailed) {
  const std::string table = VerifyTable(Failing());

  EXPECT_THAT(table, HasSubstr("3.25e-02 (428)              5  FAIL\n"));
  EXPECT_THAT(table, HasSubstr("REFUSED\n"));
  EXPECT_THAT(table, HasSubstr("expert hits 8 of 8  FAIL\n"));
  EXPECT_THAT(table, HasSubstr("\nFAIL block bad layer 2: calc_diff\n"));
  EXPECT_THAT(table, EndsWith("NOT within bounds\n"));
}

TEST(VerifyReportTest, GreedyTextsThatAreEqualSaySo) {
  VerifyReport report = Passing();
  report.texts[0].greedy->difference.reset();
  report.texts[0].greedy->ours = {300, 4};

  const std::string table = VerifyTable(report);

  EXPECT_THAT(table, HasSubstr("\n  equal\n"));
  EXPECT_THAT(table, HasSubstr("ours    \"[300 4]\"")) << "ids that are no bytes, as numbers";
}

TEST(VerifyReportTest, JsonIsOneObjectWithEveryFigure) {
  const auto json = nlohmann::json::parse(VerifyJson(Passing()));

  EXPECT_EQ(json["verdict"], "pass");
  ASSERT_EQ(json["blocks"].size(), 1U);
  EXPECT_EQ(json["blocks"][0]["name"], "val");
  EXPECT_EQ(json["blocks"][0]["layer"], 2);
  EXPECT_EQ(json["blocks"][0]["rows"], 512);
  EXPECT_EQ(json["blocks"][0]["pooled_diff"], 1.25e-6);
  EXPECT_EQ(json["blocks"][0]["worst_row"], 428);
  EXPECT_EQ(json["blocks"][0]["near_ties"], 5);
  EXPECT_EQ(json["blocks"][0]["verdict"], "ok");
  EXPECT_EQ(json["texts"][0]["greedy"]["first_difference"]["position"], 3);
  EXPECT_EQ(json["texts"][0]["greedy"]["first_difference"]["logit_gap"], 0.125);
  EXPECT_EQ(json["top1"]["agreement"], 0.9);
  EXPECT_EQ(json["bounds"]["pooled_diff"], 1.5e-5);
  EXPECT_EQ(json["workers"][0]["counted"]["rows"], 7);
  EXPECT_EQ(json["workers"][0]["predicted"]["reply_bytes"], 71);
  EXPECT_TRUE(json["failures"].empty());
}

TEST(VerifyReportTest, JsonOfAFailureHasReasonsAndNullForNan) {
  VerifyReport report = Failing();
  report.texts.clear();
  report.positions = 0;
  report.experts.workers[0].worker = "\xff\xfe";

  const auto json = nlohmann::json::parse(VerifyJson(report));

  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(json["blocks"][1]["verdict"], "FAIL");
  EXPECT_EQ(json["blocks"][2]["verdict"], "REFUSED");
  EXPECT_EQ(json["blocks"][2]["reason"], "STALE_EPOCH");
  EXPECT_TRUE(json["blocks"][3]["pooled_diff"].is_null());
  EXPECT_TRUE(json["top1"]["agreement"].is_null());
  EXPECT_EQ(json["failures"].size(), 2U);
}

}  // namespace
}  // namespace switchyard::qwen3_moe
