// The mode in which rows of a step travel: from the request, the phase and the kind of step.
//
// Source: SGLang's DeepEPMode (layers/moe/utils.py) and the Ascend A2 guide of sgl-kernel-npu.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "core/dispatch_mode.h"

namespace switchyard {

// kAuto: chosen for each step by its kind. A plan's config never is auto.
enum class ModeChoice : std::uint8_t { kNormal = 0, kLowLatency = 1, kAuto = 2 };
// "normal", "low_latency" or "auto".
// nullopt for any other name.
std::optional<ModeChoice> ModeChoiceFromName(absl::string_view name);

// The kind of a step, as its engine sees it. `extend`: any of its ranks extends a prompt.
struct StepKind {
  bool extend = false;
  bool draft_extend = false;   // of a speculative draft: few tokens, treated as decode
  bool graph_capture = false;  // recorded for replay: treated as decode
};
// Prefill for an extend that is neither of a draft nor captured, decode for all else; never mixed.
// It names the session that a step goes through where there is one for each phase.
Phase PhaseOfStep(const StepKind& step);
// A fixed choice is its own answer; auto is normal for steps of prefill, low_latency for those of
// decode.
DispatchMode ModeOfStep(ModeChoice choice, const StepKind& step);

// The default: prefill normal, decode low_latency, mixed auto.
ModeChoice DefaultModeChoice(Phase phase);

// `why` is one clause of the plan's trail.
struct ModeDecision {
  DispatchMode mode = DispatchMode::kNormal;
  std::string why;
};
// The one mode of a plan's config. `requested` wins over the default of the phase; mixed, whose
// default leaves it to the step, gets normal, which takes steps of any size.
ModeDecision ModeOfConfig(Phase phase, std::optional<DispatchMode> requested);

// Whether steps of `mode` can be recorded into a graph and replayed. Those of normal cannot: how
// many rows arrive is known only once they have been counted.
bool SupportsGraphs(DispatchMode mode);
// For people: the reason why steps of `mode` cannot be recorded, as a clause that names the mode.
// Empty where they can.
absl::string_view WhyNoGraphs(DispatchMode mode);

}  // namespace switchyard
