// The rules that decide the wire dtype, in order: the first with an opinion wins.
//
//   step  rule                    opinion
//   0     explicit                the dtype that the deployment requests
//   1     bf16_flag               BF16 while the deprecated flag is set
//   2     global_scale            NVFP4 when the layer has a global input scale
//   3     layer_dtype             the dtype in the layer's quant config
//   4     self_quantizing_runner  BF16: the runner quantizes by itself
//   3b    scheme                  the preference of the layer's experts, if their scheme is known
//   5a    npu_int8_flag           INT8 on Ascend in normal mode while the deprecated flag is set
//   5     npu                     BF16 on Ascend
//   5b    cpu                     BF16 on CPUs
//   6     default                 FP8
//
// The steps are numbered as in SGLang (tests/reference/sglang_dtype_order.h), which has no 3b, 5a
// and 5b. dispatch_resolver.h then adapts the result to hardware and experts. Pure; no state, no
// environment; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/device_profile.h"
#include "core/dispatch_mode.h"
#include "core/format/dtype.h"
#include "core/quant_scheme.h"
#include "core/resolve/layer_quant_config.h"

namespace switchyard {

inline constexpr absl::string_view kDtypeOrderName = "merged";

// The values are not the order of the rules.
enum class RuleId : std::uint8_t {
  kExplicit = 0,
  kBf16Flag = 1,
  kGlobalScale = 2,
  kLayerDtype = 3,
  kSelfQuantizingRunner = 4,
  kScheme = 5,
  kNpuInt8Flag = 6,
  kNpu = 7,
  kCpu = 8,
  kDefault = 9,
};
absl::string_view RuleName(RuleId rule);  // as in the table above; never changes

// The expert kernels of a layer. Only their treatment of rows matters here.
enum class RunnerBackend : std::uint8_t {
  kAuto = 0,
  kDeepGemm = 1,
  kFlashinferCutedsl = 2,
  kCutlass = 3,
  kHumming = 4,
};
// Names of SGLang's moe_runner_backend option, as far as they matter here.
absl::string_view RunnerBackendName(RunnerBackend runner);  // "auto", "deep_gemm", ...
std::optional<RunnerBackend> RunnerBackendFromName(absl::string_view name);

// A requested dtype and where the request stands: "deployment chat, layer 3, phase decode".
struct RequestedDtype {
  DispatchDtype dtype = DispatchDtype::kBf16;
  std::string source;
};
// A deprecated flag that is set, and where it came from. Flags are fields of a deployment, filled
// in by the reader of its options; nothing here reads the environment.
struct DeprecatedFlags {
  std::optional<std::string> bf16_dispatch;    // SGLANG_DEEPEP_BF16_DISPATCH
  std::optional<std::string> npu_normal_int8;  // DEEP_NORMAL_MODE_USE_INT8_QUANT
};

// All that a rule may look at.
struct OrderInputs {
  std::optional<RequestedDtype> requested;  // nullopt: auto
  DeprecatedFlags flags;
  std::optional<LayerQuantConfig> config;
  RunnerBackend runner = RunnerBackend::kAuto;
  DeviceKind worker = DeviceKind::kCpu;
  DispatchMode mode = DispatchMode::kNormal;
  std::optional<QuantScheme> scheme;  // nullopt: unknown
};

// One rule of an order: its opinion if it has one, and why or why not.
struct RuleOutcome {
  RuleId rule = RuleId::kDefault;
  const char* step = "";
  std::optional<DispatchDtype> candidate;
  std::string why;
};

// The dtype and the whole way to it, for explanations.
struct OrderDecision {
  DispatchDtype dtype = DispatchDtype::kBf16;
  std::size_t winner = 0;          // index in `rules`: the first with a candidate
  std::vector<RuleOutcome> rules;  // all of the order, the losers too

  [[nodiscard]] RuleId rule() const { return rules[winner].rule; }
  // kExplicit: the deployment or the layer's config names this dtype. Else it may give way to BF16.
  [[nodiscard]] DtypeOrigin origin() const;
};

// Evaluates every rule, also those after the winner, so that an operator sees all opinions.
OrderDecision DecideDtype(const OrderInputs& inputs);

}  // namespace switchyard
