#include "examples/qwen3_moe/run_report.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "core/error.h"

namespace switchyard::qwen3_moe {
namespace {

using Json = nlohmann::ordered_json;

// Never throws on bytes that are no UTF-8.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

double Milliseconds(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

bool EvalOutcome::passed() const {
  return !expected.has_value() || MeetsExpectation(result.bits_per_byte, *expected);
}

std::string EvalTable(const EvalOutcome& outcome) {
  std::string out =
      absl::StrFormat("experts: %s\nwindows %d of %d bytes, %d targets\n", outcome.experts.how,
                      outcome.result.windows, kEvalWindow, outcome.result.targets);
  if (outcome.expected.has_value()) {
    absl::StrAppendFormat(&out, "%s: expected %.4f, within %.1f %%\n",
                          outcome.passed() ? "ok" : "FAIL", *outcome.expected,
                          100 * kEvalTolerance);
  }
  absl::StrAppendFormat(&out, "bits per byte %.4f\n", outcome.result.bits_per_byte);
  return out;
}

std::string EvalJson(const EvalOutcome& outcome) {
  Json json = {{"verdict", outcome.passed() ? "pass" : "fail"},
               {"bits_per_byte", outcome.result.bits_per_byte},
               {"expected", nullptr},
               {"tolerance", kEvalTolerance},
               {"windows", outcome.result.windows},
               {"targets", outcome.result.targets},
               {"experts", outcome.experts.how}};
  if (outcome.expected.has_value()) json["expected"] = *outcome.expected;
  return Dump(json);
}

std::string GenerateTable(const GenerateReport& report, const ExpertsReport& experts) {
  return absl::StrFormat(
      "prefill  %5d tokens in %8.1f ms  %8.1f tokens/s\n"
      "decode   %5d tokens in %8.1f ms  %8.1f tokens/s\n"
      "experts: %s\n",
      report.prompt_tokens, Milliseconds(report.prefill), report.PrefillTokensPerSecond(),
      report.decode_steps, Milliseconds(report.decode), report.DecodeTokensPerSecond(),
      experts.how);
}

std::string ErrorLine(const absl::Status& status) {
  return absl::StrCat(status.message(), " (", absl::StatusCodeToString(status.code()), ", ",
                      ReasonName(ReasonOf(status)), ")");
}

std::string ErrorJson(const absl::Status& status) {
  return Dump({{"verdict", "could not check"},
               {"error",
                {{"code", absl::StatusCodeToString(status.code())},
                 {"reason", std::string(ReasonName(ReasonOf(status)))},
                 {"message", std::string(status.message())},
                 {"metadata", MetadataOf(status)}}}});
}

}  // namespace switchyard::qwen3_moe
