#include "model/presets.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/dispatch_resolver.h"

namespace switchyard {
namespace {

constexpr std::array kDeepSeekSchemes{QuantScheme::kFp8Block, QuantScheme::kW4Afp8,
                                      QuantScheme::kW8A8Int8, QuantScheme::kW4A8Int8,
                                      QuantScheme::kNvfp4};
constexpr std::array kKimiK2Schemes{QuantScheme::kFp8Block};
constexpr std::array kKimiK25Schemes{QuantScheme::kW4A16Int4};  // routed experts only
constexpr std::array kQwen35LargeSchemes{QuantScheme::kNone, QuantScheme::kFp8Block,
                                         QuantScheme::kNvfp4, QuantScheme::kW8A8Int8};
constexpr std::array kQwen35SmallSchemes{QuantScheme::kNone, QuantScheme::kW8A8Int8};
constexpr std::array kQwen3Schemes{QuantScheme::kNone, QuantScheme::kFp8Block};

constexpr SharedExpertFacts kNoShared{};
constexpr SharedExpertFacts kPlainShared{.count = 1, .intermediate = 0, .sigmoid_gate = false};
constexpr SharedExpertFacts Gated(std::int32_t intermediate) { return {1, intermediate, true}; }

constexpr SigmoidRule kDeepSeekRouting{.experts = 256,
                                       .top_k = 8,
                                       .groups = 8,
                                       .topk_groups = 4,
                                       .renormalize = true,
                                       .scaling = 2.5F,
                                       .place = ScalingPlace::kWeights};
constexpr SigmoidRule kKimiRouting{.experts = 384,
                                   .top_k = 8,
                                   .groups = 1,
                                   .topk_groups = 1,
                                   .renormalize = true,
                                   .scaling = 2.827F,
                                   .place = ScalingPlace::kWeights};
constexpr SoftmaxRule Softmax(std::int32_t experts, std::int32_t top_k) {
  return {.experts = experts, .top_k = top_k, .renormalize = true};
}

// Without a source yet: all of deepseek-*, of kimi-* all but experts, top-k, layers and hidden, and
// all of qwen3-next. The other Qwen rows come from THUDM/slime's
// scripts/models/qwen3.5-397B-A17B.sh, zyzshishui/slime's qwen3-235B-A22B.sh and qwen3-30B-A3B.sh,
// and the card of Qwen3.6-35B, which has the architecture of qwen3.5-35b-a3b. FP8 checkpoints are
// assumed to be in blocks; MTP without a number is assumed to be one layer.
constexpr std::array<ModelPreset, 9> kPresets{{
    {"deepseek-v3",
     61,
     3,
     1,
     {7168, 2048, 256, 8},
     kPlainShared,
     kDeepSeekRouting,
     kDeepSeekSchemes},
    {"deepseek-r1",
     61,
     3,
     1,
     {7168, 2048, 256, 8},
     kPlainShared,
     kDeepSeekRouting,
     kDeepSeekSchemes},
    {"kimi-k2", 61, 1, 0, {7168, 2048, 384, 8}, kPlainShared, kKimiRouting, kKimiK2Schemes},
    {"kimi-k2.5", 61, 1, 0, {7168, 2048, 384, 8}, kPlainShared, kKimiRouting, kKimiK25Schemes},
    {"qwen3.5-397b-a17b",
     60,
     0,
     1,
     {4096, 1024, 512, 10},
     Gated(1024),
     Softmax(512, 10),
     kQwen35LargeSchemes},
    {"qwen3.5-35b-a3b",
     40,
     0,
     1,
     {2048, 512, 256, 8},
     Gated(0),
     Softmax(256, 8),
     kQwen35SmallSchemes},
    {"qwen3-next-80b-a3b",
     48,
     0,
     1,
     {2048, 512, 512, 10},
     Gated(512),
     Softmax(512, 10),
     kQwen3Schemes},
    {"qwen3-235b-a22b", 94, 0, 0, {4096, 1536, 128, 8}, kNoShared, Softmax(128, 8), kQwen3Schemes},
    {"qwen3-30b-a3b", 48, 0, 0, {2048, 768, 128, 8}, kNoShared, Softmax(128, 8), kQwen3Schemes},
}};

// An empty batch: the router checks its rule and routes nothing.
absl::Status CheckRouting(const SoftmaxRule& rule) { return RouteSoftmax(rule, {}); }
absl::Status CheckRouting(const SigmoidRule& rule) { return RouteSigmoid(rule, {}, {}); }

// A worker that proves everything that its profile allows.
CapabilitySet AbleWorker(const DeviceProfile& profile) {
  CapabilitySet worker;
  worker.device = profile.kind;
  worker.device_profile = profile.name;
  worker.max_top_k = profile.max_top_k;
  for (std::size_t i = 0; i < profile.wire.size(); ++i) {
    if (profile.wire[i].support != WireSupport::kNative) continue;
    worker.wire_dtypes.push_back(static_cast<DispatchDtype>(i));
  }
  for (const QuantSchemeInfo& scheme : AllQuantSchemes()) worker.schemes.push_back(scheme.scheme);
  return worker;
}

// A source that encodes rows in any dtype.
CapabilitySet AbleSource() {
  CapabilitySet source;
  source.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                        DispatchDtype::kNvfp4};
  return source;
}

// The checks that a deployment passes: the limits on top-k and M come from low_latency's buffers.
absl::Status CheckUse(const ModelPreset& preset, const PresetUse& use) {
  if (use.profile == nullptr || use.ranks < 1) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("preset %s: give a device profile and 1 rank or more, not %d",
                                     preset.name, use.ranks));
  }
  ProfileDemand demand{preset.shape, use.ranks, use.tokens};
  if (use.mode == DispatchMode::kNormal) {
    // As in a plan: normal mode has no such buffers.
    demand.shape.top_k = 0;
    demand.max_tokens_per_step = 0;
  }
  return Annotate(CheckLimits(*use.profile, demand), absl::StrCat("preset ", preset.name));
}

}  // namespace

