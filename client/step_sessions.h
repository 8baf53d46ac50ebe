// The sessions of an engine that has several kinds of steps, and the choice of session for a step.
//
// A session has one phase and one mode. Prompts go through the prefill session; decode steps,
// extends of a draft and steps that are captured into a graph go through the decode session, whose
// config and deadline are made for few tokens. The choice gives the mode of each:
//
//   choice       prefill session      decode session
//   unset        the plan's           the plan's
//   auto         normal               low_latency
//   normal       normal               normal
//   low_latency  low_latency          low_latency
//
// Immutable once open; thread-safe as its sessions are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"

#include "client/client.h"
#include "core/resolve/mode_resolver.h"

namespace switchyard {

struct StepSessionsRequest {
  // The options that both sessions share. Its phase is the engine's part of inference: prefill or
  // decode opens only that phase's session, mixed opens both. Its mode and max_tokens stay unset:
  // the fields below give them.
  OpenSessionRequest common;
  std::optional<ModeChoice> choice = {};  // unset: the plan's mode for each phase
  // Largest batch of one step, in tokens; 0: the default of the session's mode.
  std::int32_t prefill_max_tokens = 0;
  std::int32_t decode_max_tokens = 0;
};

class StepSessions {
 public:
  // Blocks until every worker is attached, and while the deployment has no committed epoch at most
  // `ready_timeout` for each session. `client` outlives the sessions. After an error nothing stays
  // open. Errors: kInvalidArgument (BAD_REQUEST) for a `common` that names a mode or max_tokens;
  // those of Client::OpenWhenReady.
  static absl::StatusOr<std::unique_ptr<StepSessions>> Open(Client& client,
                                                            const StepSessionsRequest& request,
                                                            Duration ready_timeout);

  // The session for steps of this kind; a table look-up, cheap enough for each step. It lives as
  // long as this object. Errors, kFailedPrecondition: UNSUPPORTED for a captured step whose mode
  // has no graphs, so call this once before capturing; BAD_REQUEST for a phase that was not opened.
  [[nodiscard]] absl::StatusOr<MoeSession*> For(const StepKind& step) const;

 private:
  struct Opened {
    std::unique_ptr<MoeSession> session;  // nullptr: not opened
    DispatchMode mode = DispatchMode::kNormal;
  };

  StepSessions() = default;
  absl::Status OpenPhase(Client& client, const StepSessionsRequest& request, Phase phase,
                         Duration ready_timeout);
  Opened& of(Phase phase) { return phase == Phase::kPrefill ? prefill_ : decode_; }
  [[nodiscard]] const Opened& of(Phase phase) const {
    return phase == Phase::kPrefill ? prefill_ : decode_;
  }

  Opened prefill_;
  Opened decode_;
};

}  // namespace switchyard
