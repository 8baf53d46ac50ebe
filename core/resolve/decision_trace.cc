#include "core/resolve/decision_trace.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/resolve/mode_resolver.h"

namespace switchyard {
namespace {

constexpr std::array<const char*, 5> kAdjustmentNames{"unquantized_layer", "nvfp4_normal",
                                                      "hardware", "normal_ranks", "capability"};
constexpr std::array<const char*, 10> kWarningNames{"deprecated_bf16_flag",
                                                    "deprecated_npu_int8_flag",
                                                    "deprecated_bf16_key",
                                                    "unquantized_keeps_bf16",
                                                    "nvfp4_normal_sends_bf16",
                                                    "fp8_to_int8",
                                                    "int8_to_fp8",
                                                    "normal_ranks_send_bf16",
                                                    "w4a4_is_slow",
                                                    "deprecated_option"};

std::string SchemeText(const TraceSubject& subject) {
  if (!subject.scheme) return "scheme unknown";
  const QuantSchemeInfo& info = QuantSchemeInfoOf(*subject.scheme);
  return absl::StrFormat("scheme %s (%s)", info.name, info.description);
}

// Everything that the decision depends on, so that a pasted page can be understood without the
// deployment.
std::string Head(const TraceSubject& subject) {
  std::string layer = absl::StrCat("layer ", subject.layer.value);
  if (subject.role == LayerRole::kDraft) layer += " (draft)";
  if (subject.excluded) layer += " (left out of the quantization)";
  return absl::StrFormat(
      "deployment %s, model %s, %s, phase %s, %s -> %s (%s)\nexperts: %s, runner %s\n",
      subject.deployment, subject.model, layer, PhaseName(subject.phase),
      DeviceKindName(subject.edge.source), DeviceKindName(subject.edge.worker),
      subject.worker_profiles, SchemeText(subject), RunnerBackendName(subject.runner));
}

// Indexed by ScaleKind.
constexpr std::array<const char*, 4> kScaleTexts{"no scale", "one FP32", "one exponent byte",
                                                 "one E4M3"};

std::string ScalesText(const DispatchOutcome& outcome) {
  if (outcome.wire.scales == 0) return "";
  const WireFormat& format = outcome.format;
  const std::string each =
      format.group == kGroupIsRow ? "the row" : absl::StrCat("each ", format.group, " values");
  return absl::StrFormat(": %d of values, %d of scales (%s for %s)", outcome.wire.data,
                         outcome.wire.scales, kScaleTexts[static_cast<std::size_t>(format.scale)],
                         each);
}

std::string OutcomeText(const DispatchOutcome& outcome, DispatchDtype decided) {
  const std::string instead =
      decided == outcome.dtype() ? "" : absl::StrCat(" and not as ", DispatchDtypeName(decided));
  return absl::StrFormat(
      "Rows travel as %s%s, %d bytes each%s.\nResults come back as %s, %d bytes each.\n"
      "Buffers of a step: %d bytes for rows, %d for results.\nFlags: use_fp8=%d use_nvfp4=%d\n",
      DispatchDtypeName(outcome.dtype()), instead, outcome.wire.total(), ScalesText(outcome),
      DispatchDtypeName(outcome.combine_dtype), outcome.combine_row_bytes, outcome.staging.dispatch,
      outcome.staging.combine, outcome.use_fp8 ? 1 : 0, outcome.use_nvfp4 ? 1 : 0);
}

std::string GraphsText(DispatchMode mode) {
  if (SupportsGraphs(mode)) return "Graphs: steps can be captured and replayed.\n";
  return absl::StrCat("Graphs: unsupported; ", WhyNoGraphs(mode), ".\n");
}

std::string RefusalText(const absl::Status& refusal) {
  return absl::StrFormat("Refused, %s (%s): %s\n", absl::StatusCodeToString(refusal.code()),
                         ReasonName(ReasonOf(refusal)), refusal.message());
}

// All rules, the losers too: an operator who expected another dtype sees which rule has to change.
std::string RulesText(const OrderDecision& decision) {
  std::string out = absl::StrFormat(
      "\nRules for the dtype (order %s; the first rule with an opinion wins)\n", kDtypeOrderName);
  for (std::size_t i = 0; i < decision.rules.size(); ++i) {
    const RuleOutcome& rule = decision.rules[i];
    const char* verdict = "-";
    if (rule.candidate) verdict = i == decision.winner ? "decides" : "overruled";
    absl::StrAppendFormat(&out, "  %-3s%-24s%-7s%-11s%s\n", rule.step, RuleName(rule.rule),
                          rule.candidate ? DispatchDtypeName(*rule.candidate) : "-", verdict,
                          rule.why);
  }
  return out;
}

}  // namespace

absl::string_view AdjustmentName(AdjustmentId id) {
  return kAdjustmentNames[static_cast<std::size_t>(id)];
}

absl::string_view WarningName(WarningId id) { return kWarningNames[static_cast<std::size_t>(id)]; }

std::string ExplainText(const DecisionTrace& trace) {
  std::string out = Head(trace.subject);
  out += '\n';
  out += trace.outcome ? OutcomeText(*trace.outcome, trace.decision->dtype)
                       : RefusalText(trace.refusal);
  if (!trace.mode_why.empty()) {
    absl::StrAppend(&out, "Mode ", DispatchModeName(trace.mode), ": ", trace.mode_why, ".\n",
                    GraphsText(trace.mode));
  }
  if (trace.decision) out += RulesText(*trace.decision);
  if (!trace.adjustments.empty()) out += "\nAdjustments afterwards\n";
  for (const Adjustment& adjustment : trace.adjustments) {
    absl::StrAppendFormat(&out, "  %s -> %s  %s: %s\n", DispatchDtypeName(adjustment.from),
                          DispatchDtypeName(adjustment.to), AdjustmentName(adjustment.id),
                          adjustment.why);
  }
  if (!trace.warnings.empty()) out += "\nWarnings (each is logged once)\n";
  for (const Warning& warning : trace.warnings) {
    absl::StrAppend(&out, "  ", WarningName(warning.id), ": ", warning.text, "\n");
  }
  return out;
}

// The trail is part of the plan and of its hash, so it must not contain anything that differs
// between two equal decisions, such as times or addresses.
std::vector<std::string> TrailLines(const DecisionTrace& trace) {
  const RuleOutcome& winner = trace.decision->rules[trace.decision->winner];
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat("mode ", DispatchModeName(trace.mode), ": ", trace.mode_why));
  lines.push_back(absl::StrFormat("wire dtype %s: rule %s (%s): %s",
                                  DispatchDtypeName(*winner.candidate), winner.step,
                                  RuleName(winner.rule), winner.why));
  for (const Adjustment& adjustment : trace.adjustments) {
    lines.push_back(absl::StrFormat(
        "wire dtype %s, not %s: %s: %s", DispatchDtypeName(adjustment.to),
        DispatchDtypeName(adjustment.from), AdjustmentName(adjustment.id), adjustment.why));
  }
  const DispatchOutcome& outcome = *trace.outcome;
  lines.push_back(absl::StrFormat(
      "combine dtype %s: results travel in the dtype of the activations; a row is %d bytes out and "
      "%d back (use_fp8=%d use_nvfp4=%d)",
      DispatchDtypeName(outcome.combine_dtype), outcome.wire.total(), outcome.combine_row_bytes,
      outcome.use_fp8 ? 1 : 0, outcome.use_nvfp4 ? 1 : 0));
  return lines;
}

}  // namespace switchyard
