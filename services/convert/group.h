// Converts the messages of a group's streams between core and the wire. As in convert/plan.h,
// FromProto restores exactly the value given to ToProto. Errors: kInvalidArgument (BAD_REQUEST)
// with the field; those of CheckProtocolVersion. Pure; thread-safe.
#pragma once

#include <variant>

#include "absl/status/statusor.h"

#include "core/group_messages.h"
#include "core/session_messages.h"
#include "services/convert/attach.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/expert.pb.h"
#include "switchyard/v1/session.pb.h"

namespace switchyard {

void Encode(const GroupGrant& in, v1::GroupPlace* out);
void Decode(Decoder& at, const v1::GroupPlace& in, GroupGrant* out);

// From a source.
using GroupMessage = std::variant<JoinRequest, GroupKeys, BindRequest, ReleaseRequest>;
// From a worker.
struct GroupReady {
  friend bool operator==(const GroupReady&, const GroupReady&) = default;
};
using GroupAnswer = std::variant<JoinAnswer, SourceKeys, GroupReady, BindAnswer>;

v1::JoinGroupRequest ToProto(const GroupMessage& message);
absl::StatusOr<GroupMessage> FromProto(const v1::JoinGroupRequest& proto);
v1::JoinGroupResponse ToProto(const GroupAnswer& answer);
absl::StatusOr<GroupAnswer> FromProto(const v1::JoinGroupResponse& proto);

}  // namespace switchyard
