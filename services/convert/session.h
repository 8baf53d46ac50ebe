// Converts the messages that open, close and watch sessions between core and the wire. As in
// convert/plan.h, FromProto restores exactly the value given to ToProto. Errors: kInvalidArgument
// (BAD_REQUEST) with the field. Pure; thread-safe.
#pragma once

#include "absl/status/statusor.h"

#include "core/session_messages.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/coordinator.pb.h"
#include "switchyard/v1/session.pb.h"

namespace switchyard {

void Encode(const GroupRequest& in, v1::GroupOptions* out);
void Decode(Decoder& at, const v1::GroupOptions& in, GroupRequest* out);
void Encode(const OpenSessionRequest& in, v1::SessionOptions* out);
// An unknown phase or mode is refused: a default instead would serve the wrong config.
// Fields that are not set get the defaults in session.proto.
void Decode(Decoder& at, const v1::SessionOptions& in, OpenSessionRequest* out);
// Do not convert cookie and signature, which are secrets: OpenSessionResponse carries them beside
// the grant.
void Encode(const SessionGrant& in, v1::SessionGrant* out);
void Decode(Decoder& at, const v1::SessionGrant& in, SessionGrant* out);

// The whole messages, with their errors' paths starting at the message's name. Errors also: those
// of CheckProtocolVersion.
v1::OpenSessionRequest ToProto(const OpenSessionRequest& request);
absl::StatusOr<OpenSessionRequest> FromProto(const v1::OpenSessionRequest& proto);

// The grant with its cookie and its signature.
v1::OpenSessionResponse ToProto(const SessionGrant& grant);
absl::StatusOr<SessionGrant> FromProto(const v1::OpenSessionResponse& proto);

// Closing and watching name a session by its id and never by its cookie.
v1::CloseSessionRequest ToProto(SessionId session);
absl::StatusOr<SessionId> FromProto(const v1::CloseSessionRequest& proto);

// The epoch and the hash say which plan the caller already has.
v1::WatchPlanRequest ToProto(const WatchRequest& request);
absl::StatusOr<WatchRequest> FromProto(const v1::WatchPlanRequest& proto);

v1::WatchPlanResponse ToProto(const PlanUpdate& update);
absl::StatusOr<PlanUpdate> FromProto(const v1::WatchPlanResponse& proto);

}  // namespace switchyard
