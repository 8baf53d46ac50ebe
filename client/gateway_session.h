// A session through a gateway worker: steps as bytes over one gRPC stream, for a process without
// UCX.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "client/moe_session.h"
#include "worker/device/device_backend.h"
#include "worker/source/step_channel.h"

namespace switchyard {

struct GatewaySessionParts {
  StepChannel* steps = nullptr;        // these four outlive the session
  SessionChannel* sessions = nullptr;  // asked for counters
  const DeviceBackend* device = nullptr;
  const Clock* clock = nullptr;
  Duration timeout{};
};

struct OpenedGateway {
  std::unique_ptr<MoeSession> session;
  std::string worker_id;  // the gateway's
};

// Blocks until the gateway has opened its session, at most `parts.timeout`. Errors as the gateway's
// OpenSession; kUnavailable (TRANSPORT) when it cannot be reached.
absl::StatusOr<OpenedGateway> OpenGatewaySession(const GatewaySessionParts& parts,
                                                 const OpenSessionRequest& order);

}  // namespace switchyard
