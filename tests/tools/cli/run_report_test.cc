#include "tools/cli/run_report.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

EvalOutcome Outcome(std::optional<double> expected) {
  EvalOutcome outcome;
  outcome.result = {.windows = 4, .targets = 2048, .bits_per_byte = 1.09012};
  outcome.expected = expected;
  outcome.experts.how = "reference";
  return outcome;
}

TEST(RunReportTest, EvalEndsWithItsFigure) {
  for (const std::optional<double> expected : {std::optional<double>(), {1.09}, {2.0}}) {
    EXPECT_THAT(EvalTable(Outcome(expected)), EndsWith("\nbits per byte 1.0901\n"));
  }
  EXPECT_THAT(EvalTable(Outcome(1.09)), HasSubstr("\nok: expected 1.0900, within 0.3 %\n"));
  EXPECT_THAT(EvalTable(Outcome(2.0)), HasSubstr("\nFAIL: expected 2.0000, within 0.3 %\n"));
}

TEST(RunReportTest, EvalFailsOnlyWhenAnExpectationIsMissed) {
  EXPECT_TRUE(Outcome(std::nullopt).passed());
  EXPECT_TRUE(Outcome(1.0901).passed());
  EXPECT_FALSE(Outcome(1.1).passed());
}

TEST(RunReportTest, EvalJsonIsOneObject) {
  const auto with = nlohmann::json::parse(EvalJson(Outcome(1.1)));
  const auto without = nlohmann::json::parse(EvalJson(Outcome(std::nullopt)));

  EXPECT_EQ(with["verdict"], "fail");
  EXPECT_EQ(with["expected"], 1.1);
  EXPECT_EQ(with["bits_per_byte"], 1.09012);
  EXPECT_EQ(with["windows"], 4);
  EXPECT_EQ(with["targets"], 2048);
  EXPECT_EQ(without["verdict"], "pass");
  EXPECT_TRUE(without["expected"].is_null());
}

TEST(RunReportTest, EvalSaysHowRowsTraveledAndHowFarTheGoldensAre) {
  EvalOutcome outcome = Outcome(std::nullopt);
  DispatchConfig config;
  config.mode = DispatchMode::kLowLatency;
  config.wire_dtype = DispatchDtype::kFp8;
  config.scheme = QuantScheme::kFp8Block;
  config.trail = {"wire dtype fp8: rule 3b (scheme): x"};
  outcome.experts.prefill.push_back(config);
  config.layer = LayerId{1};
  outcome.experts.prefill.push_back(config);
  outcome.golden = GoldenDiff{.positions = 9,
                              .logits = 2.5e-3,
                              .layers = {{.layer = LayerId{1}, .rows = 8, .diff = 1.25e-4}}};

  WorkerReport worker;
  worker.worker = "w0";
  worker.counted.rows = 3;
  worker.counted.request_bytes = 792;
  outcome.experts.workers.push_back(worker);
  worker.worker = "w1";
  worker.counted.rows = 2;
  worker.counted.request_bytes = 528;
  worker.differences = {"rows: counted 2, predicted 3"};
  outcome.experts.workers.push_back(worker);

  const auto json = nlohmann::json::parse(EvalJson(outcome));
  const std::string table = EvalTable(outcome);

  ASSERT_EQ(json["dispatch"].size(), 1U);
  EXPECT_EQ(json["dispatch"][0]["layers"], "0-1");
  EXPECT_EQ(json["dispatch"][0]["scheme"], "fp8_block");
  EXPECT_EQ(json["dispatch"][0]["mode"], "low_latency");
  EXPECT_EQ(json["dispatch"][0]["wire_format"], "fp8");
  EXPECT_EQ(json["dispatch"][0]["edge"], "cpu -> cpu");
  EXPECT_EQ(json["dispatch"][0]["trail"][0], "wire dtype fp8: rule 3b (scheme): x");
  EXPECT_EQ(json["traffic"]["rows"], 5);
  EXPECT_EQ(json["traffic"]["request_bytes"], 1320);
  EXPECT_EQ(json["traffic"]["differences"].size(), 1U);
  EXPECT_EQ(json["traffic"]["differences"][0], "worker w1: rows: counted 2, predicted 3");
  EXPECT_TRUE(json["traffic"]["not_compared"].is_null());
  outcome.experts.not_compared = "the plan changed";
  EXPECT_EQ(nlohmann::json::parse(EvalJson(outcome))["traffic"]["not_compared"],
            "the plan changed");
  EXPECT_EQ(json["golden"]["logits_diff"], 2.5e-3);
  EXPECT_EQ(json["golden"]["layers"][0]["layer"], 1);
  EXPECT_EQ(json["golden"]["layers"][0]["diff"], 1.25e-4);
  EXPECT_TRUE(nlohmann::json::parse(EvalJson(Outcome(1.1)))["golden"].is_null());
  EXPECT_THAT(table, HasSubstr("layers 0-1: experts fp8_block, low_latency, rows as fp8\n"));
  EXPECT_THAT(table, HasSubstr("golden logits: calc_diff 2.50e-03 of 9 positions\n"));
  EXPECT_THAT(table, HasSubstr("golden layer 1: calc_diff 1.25e-04 of 8 rows\n"));
}

TEST(RunReportTest, APlanAloneHasNoFigure) {
  EvalOutcome outcome = Outcome(std::nullopt);
  outcome.result = {};

  EXPECT_TRUE(nlohmann::json::parse(EvalJson(outcome))["bits_per_byte"].is_null());
  EXPECT_THAT(EvalTable(outcome), ::testing::Not(HasSubstr("bits per byte")));
}

TEST(RunReportTest, FeedingSaysHowMuch) {
  EXPECT_EQ(FeedTable(1100, 3, {.how = "four workers", .workers = {}}),
            "fed       1100 bytes in 3 windows\nexperts: four workers\n");
}

TEST(RunReportTest, GenerateShowsBothPhases) {
  GenerateReport report;
  report.prompt_tokens = 10;
  report.prefill = std::chrono::milliseconds(20);
  report.decode_steps = 100;
  report.decode = std::chrono::milliseconds(400);

  const std::string table = GenerateTable(report, {.how = "four workers", .workers = {}});

  EXPECT_THAT(table, HasSubstr("prefill     10 tokens in     20.0 ms     500.0 tokens/s\n"));
  EXPECT_THAT(table, HasSubstr("decode     100 tokens in    400.0 ms     250.0 tokens/s\n"));
  EXPECT_THAT(table, EndsWith("experts: four workers\n"));
}

TEST(RunReportTest, ErrorsCarryCodeAndReason) {
  const absl::Status status = MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                                        "tensor \xff is odd", {{"tensor", "x"}});

  EXPECT_EQ(ErrorLine(status), "tensor \xff is odd (INVALID_ARGUMENT, BAD_SHAPE)");
  const auto json = nlohmann::json::parse(ErrorJson(status));
  EXPECT_EQ(json["verdict"], "could not check");
  EXPECT_EQ(json["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(json["error"]["reason"], "BAD_SHAPE");
  EXPECT_EQ(json["error"]["metadata"]["tensor"], "x");
}

}  // namespace
}  // namespace switchyard::qwen3_moe
