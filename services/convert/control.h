// Converts the messages of the control stream between core and the wire. As in convert/plan.h,
// FromProto restores exactly the value given to ToProto. Errors: kInvalidArgument (BAD_REQUEST)
// with the field; for the first message in each direction also those of CheckProtocolVersion. Pure;
// thread-safe.
#pragma once

#include "absl/status/statusor.h"

#include "core/control_messages.h"
#include "switchyard/v1/worker_control.pb.h"

namespace switchyard {

v1::SessionRequest ToProto(const WorkerMessage& message);
absl::StatusOr<WorkerMessage> FromProto(const v1::SessionRequest& proto);

// A message without a known member is refused: it comes from a newer version, and acting on half of
// it could lose an epoch.
v1::SessionResponse ToProto(const CoordinatorMessage& message);
absl::StatusOr<CoordinatorMessage> FromProto(const v1::SessionResponse& proto);

}  // namespace switchyard
