// Deployments and workers between the coordinator's view and the wire. Requests are decoded as
// strictly as everything else; views are only encoded, their readers print them.
#pragma once

#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "coordinator/view.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

// The coordinator's defaults are no part of it: see DeploymentView.
void Encode(const DeploymentSpec& in, v1::DeploymentSpec* out);
// Defaults stay unset: CompleteSpec fills them in.
void Decode(Decoder& at, const v1::DeploymentSpec& in, DeploymentSpec* out);
// The request's deployment. Errors: kInvalidArgument (BAD_REQUEST) naming the field.
absl::StatusOr<DeploymentSpec> FromProto(const v1::ApplyDeploymentRequest& proto);

void Encode(const DispatchDefaults& in, v1::DispatchDefaults* out);
void Encode(const DeploymentView& in, v1::Deployment* out);
void Encode(const WorkerView& in, v1::Worker* out);

}  // namespace switchyard
