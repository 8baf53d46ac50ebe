// The sessions of an engine whose steps are of several kinds, and which of them a step goes
// through.
//
// A session has one phase and one mode. Prompts go through the session of prefill; decode steps,
// extends of a draft and steps that are captured into a graph through that of decode, whose config
// and deadline are made for few tokens. The mode of each is the choice's:
//
//   choice       session of prefill   session of decode
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

struct StepSessionsOrder {
  // What the sessions have in common. Its phase is the part of inference that the engine does:
  // prefill or decode alone open the one session of that phase, mixed opens both. Its mode and
  // max_tokens stay unset: the fields below say them.
  OpenSessionRequest common;
  std::optional<ModeChoice> choice = {};  // unset: the plan's mode for each phase
  // Largest batch of one step, in tokens; 0: the default of the session's mode.
  std::int32_t prefill_max_tokens = 0;
  std::int32_t decode_max_tokens = 0;
};

class StepSessions {
 public:
  // Blocks until every worker is attached, and while the deployment has no committed epoch at most
  // `ready_timeout` for each session. `client` outlives the sessions. Nothing stays open after an
  // error. Errors: kInvalidArgument (BAD_REQUEST) for a `common` that names a mode or max_tokens;
  // those of Client::OpenWhenReady.
  static absl::StatusOr<std::unique_ptr<StepSessions>> Open(Client& client,
                                                            const StepSessionsOrder& order,
                                                            Duration ready_timeout);

  // The session for steps of this kind: costs no call, so ask for each step. It lives as long as
  // this object. Errors, kFailedPrecondition: UNSUPPORTED for a captured step where the mode that
  // it would travel in has no graphs, so ask once before capturing; BAD_REQUEST for a step of a
  // phase that was not opened.
  [[nodiscard]] absl::StatusOr<MoeSession*> For(const StepKind& step) const;

 private:
  struct Opened {
    std::unique_ptr<MoeSession> session;  // nullptr: not opened
    DispatchMode mode = DispatchMode::kNormal;
  };

  StepSessions() = default;
  absl::Status OpenPhase(Client& client, const StepSessionsOrder& order, Phase phase,
                         Duration ready_timeout);
  Opened& of(Phase phase) { return phase == Phase::kPrefill ? prefill_ : decode_; }
  [[nodiscard]] const Opened& of(Phase phase) const {
    return phase == Phase::kPrefill ? prefill_ : decode_;
  }

  Opened prefill_;
  Opened decode_;
};

}  // namespace switchyard
