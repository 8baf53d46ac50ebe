#include "examples/qwen3_moe/run_report.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/error.h"

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
