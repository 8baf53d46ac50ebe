#include "core/resolve/dtype_order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace switchyard {
namespace {

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

// bf16_dispatch is an older spelling of the key; the newer one wins where a config has both.
Opinion LayerDtype(const OrderInputs& in) {
  if (!in.config) return {std::nullopt, "the layer has no quant config"};
  if (in.config->dispatcher_output_dtype) {
    return {*in.config->dispatcher_output_dtype,
            absl::StrCat("the layer's quant config says dispatcher_output_dtype ",
                         DispatchDtypeName(*in.config->dispatcher_output_dtype))};
  }
  if (in.config->bf16_dispatch) {
    return {DispatchDtype::kBf16, "the layer's quant config says bf16_dispatch (deprecated)"};
  }
  return {std::nullopt, "the layer's quant config names no dtype"};
}

Opinion Runner(const OrderInputs& in) {
  constexpr std::array kQuantizing{RunnerBackend::kFlashinferCutedsl, RunnerBackend::kCutlass,
                                   RunnerBackend::kHumming};
  const std::string name(RunnerBackendName(in.runner));
  if (std::find(kQuantizing.begin(), kQuantizing.end(), in.runner) == kQuantizing.end()) {
    return {std::nullopt, absl::StrCat("runner ", name, " leaves quantizing to the dispatch")};
  }
  return {DispatchDtype::kBf16, absl::StrCat("runner ", name, " quantizes rows by itself")};
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

// The step names are those of SGLang's order; the letters are rules that SGLang does not have. 3b
// stands after 4 because a runner's limits bind, while a scheme only prefers.
constexpr std::array<Rule, 10> kRules{{
    {"0", RuleId::kExplicit, Explicit},
    {"1", RuleId::kBf16Flag, Bf16Flag},
    {"2", RuleId::kGlobalScale, GlobalScale},
    {"3", RuleId::kLayerDtype, LayerDtype},
    {"4", RuleId::kSelfQuantizingRunner, Runner},
    {"3b", RuleId::kScheme, Scheme},
    {"5a", RuleId::kNpuInt8Flag, NpuInt8Flag},
    {"5", RuleId::kNpu, Npu},
    {"5b", RuleId::kCpu, Cpu},
    {"6", RuleId::kDefault, Default},
}};

}  // namespace

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

// The last rule always has an opinion, so there is a winner.
OrderDecision DecideDtype(const OrderInputs& inputs) {
  OrderDecision decision;
  for (const Rule& rule : kRules) {
    Opinion opinion = rule.opinion(inputs);
    decision.rules.push_back({rule.id, rule.step, opinion.candidate, std::move(opinion.why)});
  }
  const auto winner = std::find_if(decision.rules.begin(), decision.rules.end(),
                                   [](const RuleOutcome& rule) { return rule.candidate; });
  decision.winner = static_cast<std::size_t>(winner - decision.rules.begin());
  decision.dtype = *winner->candidate;
  return decision;
}

}  // namespace switchyard
