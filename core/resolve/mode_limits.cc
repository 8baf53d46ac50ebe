#include "core/resolve/mode_limits.h"

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/device_profile.h"

namespace switchyard {

absl::Status CheckModeLimits(DispatchMode mode, const MoeShape& shape,
                             std::int32_t max_tokens_per_step,
                             std::span<const CapabilitySet> workers) {
  for (const CapabilitySet& worker : workers) {
    const DeviceProfile* profile = FindDeviceProfile(worker.device_profile);
    if (profile == nullptr) continue;  // The resolver refuses it with a better text.
    ProfileDemand demand{shape, static_cast<std::int32_t>(workers.size()), max_tokens_per_step};
    if (mode == DispatchMode::kNormal) {
      demand.shape.top_k = 0;  // The limits on top-k and M come from low_latency's buffers.
      demand.max_tokens_per_step = 0;
    }
    SY_RETURN_IF_ERROR(CheckLimits(*profile, demand));
  }
  return absl::OkStatus();
}

DecisionTrace TraceWithinLimits(const DispatchRequest& request,
                                std::span<const CapabilitySet> group) {
  DecisionTrace trace = TraceDispatch(request);
  if (!trace.outcome) return trace;
  const absl::Status held = CheckModeLimits(trace.mode, request.shape, request.tokens, group);
  if (held.ok()) return trace;
  trace.outcome.reset();
  // CheckLimits knows no phase, and the same layer may pass in the other one.
  trace.refusal = Annotate(held, absl::StrCat("phase ", PhaseName(request.phase)));
  return trace;
}

}  // namespace switchyard
