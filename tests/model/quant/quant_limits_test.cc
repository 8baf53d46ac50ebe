// Quant configs of any size are answered in memory bounded by their limits.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "model/quant/config/quant_config.h"
#include "tests/testing/child_process.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

// Sanitizers keep memory of their own, so there only the answer is checked.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kPeakMax = SIZE_MAX;
constexpr int kDescriptionRows = 20'000;  // a million take them minutes
#else
constexpr std::size_t kPeakMax = std::size_t{256} << 20U;
constexpr int kDescriptionRows = 1'000'000;
#endif

// `unit` again and again, `bytes` bytes or a little more.
std::string Repeat(absl::string_view unit, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) absl::StrAppend(&text, unit);
  return text;
}

// "<code> <key> <peak of parsing in bytes>"
std::string Answer(const QuantConfigFiles& files) {
  const std::size_t before = testing::ResidentBytes();
  const absl::Status status = ParseQuantConfig(files).status();
  const std::size_t peak = testing::PeakBytes() - before;
  return absl::StrCat(absl::StatusCodeToString(status.code()), " ", MetadataOf(status)["key"], " ",
                      peak);
}

template <typename Make>
void ExpectAnswer(Make make, const std::string& answer) {
  const std::string text = testing::InChild([&make] { return Answer(make()); });
  const std::size_t space = text.rfind(' ');
  ASSERT_NE(space, std::string::npos) << text;
  EXPECT_EQ(text.substr(0, space), answer);
  GTEST_LOG_(INFO) << "peak memory: " << std::stoull(text.substr(space + 1)) / 1'024 << " KiB";
  EXPECT_LT(std::stoull(text.substr(space + 1)), kPeakMax);
}

constexpr std::size_t kMiB = std::size_t{1} << 20U;

TEST(QuantLimitsTest, AListOfMillionsOfNamesIsRefused) {
  ExpectAnswer(
      [] {
        return QuantConfigFiles{
            .config_json = absl::StrCat(
                R"({"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
                    "modules_to_not_convert": ["a")",
                Repeat(",\"a\"", 7 * kMiB), "]}}")};
      },
      "INVALID_ARGUMENT quantization_config.modules_to_not_convert");
}

TEST(QuantLimitsTest, AConfigAboveTheLimitIsRefusedUnread) {
  ExpectAnswer([] { return QuantConfigFiles{.config_json = Repeat("[", 64 * kMiB)}; },
               "INVALID_ARGUMENT config.json");
  ExpectAnswer(
      [] {
        return QuantConfigFiles{.config_json = "{}", .hf_quant_config = Repeat("[", 64 * kMiB)};
      },
      "INVALID_ARGUMENT hf_quant_config.json");
}

// As many regular expressions as are allowed, each growing to what RE2 may spend on it.
TEST(QuantLimitsTest, LargeRegularExpressionsStayWithinTheBound) {
  ExpectAnswer(
      [] {
        std::string list;
        for (int i = 0; i < 64; ++i) {
          absl::StrAppend(&list, i == 0 ? "" : ",", "\"re:", i, "(a{1,100}|b{1,100})c{100}\"");
        }
        return QuantConfigFiles{
            .config_json = absl::StrCat(
                R"({"quantization_config": {"quant_method": "compressed-tensors",
                    "format": "pack-quantized", "ignore": [)",
                list, R"(], "config_groups": {"group_0": {"targets": ["Linear"], "weights":
                    {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}}})")};
      },
      "OK ");
}

// A million rows of the shortest names: what is kept is a small multiple of the text.
TEST(QuantLimitsTest, ADescriptionOfAMillionRowsIsTaken) {
  ExpectAnswer(
      [] {
        std::string text = "{\"x.weight\": \"FLOAT\"";
        for (int i = 0; i < kDescriptionRows; ++i) {
          absl::StrAppend(&text, ",\"", i, ".weight\":\"W8A8_DYNAMIC\"");
        }
        return QuantConfigFiles{.config_json = "{}", .quant_model_description = text + "}"};
      },
      "OK ");
}

TEST(QuantLimitsTest, ADescriptionNestedWithoutEndIsRefused) {
  ExpectAnswer(
      [] {
        return QuantConfigFiles{.config_json = "{}",
                                .quant_model_description = "{\"a\":" + Repeat("[", 64 * kMiB)};
      },
      "INVALID_ARGUMENT a");
}

}  // namespace
}  // namespace switchyard
