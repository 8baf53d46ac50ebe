// A session over the p2p binding: a thin owner of one of a Source's sessions.
#pragma once

#include <memory>

#include "client/moe_session.h"
#include "worker/source/source.h"

namespace switchyard {

// `source` and `channel` outlive the session; `timeout` bounds its close.
std::unique_ptr<MoeSession> MakeSourceMoeSession(Source* source, Source::SessionRef session,
                                                 SessionChannel* channel, Duration timeout);

// The counters of every worker of the plan, empty from one that does not know the session; a worker
// that cannot be asked fails the call.
absl::StatusOr<std::vector<SessionCounters>> AskWorkers(SessionChannel& channel, const Plan& plan,
                                                        SessionId session, Duration timeout);

}  // namespace switchyard
