#include "core/resolve/dtype_order.h"

#include <algorithm>
#include <array>
#include <span>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr std::array<const char*, 3> kVariantNames{"merged", "draft", "sglang_compat"};
constexpr std::array<const char*, 10> kRuleNames{
    "explicit", "bf16_flag",     "global_scale", "layer_dtype", "self_quantizing_runner",
    "scheme",   "npu_int8_flag", "npu",          "cpu",         "default"};
constexpr std::array<const char*, 5> kRunnerNames{"auto", "deep_gemm", "flashinfer_cutedsl",
                                                  "cutlass", "humming"};

struct Opinion {
  std::optional<DispatchDtype> candidate;
  std::string why;
};

// Also an override of "auto" leaves the decision to the rules below: it cancels, it does not
// choose.
Opinion Explicit(const OrderInputs& in) {
  if (!in.requested) return {std::nullopt, "no dtype is requested"};
  return {in.requested->dtype, absl::StrCat(in.requested->source, " asks for it")};
}

Opinion Bf16Flag(const OrderInputs& in) {
  if (!in.flags.bf16_dispatch) return {std::nullopt, "the deprecated flag is not set"};
  return {DispatchDtype::kBf16, absl::StrCat("SGLANG_DEEPEP_BF16_DISPATCH (deprecated) is set by ",
                                             *in.flags.bf16_dispatch)};
}

// A layer has the scale only where all its experts agree on one, so rows can be encoded once for
// all experts they go to.
Opinion GlobalScale(const OrderInputs& in) {
  if (!in.config) return {std::nullopt, "the layer has no quant config"};
  if (in.config->global_scale_is_null) {
    return {std::nullopt, "input_global_scale is null, which counts as absent"};
  }
  if (!in.config->input_global_scale) {
    return {std::nullopt, "the layer has no input_global_scale"};
  }
  return {DispatchDtype::kNvfp4,
          absl::StrCat("the layer has input_global_scale ", *in.config->input_global_scale)};
}

Opinion LayerDtype(const OrderInputs& in) {
  if (!in.config) return {std::nullopt, "the layer has no quant config"};
  if (!in.config->dispatcher_output_dtype) {
    return {std::nullopt, "the layer's quant config names no dtype"};
  }
  return {*in.config->dispatcher_output_dtype,
          absl::StrCat("the layer's quant config says dispatcher_output_dtype ",
                       DispatchDtypeName(*in.config->dispatcher_output_dtype))};
}

// bf16_dispatch is the key's older spelling; the newer one wins where a config has both.
Opinion LayerDtypeOrAlias(const OrderInputs& in) {
  if (in.config && !in.config->dispatcher_output_dtype && in.config->bf16_dispatch) {
    return {DispatchDtype::kBf16, "the layer's quant config says bf16_dispatch (deprecated)"};
  }
  return LayerDtype(in);
}

Opinion Runner(const OrderInputs& in, std::span<const RunnerBackend> quantizing) {
  const std::string name(RunnerBackendName(in.runner));
  if (std::find(quantizing.begin(), quantizing.end(), in.runner) == quantizing.end()) {
    return {std::nullopt, absl::StrCat("runner ", name, " leaves quantizing to the dispatch")};
  }
  return {DispatchDtype::kBf16, absl::StrCat("runner ", name, " quantizes rows by itself")};
}
// The runners that quantize their own input grew from version to version of SGLang.
Opinion RunnerOfDraft(const OrderInputs& in) {
  return Runner(in, std::array{RunnerBackend::kFlashinferCutedsl});
}
Opinion RunnerOfSglang(const OrderInputs& in) {
  return Runner(in, std::array{RunnerBackend::kFlashinferCutedsl, RunnerBackend::kCutlass});
}
Opinion RunnerOfMerged(const OrderInputs& in) {
  return Runner(in, std::array{RunnerBackend::kFlashinferCutedsl, RunnerBackend::kCutlass,
                               RunnerBackend::kHumming});
}

Opinion Scheme(const OrderInputs& in) {
  if (!in.scheme) return {std::nullopt, "the layer's weight scheme is not known"};
  const SchemeUse use{in.worker, in.mode, in.config && in.config->input_global_scale};
  const DispatchDtype dtype = PreferredDtype(*in.scheme, use);
  return {dtype, absl::StrCat("experts of scheme ", QuantSchemeInfoOf(*in.scheme).name, " on ",
                              DeviceKindName(in.worker), " prefer it")};
}

Opinion NpuInt8Flag(const OrderInputs& in) {
  if (!in.flags.npu_normal_int8) return {std::nullopt, "the deprecated flag is not set"};
  if (in.worker != DeviceKind::kAscend || in.mode != DispatchMode::kNormal) {
    return {std::nullopt, "the deprecated flag applies only to normal mode on ascend"};
  }
  return {DispatchDtype::kInt8, absl::StrCat("DEEP_NORMAL_MODE_USE_INT8_QUANT (deprecated) is set "
                                             "by ",
                                             *in.flags.npu_normal_int8)};
}

Opinion On(DeviceKind kind, const OrderInputs& in) {
  const std::string name(DeviceKindName(kind));
  if (in.worker != kind) return {std::nullopt, absl::StrCat("the worker is not of kind ", name)};
  return {DispatchDtype::kBf16, absl::StrCat("the default of workers of kind ", name)};
}
Opinion Npu(const OrderInputs& in) { return On(DeviceKind::kAscend, in); }
Opinion Cpu(const OrderInputs& in) { return On(DeviceKind::kCpu, in); }

