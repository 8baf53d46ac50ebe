// Converts gateway steps between the source's seam and the wire. Errors: kInvalidArgument
// (BAD_REQUEST) with the field. The session checks whether the sizes fit the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/session_messages.h"
#include "switchyard/v1/expert.pb.h"
#include "worker/source/step_channel.h"

namespace switchyard {

// A received step. The spans of `step` point into `ids`, `weights` and the message, which must
// outlive them. `ids` and `weights` are copies because the message's bytes need not be aligned.
// Move-only: the spans of a copy would point into the original.
struct ReceivedStep {
  ReceivedStep() = default;
  ReceivedStep(ReceivedStep&&) = default;
  ReceivedStep& operator=(ReceivedStep&&) = default;

  GatewayStep step;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};
// The messages of a gateway stream from the caller.
using ForwardMessage = std::variant<OpenSessionRequest, ReceivedStep>;

// Each function builds or reads one member of the stream's oneof. Rows are copied once into the
// message and never out of it.
v1::ForwardRequest ForwardOpen(const OpenSessionRequest& request);
v1::ForwardRequest ForwardStep(const GatewayStep& step);
// A step or a request to open, whichever is in the message; anything else is refused.
absl::StatusOr<ForwardMessage> FromProto(const v1::ForwardRequest& proto);

// The answer to one step. `y` points into the message, which must outlive it.
struct StepAnswer {
  StepId step;
  absl::Status status;
  std::span<const std::byte> y;
};
// The messages of a gateway stream from the gateway.
using ForwardAnswer = std::variant<GatewayGrant, StepAnswer, GatewayNews>;

// An error in `answer.status` is part of the message and not an error of the conversion.
v1::ForwardResponse ForwardOpened(const GatewayGrant& grant);
v1::ForwardResponse ForwardResult(const StepAnswer& answer);
v1::ForwardResponse ForwardNews(const GatewayNews& news);
absl::StatusOr<ForwardAnswer> FromProto(const v1::ForwardResponse& proto);

}  // namespace switchyard
