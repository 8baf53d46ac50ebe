#include "services/convert/trace.h"

#include <string>

#include "absl/strings/string_view.h"

#include "core/format/wire_format.h"
#include "services/convert/enums.h"
#include "services/grpc/grpc_status.h"

namespace switchyard {
namespace {

std::string Text(absl::string_view view) { return std::string(view); }

std::uint64_t Bytes(std::int64_t value) { return static_cast<std::uint64_t>(value); }

void EncodeRules(const OrderDecision& in, v1::DispatchTrace* out) {
  // Rules after the winner are included, because they show what would change if it were removed.
  for (std::size_t i = 0; i < in.rules.size(); ++i) {
    const RuleOutcome& rule = in.rules[i];
    v1::DtypeRule* item = out->add_rules();
    item->set_step(rule.step);
    item->set_rule(Text(RuleName(rule.rule)));
    if (rule.candidate) item->set_candidate(EnumToProto(*rule.candidate));
    item->set_decides(i == in.winner);
    item->set_why(rule.why);
  }
}

void Encode(const DispatchOutcome& in, v1::DispatchOutcome* out) {
  out->set_wire_format(Text(WireFormatName(in.format)));
  out->set_combine_dtype(EnumToProto(in.combine_dtype));
  out->set_use_fp8(in.use_fp8);
  out->set_use_nvfp4(in.use_nvfp4);
  out->set_row_value_bytes(Bytes(in.wire.data));
  out->set_row_scale_bytes(Bytes(in.wire.scales));
  out->set_result_row_bytes(Bytes(in.combine_row_bytes));
  out->set_dispatch_buffer_bytes(Bytes(in.staging.dispatch));
  out->set_combine_buffer_bytes(Bytes(in.staging.combine));
  out->set_supports_graphs(in.graphs);
}

void Encode(const TraceSubject& in, v1::DispatchTrace* out) {
  out->set_layer(static_cast<std::uint32_t>(in.layer.value));
  out->set_phase(EnumToProto(in.phase));
  out->mutable_edge()->set_source(EnumToProto(in.edge.source));
  out->mutable_edge()->set_worker(EnumToProto(in.edge.worker));
  out->set_worker_profiles(in.worker_profiles);
  out->set_draft(in.role == LayerRole::kDraft);
  out->set_excluded(in.excluded);
  if (in.scheme) out->set_scheme(EnumToProto(*in.scheme));
  out->set_runner(Text(RunnerBackendName(in.runner)));
}

}  // namespace

void Encode(const Warning& in, v1::DispatchWarning* out) {
  out->set_id(Text(WarningName(in.id)));
  out->set_text(in.text);
}

void Encode(const DecisionTrace& in, v1::DispatchTrace* out) {
  Encode(in.subject, out);
  out->set_rule_order(Text(kDtypeOrderName));
  out->set_mode(EnumToProto(in.mode));
  out->set_mode_why(in.mode_why);
  if (in.decision) EncodeRules(*in.decision, out);
  for (const Adjustment& adjustment : in.adjustments) {
    v1::DtypeAdjustment* item = out->add_adjustments();
    item->set_id(Text(AdjustmentName(adjustment.id)));
    item->set_from(EnumToProto(adjustment.from));
    item->set_to(EnumToProto(adjustment.to));
    item->set_why(adjustment.why);
  }
  for (const Warning& warning : in.warnings) Encode(warning, out->add_warnings());
  if (in.outcome) Encode(*in.outcome, out->mutable_outcome());
  if (!in.refusal.ok()) *out->mutable_refusal() = StatusToProto(in.refusal);
  // The page is sent as text, so that clients of every version print the coordinator's own words.
  out->set_page(ExplainText(in));
}

}  // namespace switchyard
