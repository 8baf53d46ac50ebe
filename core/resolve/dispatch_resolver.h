// Decides how rows of one layer travel along one edge in one phase, with the reasons.
//
//   mode      the requested one, or the phase's              mode_resolver.h
//   order     the first rule with an opinion on the dtype     dtype_order.h
//   then      an unquantized layer keeps BF16; NVFP4 layers get BF16 in normal mode; devices take
//             INT8 for FP8 or FP8 for INT8, or refuse; the layer's experts must accept the dtype in
//             this mode; both ends must have proven it, else BF16 is sent where no dtype was named
//
// Pure: everything that matters is in the request, nothing is read from an environment and nothing
// is kept, so that two models, or a model and its draft, cannot disturb each other and a new
// request changes nothing that is in flight. Thread-safe. Cost: some dozens of short strings.
//
// Sources: SGLang PRs 22822, 24906 and 23815 for the rules; differences are explained where they
// are implemented.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/capability.h"
#include "core/moe_shape.h"
#include "core/resolve/decision_trace.h"
#include "core/resolve/dtype_order.h"
#include "core/resolve/dtype_override.h"
#include "core/resolve/layer_quant_config.h"

namespace switchyard {

// The checkpoint's side of the decision.
struct LayerFacts {
  LayerId layer;
  LayerRole role = LayerRole::kBase;
  bool excluded = false;                         // left out of the checkpoint's quantization: BF16
  std::optional<QuantScheme> scheme;             // nullopt: unknown
  std::optional<LayerQuantConfig> quant_config;  // nullopt: none
  RunnerBackend runner = RunnerBackend::kAuto;
  bool power_of_two_scales = false;  // its kernels take FP8 scales that are powers of two (UE8M0)
};

// All inputs of a decision: the checkpoint's, the operator's and both ends' of the edge.
struct DispatchRequest {
  std::string deployment;
  std::string model;
  LayerFacts layer;
  Phase phase = Phase::kMixed;
  std::optional<DispatchMode> mode;  // nullopt: the phase's
  std::vector<DtypeOverride> overrides;
  DeprecatedFlags flags;
  CapabilitySet source;
  std::span<const CapabilitySet> workers;  // those of the edge: one or more, all of one kind
  MoeShape shape;
  std::int32_t tokens =
      0;  // of a step (low_latency) or a chunk (normal): used only to size buffers
};

// The scheme of the layer's experts: `scheme`, or none for excluded layers and for drafts without a
// scheme whose quant config is missing or names BF16.
std::optional<QuantScheme> EffectiveScheme(const LayerFacts& layer);

// Always explains; `outcome` or `refusal` says which way it went. Each refusal names layer, scheme,
// dtype and a remedy:
//   kInvalidArgument (BAD_CONFIG): no workers, workers of two kinds, an unknown device profile,
//     equally specific overrides that differ;
//   kFailedPrecondition (BAD_CONFIG): the experts do not take the dtype in this mode, or NVFP4
//     without a global input scale;
//   kUnimplemented (UNSUPPORTED): NVFP4 on Ascend; a named dtype, BF16 or the scheme when one end
//     did not prove it.
DecisionTrace TraceDispatch(const DispatchRequest& request);

// As TraceDispatch, but returns a refusal as an error. A returned trace has an outcome.
absl::StatusOr<DecisionTrace> ResolveDispatch(const DispatchRequest& request);

// Whether these workers can form a lockstep group: all of one kind of device (R123).
// Errors: kFailedPrecondition (BAD_CONFIG) naming the kinds; use p2p, where each edge has a config.
absl::Status CheckLockstepGroup(std::span<const CapabilitySet> workers);

}  // namespace switchyard
