// The numbers of well-known models, without their checkpoints: for planning, tables and tests.
//
// A checkpoint's own config.json always wins; serving never reads a preset. Sources: the rows
// in presets.cc, which say which numbers have no source yet. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/device_profile.h"
#include "core/dispatch_config.h"
#include "core/moe_shape.h"
#include "core/quant_scheme.h"
#include "model/routing/router.h"

namespace switchyard {

// The expert that every token passes, beside the routed ones.
struct SharedExpertFacts {
  std::int32_t count = 0;         // 0: there is none
  std::int32_t intermediate = 0;  // 0: not known here
  bool sigmoid_gate = false;      // Qwen's; see model/routing/shared_expert.h
};

// One row. Numbers without a source are marked in presets.cc.
struct ModelPreset {
  const char* name;          // "deepseek-v3"
  std::int32_t layers;       // without those of MTP
  std::int32_t dense_first;  // of them, without experts
  std::int32_t mtp_layers;   // drafts, each with experts of the same shape
  MoeShape shape;
  SharedExpertFacts shared;
  std::variant<SoftmaxRule, SigmoidRule> routing;
  std::span<const QuantScheme> schemes;  // in which checkpoints are published

  [[nodiscard]] std::int32_t MoeLayers() const { return layers - dense_first; }
};

// Constant data.
std::span<const ModelPreset> ModelPresets();
const ModelPreset* FindModelPreset(absl::string_view name);  // nullptr: no such row

// OK when the numbers of a row hold together: some MoE layers, sizes above 0, a router that takes
// them. Errors: kInvalidArgument (BAD_SHAPE, BAD_TOP_K) naming the preset.
absl::Status CheckPreset(const ModelPreset& preset);

// One way to serve a preset: experts of `scheme` on `ranks` workers of one profile.
struct PresetUse {
  QuantScheme scheme = QuantScheme::kNone;
  const DeviceProfile* profile = nullptr;  // of DeviceProfiles()
  DispatchMode mode = DispatchMode::kNormal;
  std::int32_t ranks = 1;                          // > 0
  std::int32_t tokens = kDefaultMaxTokensPerStep;  // M of low_latency
};
// The default wire dtype of rows for workers that prove everything that their profile allows; NVFP4
// checkpoints are assumed to be calibrated. Errors: those of CheckLimits, with ranks
// and preset named, and of ResolveDispatch; kInvalidArgument (BAD_CONFIG) for a use without a
// profile or ranks (R110).
absl::StatusOr<DispatchDtype> FitPreset(const ModelPreset& preset, const PresetUse& use);

}  // namespace switchyard
