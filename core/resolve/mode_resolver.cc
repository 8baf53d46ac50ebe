#include "core/resolve/mode_resolver.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_format.h"

namespace switchyard {
namespace {

constexpr std::array<const char*, 3> kChoiceNames{"normal", "low_latency", "auto"};

}  // namespace

std::optional<ModeChoice> ModeChoiceFromName(absl::string_view name) {
  const auto it = std::find(kChoiceNames.begin(), kChoiceNames.end(), name);
  if (it == kChoiceNames.end()) return std::nullopt;
  return static_cast<ModeChoice>(it - kChoiceNames.begin());
}

// Draft extends and captures count as decode: both have few tokens, and a captured step must run in
// low_latency, the only mode with graphs.
Phase PhaseOfStep(const StepKind& step) {
  const bool many_tokens = step.extend && !step.draft_extend && !step.graph_capture;
  return many_tokens ? Phase::kPrefill : Phase::kDecode;
}

DispatchMode ModeOfStep(ModeChoice choice, const StepKind& step) {
  if (choice == ModeChoice::kNormal) return DispatchMode::kNormal;
  if (choice == ModeChoice::kLowLatency) return DispatchMode::kLowLatency;
  return PhaseOfStep(step) == Phase::kPrefill ? DispatchMode::kNormal : DispatchMode::kLowLatency;
}

ModeChoice DefaultModeChoice(Phase phase) {
  switch (phase) {
    case Phase::kPrefill:
      return ModeChoice::kNormal;
    case Phase::kDecode:
      return ModeChoice::kLowLatency;
    case Phase::kMixed:
      break;
  }
  return ModeChoice::kAuto;
}

ModeDecision ModeOfConfig(Phase phase, std::optional<DispatchMode> requested) {
  if (requested) {
    return {*requested,
            absl::StrFormat("the deployment asks for it in phase %s", PhaseName(phase))};
  }
  if (DefaultModeChoice(phase) == ModeChoice::kLowLatency) {
    return {DispatchMode::kLowLatency,
            "decode steps have few tokens, so a row for each expert, summed at the source, comes "
            "back soonest"};
  }
  return {DispatchMode::kNormal,
          absl::StrFormat("%s steps may have many tokens, so a row for each worker, summed there, "
                          "saves bytes",
                          PhaseName(phase))};
}

bool SupportsGraphs(DispatchMode mode) { return mode == DispatchMode::kLowLatency; }

absl::string_view WhyNoGraphs(DispatchMode mode) {
  if (SupportsGraphs(mode)) return "";
  return "steps of mode normal cannot be captured: how many rows arrive is known only once they "
         "have been counted";
}

}  // namespace switchyard
