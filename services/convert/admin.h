// Converts deployments and workers between the coordinator's view and the wire. Requests are
// decoded as strictly as all other messages. Views are only encoded, because clients print the
// protos themselves.
#pragma once

#include "absl/status/statusor.h"

#include "coordinator/spec/deployment.h"
#include "coordinator/view.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

// Does not include the coordinator's defaults, which are part of DeploymentView.
void Encode(const DeploymentSpec& in, v1::DeploymentSpec* out);
// Leaves defaults unset; CompleteSpec fills them in.
void Decode(Decoder& at, const v1::DeploymentSpec& in, DeploymentSpec* out);
// The request's deployment. Errors: kInvalidArgument (BAD_REQUEST) with the field.
absl::StatusOr<DeploymentSpec> FromProto(const v1::ApplyDeploymentRequest& proto);

// The defaults at the time of apply; they explain decisions later.
void Encode(const DispatchDefaults& in, v1::DispatchDefaults* out);
// Without its deployments.
void Encode(const ServedModel& in, v1::Model* out);
void Encode(const DeploymentView& in, v1::Deployment* out);
void Encode(const WorkerView& in, v1::Worker* out);

}  // namespace switchyard
