#include "coordinator/session_request.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "coordinator/config_planner.h"
#include "core/base/error.h"
#include "core/base/name.h"
#include "core/base/status_macros.h"
#include "core/resolve/collective_group.h"
#include "core/resolve/dispatch_resolver.h"
#include "core/resolve/mode_limits.h"

namespace switchyard {
namespace {

// A decode step is short, so that a worker that does not answer within a second is better replaced;
// a prefill step may take its time.
constexpr Duration kDecodeDeadline = std::chrono::seconds(1);
constexpr Duration kOtherDeadline = std::chrono::seconds(60);

absl::Status BadSession(const OpenSessionRequest& request, Reason reason, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason,
                   absl::StrFormat("session of deployment %s: %s", request.deployment, what),
                   {{"deployment", request.deployment}});
}

// Refused here, where the phases that exist can be listed: without a config for its phase the
// source could not make a single step.
absl::Status CheckPhase(const OpenSessionRequest& request, const DeploymentSpec& spec) {
  if (spec.Serves(request.phase)) return absl::OkStatus();
  std::vector<std::string> served;
  for (const PhaseSpec& phase : spec.phases) served.emplace_back(PhaseName(phase.phase));
  return BadSession(request, Reason::kBadRequest,
                    absl::StrFormat("phase %s is not served; ask for one of: %s",
                                    PhaseName(request.phase), absl::StrJoin(served, ", ")));
}

// The mode of a phase is the same for every layer and worker, so that the first config will do.
absl::StatusOr<DispatchConfig> FindConfig(const OpenSessionRequest& request, const Plan& plan) {
  for (const DispatchConfig& config : plan.configs) {
    if (config.phase == request.phase && config.edge.source == request.source) return config;
  }
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrFormat("deployment %s has no dispatch configs for sources of kind %s",
                                   plan.deployment, DeviceKindName(request.source)),
                   {{"deployment", plan.deployment}});
}

absl::Status CheckTokens(const OpenSessionRequest& request, std::int32_t limit) {
  if (request.max_tokens > 0 && request.max_tokens <= limit) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens,
      absl::StrFormat("session of deployment %s: max_tokens %d, and %s mode takes 1 to %d; split "
                      "the batch, or ask for normal mode",
                      request.deployment, request.max_tokens, DispatchModeName(*request.mode),
                      limit),
      {{"deployment", request.deployment},
       {"want", absl::StrCat(request.max_tokens)},
       {"have", absl::StrCat(limit)}});
}

CollectiveDemand DemandOf(const OpenSessionRequest& request) {
  return {.phase = request.phase,
          .mode = *request.mode,
          .source = request.source,
          .max_tokens = request.max_tokens,
          .sources = request.group.sources,
          .hosts = request.group.hosts,
          .combine_dtype = request.combine_dtype};
}

// Also where the group may turn out to be none: such a place is a mistake of the source.
absl::Status CheckPlace(const OpenSessionRequest& request) {
  const GroupRequest& group = request.group;
  if (group.source < 0 || group.source >= group.sources ||
      (group.sources > 1 && group.name.empty()) || group.name.size() > kGroupNameMax) {
    return BadSession(request, Reason::kBadRequest,
                      absl::StrFormat("source %d of %d of group \"%s\"; sources count from 0, and "
                                      "several of them need a name of at most %d characters",
                                      group.source, group.sources, group.name, kGroupNameMax));
  }
  if (group.hosts.size() > static_cast<std::size_t>(kGroupSourcesMax)) {
    return BadSession(request, Reason::kBadRequest,
                      absl::StrFormat("%d hosts of a group, which has at most %d sources",
                                      group.hosts.size(), kGroupSourcesMax));
  }
  for (const std::string& host : group.hosts) {
    if (host.empty() || IsName(host)) continue;
    return BadSession(request, Reason::kBadRequest,
                      "the hosts of a group are the ids of the workers in whose processes its "
                      "sources are, or empty");
  }
  if (group.obstacle.size() <= kGroupObstacleMax) return absl::OkStatus();
  return BadSession(request, Reason::kBadRequest,
                    absl::StrFormat("an obstacle of %d bytes, and the most are %d",
                                    group.obstacle.size(), kGroupObstacleMax));
}

absl::Status CheckGroup(const OpenSessionRequest& request, const Plan& plan,
                        std::span<const CapabilitySet> workers) {
  SY_RETURN_IF_ERROR(CheckPlace(request));
  if (request.strict || request.record_amax) {
    return BadSession(request, Reason::kBadRequest,
                      absl::StrCat("a collective session is neither strict nor does it record "
                                   "magnitudes",
                                   kAskForP2p));
  }
  SY_RETURN_IF_ERROR(CheckLockstepGroup(workers));
  return ResolveCollective(plan, DemandOf(request)).status();
}

