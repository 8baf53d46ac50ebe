#include "core/resolve/dispatch_resolver.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/dtype_option.h"
#include "core/resolve/mode_resolver.h"

namespace switchyard {
namespace {

constexpr std::array kDtypes{DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                             DispatchDtype::kNvfp4};

// One request on its way through the steps. Each step may change `dtype_` and adds its effect to
// the trace; the first that fails ends the walk.
//
// The order of the steps matters. Hardware refusals come before any replacement, so that a dtype
// which no device of the edge supports is never quietly replaced by another. Normal mode's BF16 for
// NVFP4 layers comes before the devices' replacements, which would otherwise replace a dtype that
// is not going to be sent. Experts are checked after all replacements, because only the final dtype
// has to suit them, and proofs of the two ends come last, because they may still turn a dtype that
// a rule chose into BF16.
class Resolution {
 public:
  Resolution(const DispatchRequest& request, DecisionTrace* trace)
      : request_(request), trace_(*trace), scheme_(EffectiveScheme(request.layer)) {}

  absl::Status Run();

 private:
  absl::Status CheckWorkers();
  void Describe();
  absl::Status ApplyRules();
  void KeepUnquantizedLayers();
  absl::Status RefuseByHardware() const;
  void SendNvfp4LayersBf16InNormal();
  void ReplaceByHardware();
  void SendBf16BeyondRanks();
  absl::Status CheckExperts() const;
  absl::Status CheckEnds();
  absl::Status CheckScheme() const;
  void Finish();

  void Warn(WarningId id, std::string text) { trace_.warnings.push_back({id, std::move(text)}); }
  void Change(AdjustmentId id, DispatchDtype to, std::string why) {
    trace_.adjustments.push_back({id, dtype_, to, std::move(why)});
    dtype_ = to;
  }
  [[nodiscard]] bool IsQuantized() const { return dtype_ != DispatchDtype::kBf16; }
  [[nodiscard]] SchemeUse Use() const {
    const std::optional<LayerQuantConfig>& config = request_.layer.quant_config;
    return {profiles_[0]->kind, trace_.mode, config && config->input_global_scale};
  }
  [[nodiscard]] bool ExpertsTake(DispatchDtype dtype) const {
    return !scheme_ || Accepts(*scheme_, dtype, Use(), origin_);
  }
  // The first worker's profile with `support` for the dtype; nullptr: none.
  [[nodiscard]] const DeviceProfile* FirstWith(WireSupport support) const;
  // Names the end that cannot handle `dtype`, as a clause; "" when both can.
  [[nodiscard]] std::string MissingAt(DispatchDtype dtype) const;
  [[nodiscard]] std::string Remedy() const;
  [[nodiscard]] absl::Status Refuse(absl::StatusCode code, Reason reason,
                                    const std::string& text) const;