Opinion Default(const OrderInputs& /*in*/) {
  return {DispatchDtype::kFp8, "the default, for checkpoints in FP8"};
}

struct Rule {
  const char* step;
  RuleId id;
  Opinion (*opinion)(const OrderInputs&);
};

// The step names are those of SGLang's orders; the letters are rules that SGLang does not have. 3b
// stands after 4 because a runner's limits bind, while a scheme only prefers.
constexpr std::array<Rule, 10> kMergedOrder{{
    {"0", RuleId::kExplicit, Explicit},
    {"1", RuleId::kBf16Flag, Bf16Flag},
    {"2", RuleId::kGlobalScale, GlobalScale},
    {"3", RuleId::kLayerDtype, LayerDtypeOrAlias},
    {"4", RuleId::kSelfQuantizingRunner, RunnerOfMerged},
    {"3b", RuleId::kScheme, Scheme},
    {"5a", RuleId::kNpuInt8Flag, NpuInt8Flag},
    {"5", RuleId::kNpu, Npu},
    {"5b", RuleId::kCpu, Cpu},
    {"6", RuleId::kDefault, Default},
}};
constexpr std::array<Rule, 7> kSglangOrder{{
    {"0", RuleId::kExplicit, Explicit},
    {"1", RuleId::kBf16Flag, Bf16Flag},
    {"2", RuleId::kGlobalScale, GlobalScale},
    {"3", RuleId::kLayerDtype, LayerDtype},
    {"4", RuleId::kSelfQuantizingRunner, RunnerOfSglang},
    {"5", RuleId::kNpu, Npu},
    {"6", RuleId::kDefault, Default},
}};
// Kept to compare decisions with deployments that ran the drafted order.
constexpr std::array<Rule, 7> kDraftOrder{{
    {"0", RuleId::kBf16Flag, Bf16Flag},
    {"1", RuleId::kExplicit, Explicit},
    {"2", RuleId::kGlobalScale, GlobalScale},
    {"3", RuleId::kLayerDtype, LayerDtype},
    {"4", RuleId::kSelfQuantizingRunner, RunnerOfDraft},
    {"5", RuleId::kNpu, Npu},
    {"6", RuleId::kDefault, Default},
}};

// Every rule is evaluated, also those after the winner: `syctl explain` shows what each would have
// said. The last rule of every order always has an opinion, so there is a winner.
OrderDecision Decide(std::span<const Rule> order, const OrderInputs& inputs) {
  OrderDecision decision;
  for (const Rule& rule : order) {
    Opinion opinion = rule.opinion(inputs);
    decision.rules.push_back({rule.id, rule.step, opinion.candidate, std::move(opinion.why)});
  }
  const auto winner = std::find_if(decision.rules.begin(), decision.rules.end(),
                                   [](const RuleOutcome& rule) { return rule.candidate; });
  decision.winner = static_cast<std::size_t>(winner - decision.rules.begin());
  decision.dtype = *winner->candidate;
  return decision;
}

}  // namespace

absl::string_view OrderVariantName(OrderVariant variant) {
  return kVariantNames[static_cast<std::size_t>(variant)];
}

absl::string_view RuleName(RuleId rule) { return kRuleNames[static_cast<std::size_t>(rule)]; }

absl::string_view RunnerBackendName(RunnerBackend runner) {
  return kRunnerNames[static_cast<std::size_t>(runner)];
}

std::optional<RunnerBackend> RunnerBackendFromName(absl::string_view name) {
  const auto it = std::find(kRunnerNames.begin(), kRunnerNames.end(), name);
  if (it == kRunnerNames.end()) return std::nullopt;
  return static_cast<RunnerBackend>(it - kRunnerNames.begin());
}

DtypeOrigin OrderDecision::origin() const {
  // The deprecated flags do not count: they were set for a whole process, not for this layer.
  const bool written = rule() == RuleId::kExplicit || rule() == RuleId::kLayerDtype;
  return written ? DtypeOrigin::kExplicit : DtypeOrigin::kAuto;
}

absl::StatusOr<OrderDecision> DecideMerged(const OrderInputs& inputs) {
  return Decide(kMergedOrder, inputs);
}

absl::StatusOr<OrderDecision> DecideSglangCompat(const OrderInputs& inputs) {
  return Decide(kSglangOrder, inputs);
}

absl::StatusOr<OrderDecision> DecideDraft(const OrderInputs& inputs) {
  OrderDecision decision = Decide(kDraftOrder, inputs);
  if (decision.dtype != DispatchDtype::kInt8) return decision;
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrCat("order draft does not support int8: ", decision.rules[decision.winner].why,
                   "; ask for another dtype or use order merged"),
      {{"dtype", "int8"}, {"rule", std::string(RuleName(decision.rule()))}});
}

absl::StatusOr<OrderDecision> DecideDtype(OrderVariant variant, const OrderInputs& inputs) {
  switch (variant) {
    case OrderVariant::kMerged:
      break;
    case OrderVariant::kDraft:
      return DecideDraft(inputs);
    case OrderVariant::kSglangCompat:
      return DecideSglangCompat(inputs);
  }
  return DecideMerged(inputs);
}

}  // namespace switchyard
