// Requests for tests of the resolver: workers that proved everything their profile allows.
#pragma once

#include <string>
#include <vector>

#include "core/resolve/dispatch_resolver.h"

namespace switchyard::testing {

inline CapabilitySet Everything(const std::string& profile_name) {
  const DeviceProfile& profile = *FindDeviceProfile(profile_name);
  CapabilitySet can;
  can.device = profile.kind;
  can.device_profile = profile_name;
  for (std::size_t i = 0; i < profile.wire.size(); ++i) {
    if (profile.wire[i].support == WireSupport::kNative) {
      can.wire_dtypes.push_back(static_cast<DispatchDtype>(i));
    }
  }
  for (const QuantSchemeInfo& info : AllQuantSchemes()) can.schemes.push_back(info.scheme);
  return can;
}

// A request and the workers that it looks at. `layer` 3 of model m, phase decode, from a CPU.
struct Case {
  explicit Case(const std::string& profile, std::size_t count = 2)
      : workers(count, Everything(profile)) {
    request.deployment = "chat";
    request.model = "m";
    request.layer.layer = LayerId{3};
    request.phase = Phase::kDecode;
    request.source = Everything("cpu");
    request.shape = {.hidden = 7168, .intermediate = 2048, .experts = 256, .top_k = 8};
    request.tokens = 128;
  }
  Case& Scheme(std::optional<QuantScheme> scheme) {
    request.layer.scheme = scheme;
    return *this;
  }
  Case& Ask(std::optional<DispatchDtype> dtype, const std::string& source = "deployment chat") {
    request.overrides.push_back({"", {}, {}, dtype, source});
    return *this;
  }
  // Layer 61, a draft without quant config.
  Case& Draft(RunnerBackend runner = RunnerBackend::kAuto) {
    request.layer = LayerFacts();
    request.layer.layer = LayerId{61};
    request.layer.role = LayerRole::kDraft;
    request.layer.runner = runner;
    return *this;
  }
  Case& In(Phase phase) {
    request.phase = phase;
    return *this;
  }
  Case& Scale(float scale = 448.0F) {
    Config().input_global_scale = scale;
    return *this;
  }
  LayerQuantConfig& Config() {
    if (!request.layer.quant_config) request.layer.quant_config.emplace();
    return *request.layer.quant_config;
  }
  [[nodiscard]] DecisionTrace Trace() {
    request.workers = workers;
    return TraceDispatch(request);
  }
  [[nodiscard]] absl::StatusOr<DecisionTrace> Resolve() {
    request.workers = workers;
    return ResolveDispatch(request);
  }

  std::vector<CapabilitySet> workers;
  DispatchRequest request;
};

// "fp8", or "FAILED_PRECONDITION" when it is refused.
inline std::string DtypeOf(Case& a_case) {
  const DecisionTrace trace = a_case.Trace();
  if (trace.outcome) return std::string(DispatchDtypeName(trace.outcome->dtype()));
  return absl::StatusCodeToString(trace.refusal.code());
}

inline std::string DtypeOf(Case&& a_case) { return DtypeOf(a_case); }

// The ids of all warnings, comma between them.
inline std::string WarningsOf(const DecisionTrace& trace) {
  std::string ids;
  for (const Warning& warning : trace.warnings) {
    ids += (ids.empty() ? "" : ",") + std::string(WarningName(warning.id));
  }
  return ids;
}

}  // namespace switchyard::testing