std::span<const ModelPreset> ModelPresets() { return kPresets; }

const ModelPreset* FindModelPreset(absl::string_view name) {
  for (const ModelPreset& preset : kPresets) {
    if (name == preset.name) return &preset;
  }
  return nullptr;
}

absl::Status CheckPreset(const ModelPreset& preset) {
  const auto bad = [&preset](const std::string& what) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                     absl::StrCat("preset ", preset.name, ": ", what));
  };
  const MoeShape& shape = preset.shape;
  if (preset.dense_first < 0 || preset.MoeLayers() < 1 || preset.mtp_layers < 0) {
    return bad(absl::StrFormat("%d layers, %d of them dense, and %d of MTP", preset.layers,
                               preset.dense_first, preset.mtp_layers));
  }
  if (shape.hidden < 1 || shape.intermediate < 1) {
    return bad(absl::StrFormat("hidden %d, intermediate %d", shape.hidden, shape.intermediate));
  }
  // Both are stated twice, by the shape and by the router's rule, and must not drift apart.
  const auto [experts, top_k] = std::visit(
      [](const auto& rule) { return std::pair(rule.experts, rule.top_k); }, preset.routing);
  if (experts != shape.experts || top_k != shape.top_k) {
    return bad(absl::StrFormat("its router takes %d of %d experts, its shape %d of %d", top_k,
                               experts, shape.top_k, shape.experts));
  }
  const absl::Status routes =
      std::visit([](const auto& rule) { return CheckRouting(rule); }, preset.routing);
  return Annotate(routes, absl::StrCat("preset ", preset.name));
}

absl::StatusOr<DispatchDtype> FitPreset(const ModelPreset& preset, const PresetUse& use) {
  SY_RETURN_IF_ERROR(CheckUse(preset, use));
  const std::vector<CapabilitySet> workers(static_cast<std::size_t>(use.ranks),
                                           AbleWorker(*use.profile));
  DispatchRequest request;
  request.deployment = "preset";
  request.model = preset.name;
  request.layer.layer = LayerId{preset.dense_first};
  request.layer.scheme = use.scheme;
  if (use.scheme == QuantScheme::kNvfp4) {
    // The value does not matter, only that it exists.
    request.layer.quant_config.emplace().input_global_scale = 1.0F;
  }
  request.phase = use.mode == DispatchMode::kNormal ? Phase::kPrefill : Phase::kDecode;
  request.mode = use.mode;
  request.source = AbleSource();
  request.workers = workers;
  request.shape = preset.shape;
  request.tokens = use.tokens;
  SY_ASSIGN_OR_RETURN(const DecisionTrace trace, ResolveDispatch(request));
  return trace.outcome->dtype();
}

}  // namespace switchyard