// `request` has a binding.
absl::StatusOr<OpenSessionRequest> FillIn(const OpenSessionRequest& request,
                                          const DeploymentRecord& deployment, const Plan& plan,
                                          std::span<const CapabilitySet> workers) {
  OpenSessionRequest full = request;
  full.deployment = deployment.spec.name;
  if (full.model.empty()) full.model = deployment.spec.model;
  // A deployment named together with another model is a mistake, and rows of the wrong model could
  // have the right shape.
  if (full.model != deployment.spec.model) {
    return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel,
                     absl::StrFormat("deployment %s serves model %s, not %s", full.deployment,
                                     deployment.spec.model, full.model),
                     {{"deployment", full.deployment}, {"model", full.model}});
  }
  SY_RETURN_IF_ERROR(CheckPhase(full, deployment.spec));
  SY_ASSIGN_OR_RETURN(const DispatchConfig config, FindConfig(full, plan));
  if (!full.mode) full.mode = config.mode;
  const bool low_latency = *full.mode == DispatchMode::kLowLatency;
  const std::int32_t limit = low_latency ? deployment.spec.max_tokens_per_step : kMaxNormalTokens;
  // The planner checked the limits of its own mode. Another one has to be checked now, for the
  // workers that the plan has.
  if (*full.mode != config.mode) {
    SY_RETURN_IF_ERROR(
        CheckModeLimits(*full.mode, plan.shape, deployment.spec.max_tokens_per_step, workers));
  }
  // The default of low latency is its limit: slots are sized for it anyway. In normal mode the
  // limit would make the source allocate far more than a usual batch needs.
  if (full.max_tokens == 0) {
    full.max_tokens = low_latency ? limit : kDefaultNormalTokens;
    if (full.binding == BindingChoice::kCollective) {
      const std::int32_t most = GroupTokensMax(plan, DemandOf(full));
      const std::int32_t usual = std::min(full.max_tokens, kDefaultGroupTokens);
      if (most > 0) full.max_tokens = std::min(usual, most);
    }
  }
  SY_RETURN_IF_ERROR(CheckTokens(full, limit));
  if (full.step_deadline < Duration::zero() || full.step_deadline > kStepDeadlineMax) {
    return BadSession(full, Reason::kBadRequest, "step_deadline must be 0 (the default) to 24 h");
  }
  if (full.step_deadline == Duration::zero()) {
    full.step_deadline = full.phase == Phase::kDecode ? kDecodeDeadline : kOtherDeadline;
  }
  if (full.binding == BindingChoice::kCollective) {
    SY_RETURN_IF_ERROR(CheckGroup(full, plan, workers));
  } else if (full.combine_dtype != DispatchDtype::kBf16) {
    return BadSession(
        full, Reason::kBadRequest,
        absl::StrFormat("answers come back as %s in collective sessions only; ask for "
                        "binding collective, or for bf16",
                        DispatchDtypeName(full.combine_dtype)));
  }
  return full;
}

// The request for a place in the group that the source names. An error says what is in the way.
absl::StatusOr<OpenSessionRequest> TryGroup(const OpenSessionRequest& request,
                                            const DeploymentRecord& deployment, const Plan& plan,
                                            std::span<const CapabilitySet> workers,
                                            absl::string_view obstacle) {
  const GroupRequest& group = request.group;
  if (!group.device.has_value()) {
    return absl::FailedPreconditionError("the source offers no device as a rank of a group");
  }
  if (!group.obstacle.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this source cannot be in group ", group.name, ": ", group.obstacle));
  }
  if (!obstacle.empty()) return absl::FailedPreconditionError(obstacle);
  OpenSessionRequest grouped = request;
  grouped.binding = BindingChoice::kCollective;
  grouped.source = *group.device;
  return FillIn(grouped, deployment, plan, workers);
}

absl::StatusOr<CompleteSession> Choose(const OpenSessionRequest& request,
                                       const DeploymentRecord& deployment, const Plan& plan,
                                       std::span<const CapabilitySet> workers,
                                       absl::string_view obstacle) {
  CompleteSession session{.request = request,
                          .reason = "auto is p2p for a source that names no group"};
  session.request.binding = BindingChoice::kP2p;
  if (request.group != GroupRequest()) SY_RETURN_IF_ERROR(CheckPlace(request));
  if (request.group.name.empty()) {
    session.request.group = {};
  } else {
    auto grouped = TryGroup(request, deployment, plan, workers, obstacle);
    if (grouped.ok()) {
      return CompleteSession{*std::move(grouped), "auto is collective where the group can be"};
    }
    session.reason =
        absl::StrCat("auto is p2p: ", absl::StripSuffix(grouped.status().message(), kAskForP2p));
    session.request.combine_dtype = DispatchDtype::kBf16;  // coarser sums are allowed, not required
  }
  SY_ASSIGN_OR_RETURN(session.request, FillIn(session.request, deployment, plan, workers));
  return session;
}

}  // namespace

absl::StatusOr<CompleteSession> CompleteSessionRequest(const OpenSessionRequest& request,
                                                       const DeploymentRecord& deployment,
                                                       const Plan& plan,
                                                       std::span<const CapabilitySet> workers,
                                                       absl::string_view obstacle) {
  if (request.binding == BindingChoice::kAuto) {
    return Choose(request, deployment, plan, workers, obstacle);
  }
  CompleteSession session{.request = request, .reason = "the source asked for it"};
  session.request.group.obstacle.clear();
  if (request.binding == BindingChoice::kP2p) session.request.group = {};
  SY_ASSIGN_OR_RETURN(session.request, FillIn(session.request, deployment, plan, workers));
  return session;
}

}  // namespace switchyard
