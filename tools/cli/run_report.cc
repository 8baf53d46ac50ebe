#include "tools/cli/run_report.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/format/wire_format.h"
#include "core/quant_scheme.h"
#include "report/plan_summary.h"

namespace switchyard::qwen3_moe {
namespace {

using Json = nlohmann::ordered_json;

// Replaces bytes that are not UTF-8; the library would throw otherwise.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// How rows of prompts traveled; identical layers share an entry.
Json DispatchJson(const ExpertsReport& experts) {
  Json rows = Json::array();
  for (const ConfigRow& row : SummarizeConfigs(experts.prefill)) {
    rows.push_back({{"layers", row.layers},
                    {"scheme", QuantSchemeInfoOf(row.config.scheme).name},
                    {"edge", EdgeText(row.config.edge)},
                    {"mode", std::string(DispatchModeName(row.config.mode))},
                    {"wire_format", std::string(WireFormatName(row.config.format()))},
                    {"trail", row.config.trail}});
  }
  return rows;
}

// The traffic that workers counted, and its differences from the prediction.
Json TrafficJson(const ExpertsReport& experts) {
  std::uint64_t rows = 0;
  std::uint64_t request_bytes = 0;
  // A list also when it is empty: programs then need no case for a missing key.
  Json differences = Json::array();
  for (const WorkerReport& worker : experts.workers) {
    rows += worker.counted.rows;
    request_bytes += worker.counted.request_bytes;
    for (const std::string& text : worker.differences) {
      differences.push_back(absl::StrCat("worker ", worker.worker, ": ", text));
    }
  }
  Json not_compared = nullptr;
  if (!experts.not_compared.empty()) not_compared = experts.not_compared;
  return {{"rows", rows},
          {"request_bytes", request_bytes},
          {"differences", differences},
          {"not_compared", not_compared}};
}

Json GoldenJson(const std::optional<GoldenDiff>& golden) {
  // No golden file was given; an empty object would mean that it had nothing to compare.
  if (!golden.has_value()) return nullptr;
  Json layers = Json::array();
  for (const LayerDiff& layer : golden->layers) {
    layers.push_back({{"layer", layer.layer.value}, {"rows", layer.rows}, {"diff", layer.diff}});
  }
  return {{"positions", golden->positions}, {"logits_diff", golden->logits}, {"layers", layers}};
}

void AppendGolden(const GoldenDiff& golden, std::string& out) {
  if (golden.positions > 0) {
    absl::StrAppendFormat(&out, "golden logits: calc_diff %.2e of %d positions\n", golden.logits,
                          golden.positions);
  }
  for (const LayerDiff& layer : golden.layers) {
    absl::StrAppendFormat(&out, "golden layer %d: calc_diff %.2e of %d rows\n", layer.layer.value,
                          layer.diff, layer.rows);
  }
}

// A short unit, because prefill of a small model takes a few milliseconds.
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
  for (const ConfigRow& row : SummarizeConfigs(outcome.experts.prefill)) {
    absl::StrAppendFormat(&out, "layers %s: experts %s, %s, rows as %s\n", row.layers,
                          QuantSchemeInfoOf(row.config.scheme).name,
                          DispatchModeName(row.config.mode), WireFormatName(row.config.format()));
  }
  if (outcome.golden.has_value()) AppendGolden(*outcome.golden, out);
  if (outcome.result.windows > 0) {
    absl::StrAppendFormat(&out, "bits per byte %.4f\n", outcome.result.bits_per_byte);
  }
  return out;
}

std::string EvalJson(const EvalOutcome& outcome) {
  Json json = {{"verdict", outcome.passed() ? "pass" : "fail"},
               {"bits_per_byte", outcome.result.bits_per_byte},
               {"expected", nullptr},
               {"tolerance", kEvalTolerance},
               {"windows", outcome.result.windows},
               {"targets", outcome.result.targets},
               {"experts", outcome.experts.how},
               {"dispatch", DispatchJson(outcome.experts)},
               {"traffic", TrafficJson(outcome.experts)},
               {"golden", GoldenJson(outcome.golden)}};
  if (outcome.expected.has_value()) json["expected"] = *outcome.expected;
  // JSON has no NaN; a run without windows has no figure.
  if (outcome.result.windows == 0) json["bits_per_byte"] = nullptr;
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

std::string FeedTable(std::size_t bytes, std::size_t windows, const ExpertsReport& experts) {
  return absl::StrFormat("fed      %5d bytes in %d windows\nexperts: %s\n", bytes, windows,
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
