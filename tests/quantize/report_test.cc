#include "quantize/report.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"

namespace switchyard::quantize {
namespace {

using ::testing::HasSubstr;

QuantizeSummary SummaryOfARun() {
  return {.scheme = *FindWriteScheme("awq"),
          .out = "new",
          .quantized_layers = {0, 1, 2, 5, 7, 8},
          .bf16_layers = {6},
          .experts = 48,
          .tensors = 300,
          .bytes_before = 2'000'000,
          .bytes_after = 500'000,
          .diff_max = {0.001, 0.002, 0.003},
          .files = {"config.json"},
          .left_out = {"README.md"},
          .warnings = {"layer 1: something."}};
}

TEST(ReportTest, SummaryIsATableForPeople) {
  EXPECT_EQ(SummaryTable(SummaryOfARun()),
            "written     new\n"
            "scheme      awq: INT4 in groups of 128 with zero points, BF16 inputs\n"
            "layers      0-2,5,7-8 quantized, 6 in BF16\n"
            "experts     48\n"
            "tensors     300\n"
            "bytes       2.0 MB -> 500.0 KB (25.0 %)\n"
            "gate_proj   largest calc_diff of an expert's weights 0.001\n"
            "up_proj     largest calc_diff of an expert's weights 0.002\n"
            "down_proj   largest calc_diff of an expert's weights 0.003\n"
            "files       1\n"
            "not copied  README.md\n"
            "! layer 1: something.\n");
}

TEST(ReportTest, SummaryIsAnObjectForPrograms) {
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(SummaryOfARun()));
  EXPECT_EQ(json.at("layers").at("bf16"), nlohmann::json({6}));
  EXPECT_EQ(json.at("calc_diff_max").at("down_proj"), 0.003);
  EXPECT_EQ(json.at("bytes_after"), 500'000);
  EXPECT_EQ(json.at("warnings").size(), 1U);
}

TEST(ReportTest, ErrorsKeepCodeReasonAndMetadata) {
  const absl::Status error = MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                                       "it is wrong", {{"key", "value"}});
  EXPECT_EQ(ErrorText(error),
            "switchyard-quantize: it is wrong\n  code    INVALID_ARGUMENT\n  reason  BAD_CONFIG\n"
            "  key     value\n");
  const nlohmann::json json = nlohmann::json::parse(ErrorJson(error)).at("error");
  EXPECT_EQ(json.at("code"), "INVALID_ARGUMENT");
  EXPECT_EQ(json.at("metadata").at("key"), "value");
}

TEST(ReportTest, ProgressHasSpeedAndTimeLeft) {
  const QuantizeProgress progress{
      .tensors = 3, .tensors_all = 9, .bytes = 2'000'000, .bytes_all = 8'000'000};
  EXPECT_EQ(ProgressLine(progress, std::chrono::seconds(2)),
            "tensors 3/9  2.0 MB of 8.0 MB  1.0 MB/s  ETA 6 s");
  EXPECT_EQ(ProgressLine({.tensors_all = 9, .bytes_all = 8}, Duration::zero()),
            "tensors 0/9  0 B of 8 B");
}

TEST(ReportTest, BytesHaveAUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(1'000), "1.0 KB");
  EXPECT_EQ(BytesText(999'960'000), "1.0 GB");
}

TEST(ReportTest, SchemesAreListed) {
  EXPECT_THAT(SchemesTable(), HasSubstr("fp8_tensor_static               fp8_tensor_static"));
  EXPECT_EQ(nlohmann::json::parse(SchemesJson()).at(4).at("calibration"), true);
}

}  // namespace
}  // namespace switchyard::quantize
