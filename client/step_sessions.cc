#include "client/step_sessions.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status CheckCommon(const OpenSessionRequest& common) {
  if (!common.mode && common.max_tokens == 0) return absl::OkStatus();
  const std::string field = common.mode ? "mode" : "max_tokens";
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
      absl::StrCat("common.", field, " would apply to both sessions; ",
                   common.mode ? "give choice" : "give prefill_max_tokens and decode_max_tokens"),
      {{"field", field}});
}

// All steps of a phase travel in one mode, so any step of the phase gives the session's mode.
std::optional<DispatchMode> ModeOfPhase(std::optional<ModeChoice> choice, Phase phase) {
  if (!choice) return std::nullopt;
  return ModeOfStep(*choice, {.extend = phase == Phase::kPrefill});
}

absl::Status NotOpened(Phase phase) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kBadRequest,
      absl::StrFormat("there is no session for steps of phase %s; open the sessions with "
                      "phase mixed",
                      PhaseName(phase)),
      {{"phase", std::string(PhaseName(phase))}});
}

absl::Status NoGraphs(DispatchMode mode) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                   absl::StrCat(WhyNoGraphs(mode),
                                "; choose low_latency or auto, or run the step without a graph"),
                   {{"mode", std::string(DispatchModeName(mode))}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepSessions>> StepSessions::Open(Client& client,
                                                                 const StepSessionsRequest& request,
                                                                 Duration ready_timeout) {
  SY_RETURN_IF_ERROR(CheckCommon(request.common));
  std::unique_ptr<StepSessions> sessions(new StepSessions);
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    // Mixed opens both, each with its own mode and size.
    if (request.common.phase != phase && request.common.phase != Phase::kMixed) continue;
    SY_RETURN_IF_ERROR(sessions->OpenPhase(client, request, phase, ready_timeout));
  }
  return sessions;
}

absl::Status StepSessions::OpenPhase(Client& client, const StepSessionsRequest& request,
                                     Phase phase, Duration ready_timeout) {
  OpenSessionRequest one = request.common;
  one.phase = phase;
  one.mode = ModeOfPhase(request.choice, phase);
  one.max_tokens =
      phase == Phase::kPrefill ? request.prefill_max_tokens : request.decode_max_tokens;
  SY_ASSIGN_OR_RETURN(std::unique_ptr<MoeSession> session,
                      client.OpenWhenReady(one, ready_timeout));
  SY_ASSIGN_OR_RETURN(const SessionGrant grant, session->Grant());
  // If the grant names no mode, assume normal, which has no graphs.
  of(phase) = {std::move(session), grant.request.mode.value_or(DispatchMode::kNormal)};
  return absl::OkStatus();
}

absl::StatusOr<MoeSession*> StepSessions::For(const StepKind& step) const {
  const Phase phase = PhaseOfStep(step);
  const Opened& opened = of(phase);
  if (opened.session == nullptr) return NotOpened(phase);
  // Refused here: a graph that was captured in normal mode would replay with other rows.
  if (step.graph_capture && !SupportsGraphs(opened.mode)) return NoGraphs(opened.mode);
  return opened.session.get();
}

}  // namespace switchyard