  const DispatchRequest& request_;
  DecisionTrace& trace_;
  const std::optional<QuantScheme> scheme_;
  std::vector<const DeviceProfile*> profiles_;  // of the workers, in order
  DispatchDtype dtype_ = DispatchDtype::kBf16;
  DtypeOrigin origin_ = DtypeOrigin::kAuto;
};

absl::Status Resolution::Run() {
  Describe();
  SY_RETURN_IF_ERROR(CheckWorkers());
  SY_RETURN_IF_ERROR(ApplyRules());
  KeepUnquantizedLayers();
  SY_RETURN_IF_ERROR(RefuseByHardware());
  SendNvfp4LayersBf16InNormal();
  ReplaceByHardware();
  SendBf16BeyondRanks();
  SY_RETURN_IF_ERROR(CheckExperts());
  SY_RETURN_IF_ERROR(CheckEnds());
  SY_RETURN_IF_ERROR(CheckScheme());
  Finish();
  return absl::OkStatus();
}

void Resolution::Describe() {
  TraceSubject& subject = trace_.subject;
  subject.deployment = request_.deployment;
  subject.model = request_.model;
  subject.layer = request_.layer.layer;
  subject.role = request_.layer.role;
  subject.excluded = request_.layer.excluded;
  subject.phase = request_.phase;
  subject.edge.source = request_.source.device;
  if (!request_.workers.empty()) subject.edge.worker = request_.workers[0].device;
  // Sorted and without repetition, so that equal groups give equal texts, whichever worker joined
  // first.
  std::set<std::string> names;
  for (const CapabilitySet& worker : request_.workers) names.insert(worker.device_profile);
  subject.worker_profiles = absl::StrJoin(names, ", ");
  subject.scheme = scheme_;
  subject.runner = request_.layer.runner;
  ModeDecision mode = ModeOfConfig(request_.phase, request_.mode);
  trace_.mode = mode.mode;
  trace_.mode_why = std::move(mode.why);
}

absl::Status Resolution::CheckWorkers() {
  const auto bad = [this](const std::string& text) {
    return Refuse(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, text);
  };
  if (request_.workers.empty()) return bad("no workers are available; start one");
  for (const CapabilitySet& worker : request_.workers) {
    const DeviceProfile* profile = FindDeviceProfile(worker.device_profile);
    if (profile == nullptr || profile->kind != worker.device) {
      return bad(
          absl::StrFormat("\"%s\" is not a device profile of kind %s; start the worker with "
                          "one of core/device_profile.cc",
                          worker.device_profile, DeviceKindName(worker.device)));
    }
    // The dtype belongs to the edge; two kinds would need two answers.
    if (worker.device != request_.workers[0].device) {
      return bad("one edge has workers of two kinds; resolve each edge separately");
    }
    profiles_.push_back(profile);
  }
  return absl::OkStatus();
}

absl::Status Resolution::ApplyRules() {
  SY_ASSIGN_OR_RETURN(
      const DtypeOverride* chosen,
      PickOverride(request_.overrides, {request_.model, request_.layer.layer, request_.phase}));
  OrderInputs inputs{.requested = {},
                     .flags = request_.flags,
                     .config = request_.layer.quant_config,
                     .runner = request_.layer.runner,
                     .worker = profiles_[0]->kind,
                     .mode = trace_.mode,
                     .scheme = scheme_};
  if (chosen != nullptr && chosen->dtype)
    inputs.requested = RequestedDtype{*chosen->dtype, chosen->source};
  OrderDecision decision = DecideDtype(inputs);
  dtype_ = decision.dtype;
  origin_ = decision.origin();
  if (request_.flags.bf16_dispatch) {
    Warn(WarningId::kDeprecatedBf16Flag, DeprecatedBf16VariableText());
  }
  if (request_.flags.npu_normal_int8) {
    Warn(WarningId::kDeprecatedNpuInt8Flag, DeprecatedNpuInt8VariableText());
  }
  if (request_.layer.quant_config && request_.layer.quant_config->bf16_dispatch) {
    Warn(WarningId::kDeprecatedBf16Key,
         absl::StrCat("quant config key bf16_dispatch is deprecated; write ", kDtypeOption,
                      " bf16 there, or ", kDtypeFlag, " bf16 for the layer"));
  }
  trace_.decision = std::move(decision);
  return absl::OkStatus();
}

void Resolution::KeepUnquantizedLayers() {
  if (!IsQuantized() || scheme_ != QuantScheme::kNone) return;
  // The reason names which of the three it is, because each is corrected in another file.
  const char* const who = request_.layer.role == LayerRole::kDraft ? "a draft layer in BF16"
                          : request_.layer.excluded ? "a layer that is left out of the quantization"
                                                    : "an unquantized layer";
  Warn(WarningId::kUnquantizedKeepsBf16,
       absl::StrFormat("unquantized layers keep bf16 rows where %s was resolved",
                       DispatchDtypeName(dtype_)));
  Change(AdjustmentId::kUnquantizedLayer, DispatchDtype::kBf16,
         absl::StrCat("experts of ", who, " take only bf16"));
}

const DeviceProfile* Resolution::FirstWith(WireSupport support) const {
  const auto it = std::find_if(
      profiles_.begin(), profiles_.end(),
      [&](const DeviceProfile* profile) { return profile->Wire(dtype_).support == support; });
  return it == profiles_.end() ? nullptr : *it;
}

absl::Status Resolution::RefuseByHardware() const {
  const DeviceProfile* profile = FirstWith(WireSupport::kRefused);
  if (profile == nullptr) return absl::OkStatus();
  return Refuse(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                absl::StrFormat("%s does not support %s rows; %s", profile->title,
                                DispatchDtypeName(dtype_), Remedy()));
}

void Resolution::SendNvfp4LayersBf16InNormal() {
  if (dtype_ != DispatchDtype::kNvfp4 || trace_.mode != DispatchMode::kNormal) return;
  if (scheme_ && *scheme_ != QuantScheme::kNvfp4) return;  // CheckExperts refuses it in both modes.
  if (origin_ == DtypeOrigin::kExplicit) {
    Warn(WarningId::kNvfp4NormalSendsBf16,
         "normal mode sends bf16 where nvfp4 was requested; low_latency sends nvfp4");
  }
  Change(AdjustmentId::kNvfp4Normal, DispatchDtype::kBf16,
         "normal mode has no nvfp4 rows; the experts quantize them");
}

void Resolution::ReplaceByHardware() {
  const DeviceProfile* profile = FirstWith(WireSupport::kInstead);
  if (profile == nullptr) return;
  const DispatchDtype instead = profile->Wire(dtype_).instead;
  const std::string text =
      absl::StrFormat("%s does not support %s rows; switching to %s", profile->title,
                      DispatchDtypeName(dtype_), DispatchDtypeName(instead));
  Warn(dtype_ == DispatchDtype::kFp8 ? WarningId::kFp8ToInt8 : WarningId::kInt8ToFp8, text);
  Change(AdjustmentId::kHardware, instead, text);
}

void Resolution::SendBf16BeyondRanks() {
  if (!IsQuantized() || trace_.mode != DispatchMode::kNormal) return;
  for (const DeviceProfile* profile : profiles_) {
    // The smallest machine of the edge decides, since all ranks send in one dtype.
    const std::int32_t most = profile->quantized_normal_ranks_max;
    if (most == 0 || request_.workers.size() <= static_cast<std::size_t>(most)) continue;
    const std::string text =
        absl::StrFormat("%s sends no %s rows in normal mode beyond %d ranks (here %d)",
                        profile->title, DispatchDtypeName(dtype_), most, request_.workers.size());
    Warn(WarningId::kNormalRanksSendBf16, absl::StrCat(text, "; switching to bf16"));
    Change(AdjustmentId::kNormalRanks, DispatchDtype::kBf16, text);
    return;
  }
}

absl::Status Resolution::CheckExperts() const {
  const auto refuse = [this](const std::string& text) {
    return Refuse(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig, text);
  };
  // NVFP4 codes mean nothing without the global scale, and experts of other schemes are refused
  // below with a text of their own.
  const bool takes_scaled = !scheme_ || *scheme_ == QuantScheme::kNvfp4;
  if (dtype_ == DispatchDtype::kNvfp4 && !Use().global_scale && takes_scaled) {
    return refuse(
        "nvfp4 rows need the layer's input_global_scale, which its quant config does not have; "
        "ask for bf16, or calibrate the checkpoint");
  }
  if (ExpertsTake(dtype_)) return absl::OkStatus();
  const QuantSchemeInfo& info = QuantSchemeInfoOf(*scheme_);
  const bool weights_only =
      info.activations == ActivationQuant::kNone && *scheme_ != QuantScheme::kNone;
  return refuse(absl::StrFormat(
      "experts of scheme %s do not take %s rows in mode %s on %s%s; %s", info.name,
      DispatchDtypeName(dtype_), DispatchModeName(trace_.mode), DeviceKindName(Use().worker),
      weights_only ? ": int4 weights take unquantized activations" : "", Remedy()));
}

std::string Resolution::Remedy() const {
  if (!trace_.adjustments.empty() && trace_.adjustments.back().id == AdjustmentId::kNormalRanks) {
    return "use mode low_latency, or fewer workers";
  }
  std::string names;
  // Only dtypes that pass every check are proposed, so that following the advice cannot fail again.
  for (const DispatchDtype dtype : kDtypes) {
    const bool native =
        std::all_of(profiles_.begin(), profiles_.end(), [dtype](const DeviceProfile* profile) {
          return profile->Wire(dtype).support == WireSupport::kNative;
        });
    const bool taken = !scheme_ || Accepts(*scheme_, dtype, Use(), DtypeOrigin::kExplicit);
    if (!native || !taken) continue;
    absl::StrAppend(&names, names.empty() ? "" : " or ", DispatchDtypeName(dtype));
  }
  if (names.empty()) return "place the model on workers of another kind";
  return absl::StrFormat("ask for %s for this layer (%s)", names, kDtypeOption);
}

std::string Resolution::MissingAt(DispatchDtype dtype) const {
  const absl::string_view name = DispatchDtypeName(dtype);
  if (!request_.source.Takes(dtype)) {
    return absl::StrFormat("the source (%s) did not prove that it makes %s rows",
                           DeviceKindName(request_.source.device), name);
  }
  for (std::size_t i = 0; i < profiles_.size(); ++i) {
    if (profiles_[i]->Wire(dtype).support == WireSupport::kAbsent) {
      return absl::StrFormat("%s has no %s rows", profiles_[i]->title, name);
    }
    if (!request_.workers[i].Takes(dtype)) {
      return absl::StrFormat("worker %d of the edge (%s) did not prove that it takes %s rows", i,
                             profiles_[i]->name, name);
    }
  }
  return "";
}

absl::Status Resolution::CheckEnds() {
  const std::string missing = MissingAt(dtype_);
  if (missing.empty()) return absl::OkStatus();
  // A rule's choice is a preference and may give way to BF16; a dtype that someone wrote down is
  // refused rather than silently replaced.
  const bool may_fall_back =
      IsQuantized() && origin_ == DtypeOrigin::kAuto && ExpertsTake(DispatchDtype::kBf16);
  if (may_fall_back && MissingAt(DispatchDtype::kBf16).empty()) {
    Change(AdjustmentId::kCapability, DispatchDtype::kBf16, missing);
    return absl::OkStatus();
  }
  const bool named = origin_ == DtypeOrigin::kExplicit && IsQuantized();
  return Refuse(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                absl::StrCat(missing, named ? "; ask for auto or another dtype"
                                            : "; place the model on other workers"));
}

absl::Status Resolution::CheckScheme() const {
  if (!scheme_) return absl::OkStatus();
  for (std::size_t i = 0; i < profiles_.size(); ++i) {
    if (request_.workers[i].Takes(*scheme_)) continue;
    return Refuse(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                  absl::StrFormat("worker %d of the edge (%s) did not prove that it computes "
                                  "scheme %s; place the model on other workers",
                                  i, profiles_[i]->name, QuantSchemeInfoOf(*scheme_).name));
  }
  return absl::OkStatus();
}

void Resolution::Finish() {
  if (scheme_ == QuantScheme::kW4A4Int4) {
    Warn(WarningId::kW4A4IsSlow,
         "w4a4_int4 layers send bf16 rows and quantize them at the experts, which is slower than "
         "a scheme with int8 rows");
  }
  const bool packed = std::all_of(
      profiles_.begin(), profiles_.end(),
      [](const DeviceProfile* profile) { return profile->fp8_scales == ScaleKind::kUe8m0; });
  // CPU workers take both kinds of scales. Scales unlike those of the experts would round a second
  // time.
  const bool as_experts =
      request_.layer.power_of_two_scales && profiles_[0]->kind == DeviceKind::kCpu;
  DispatchOutcome outcome;
  outcome.mode = trace_.mode;
  outcome.format = DefaultWireFormat(dtype_);
  if (dtype_ == DispatchDtype::kFp8 && (packed || as_experts)) outcome.format = kFp8Ue8m0Format;
  // SGLang's dispatcher calls INT8 use_fp8 too: the flag says that rows carry scales.
  outcome.use_fp8 = dtype_ == DispatchDtype::kFp8 || dtype_ == DispatchDtype::kInt8;
  outcome.use_nvfp4 = dtype_ == DispatchDtype::kNvfp4;
  outcome.graphs = SupportsGraphs(trace_.mode);
  const std::int32_t hidden = request_.shape.hidden;
  outcome.wire = RowBytesOf(outcome.format, hidden);
  outcome.combine_row_bytes = RowBytesOf(outcome.combine_dtype, hidden).total();
  const StagingBytes row = StagingBytesPerRow(outcome.format, hidden, trace_.mode);
  const std::int64_t rows = RowsOf(
      {request_.tokens, request_.shape.top_k, static_cast<std::int64_t>(request_.workers.size())},
      trace_.mode);
  outcome.staging = {rows * row.dispatch, rows * row.combine};
  trace_.outcome = outcome;
}

absl::Status Resolution::Refuse(absl::StatusCode code, Reason reason,
                                const std::string& text) const {
  const TraceSubject& subject = trace_.subject;
  const absl::string_view scheme = scheme_ ? QuantSchemeInfoOf(*scheme_).name : "unknown";
  // The refused dtype may not be the one that was resolved first; the text then explains how
  // one became the other.
  std::string led;
  if (trace_.decision && !trace_.adjustments.empty()) {
    const RuleOutcome& winner = trace_.decision->rules[trace_.decision->winner];
    absl::StrAppend(&led, DispatchDtypeName(trace_.decision->dtype), " by rule ", winner.step, " (",
                    RuleName(winner.rule), ": ", winner.why, "); ");
    for (const Adjustment& one : trace_.adjustments) absl::StrAppend(&led, one.why, "; ");
  }
  const absl::Status refusal =
      MakeError(code, reason,
                absl::StrFormat("layer %d of model %s (scheme %s), phase %s, %s -> %s: %s%s",
                                subject.layer.value, subject.model, scheme,
                                PhaseName(subject.phase), DeviceKindName(subject.edge.source),
                                DeviceKindName(subject.edge.worker), led, text),
                {{"deployment", subject.deployment},
                 {"layer", absl::StrCat(subject.layer.value)},
                 {"scheme", std::string(scheme)},
                 {"dtype", std::string(DispatchDtypeName(dtype_))},
                 {"mode", std::string(DispatchModeName(trace_.mode))}});
  // Warnings of a refused decision are not logged; their names at least reach the caller.
  if (trace_.warnings.empty()) return refusal;
  const auto name = [](std::string* out, const Warning& one) {
    absl::StrAppend(out, WarningName(one.id));
  };
  return WithMetadata(refusal, "warnings", absl::StrJoin(trace_.warnings, ", ", name));
}

// Engines load unquantized drafts without a quant config, or with one that names BF16.
bool SaysNothingButBf16(const LayerFacts& layer) {
  const std::optional<LayerQuantConfig>& config = layer.quant_config;
  return !config ||
         (!config->input_global_scale &&
          (config->bf16_dispatch || config->dispatcher_output_dtype == DispatchDtype::kBf16));
}

}  // namespace

std::optional<QuantScheme> EffectiveScheme(const LayerFacts& layer) {
  if (layer.excluded) return QuantScheme::kNone;
  if (!layer.scheme && layer.role == LayerRole::kDraft && SaysNothingButBf16(layer)) {
    return QuantScheme::kNone;
  }
  return layer.scheme;
}

DecisionTrace TraceDispatch(const DispatchRequest& request) {
  DecisionTrace trace;
  trace.refusal = Resolution(request, &trace).Run();
  return trace;
}

absl::StatusOr<DecisionTrace> ResolveDispatch(const DispatchRequest& request) {
  DecisionTrace trace = TraceDispatch(request);
  if (!trace.refusal.ok()) return trace.refusal;
  return trace;
}

absl::Status CheckLockstepGroup(std::span<const CapabilitySet> workers) {
  std::set<std::string> kinds;
  for (const CapabilitySet& worker : workers) kinds.emplace(DeviceKindName(worker.device));
  if (kinds.size() <= 1) return absl::OkStatus();
  const std::string names = absl::StrJoin(kinds, ", ");
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                   absl::StrFormat("a collective group needs workers of one kind, and this one has "
                                   "%s; use p2p, where every edge has a config of its own",
                                   names),
                   {{"kinds", names}});
}

}  // namespace switchyard
