#include "services/convert/group.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/protocol_version.h"
#include "services/convert/protocol_version.h"

namespace switchyard {
namespace {

// SourceKeys and GroupKeys have the same members.
template <typename Keys>
void EncodeKeys(const Keys& in, v1::GroupKeys* out) {
  for (const std::string& key : in.keys) out->add_keys(key);
  out->set_log(in.log);
  out->set_group(in.group);
}
template <typename Keys>
Keys DecodeKeys(const v1::GroupKeys& in) {
  return {.keys = {in.keys().begin(), in.keys().end()}, .log = in.log(), .group = in.group()};
}

// One overload for each message, so that std::visit does not compile if one is missing.
void EncodeMember(const JoinRequest& in, v1::JoinGroupRequest* message) {
  v1::OpenGroupRequest* out = message->mutable_open();
  EncodeClaims(in.attach, out->mutable_session());
  Encode(in.group, out->mutable_place());
  out->set_source(EnumToProto(in.source));
  out->set_combine_dtype(EnumToProto(in.combine_dtype));
  out->set_key(in.key);
  for (const std::string& log : in.logs) out->add_logs(log);
  out->set_protocol_version(kProtocolVersion);
}
void EncodeMember(const GroupKeys& in, v1::JoinGroupRequest* message) {
  EncodeKeys(in, message->mutable_keys());
}
void EncodeMember(const BindRequest& in, v1::JoinGroupRequest* message) {
  EncodeBind(in, message->mutable_bind());
}
void EncodeMember(const ReleaseRequest& in, v1::JoinGroupRequest* message) {
  message->mutable_release()->set_epoch(in.epoch.value);
}

void EncodeMember(const JoinAnswer& in, v1::JoinGroupResponse* message) {
  message->mutable_joined()->set_key(in.key);
  message->mutable_joined()->set_log(in.log);
  message->mutable_joined()->set_protocol_version(kProtocolVersion);
}
void EncodeMember(const SourceKeys& in, v1::JoinGroupResponse* message) {
  EncodeKeys(in, message->mutable_source_keys());
}
void EncodeMember(const GroupReady& /*in*/, v1::JoinGroupResponse* message) {
  message->mutable_ready();
}
void EncodeMember(const BindAnswer& in, v1::JoinGroupResponse* message) {
  EncodeBound(in, message->mutable_bound());
}

void DecodeOpen(Decoder& at, const v1::OpenGroupRequest& in, JoinRequest* out) {
  at.Sub("session", in.has_session(), [&] { DecodeClaims(at, in.session(), &out->attach); });
  at.Sub("place", in.has_place(), [&] { Decode(at, in.place(), &out->group); });
  at.Enum("source", in.source(), &out->source);
  at.OptionalEnum<DispatchDtype>("combine_dtype", in.combine_dtype(), &out->combine_dtype);
  out->key = in.key();
  out->logs = {in.logs().begin(), in.logs().end()};
}

GroupMessage DecodeRequest(Decoder& at, const v1::JoinGroupRequest& proto) {
  switch (proto.message_case()) {
    case v1::JoinGroupRequest::kOpen: {
      JoinRequest out;
      at.Sub("open", true, [&] { DecodeOpen(at, proto.open(), &out); });
      return out;
    }
    case v1::JoinGroupRequest::kKeys:
      return DecodeKeys<GroupKeys>(proto.keys());
    case v1::JoinGroupRequest::kBind: {
      BindRequest out;
      at.Sub("bind", true, [&] { DecodeBind(at, proto.bind(), &out); });
      return out;
    }
    case v1::JoinGroupRequest::kRelease:
      return ReleaseRequest{Epoch{proto.release().epoch()}};
    case v1::JoinGroupRequest::MESSAGE_NOT_SET:
      break;
  }
  at.Refuse("message", "is missing or unknown to this version");
  return ReleaseRequest{};
}

GroupAnswer DecodeResponse(Decoder& at, const v1::JoinGroupResponse& proto) {
  switch (proto.message_case()) {
    case v1::JoinGroupResponse::kJoined:
      return JoinAnswer{.key = proto.joined().key(), .log = proto.joined().log()};
    case v1::JoinGroupResponse::kSourceKeys:
      return DecodeKeys<SourceKeys>(proto.source_keys());
    case v1::JoinGroupResponse::kReady:
      return GroupReady{};
    case v1::JoinGroupResponse::kBound: {
      BindAnswer out;
      at.Sub("bound", true, [&] { DecodeBound(at, proto.bound(), &out); });
      return out;
    }
    case v1::JoinGroupResponse::MESSAGE_NOT_SET:
      break;
  }
  at.Refuse("message", "is missing or unknown to this version");
  return GroupReady{};
}

}  // namespace

void Encode(const GroupGrant& in, v1::GroupPlace* out) {
  out->set_group_id(ToHex(in.id));
  out->set_source(static_cast<std::uint32_t>(in.source));
  out->set_sources(static_cast<std::uint32_t>(in.sources));
  for (const std::string& host : in.hosts) out->add_hosts(host);
  out->set_in_step(in.in_step);
}

void Decode(Decoder& at, const v1::GroupPlace& in, GroupGrant* out) {
  at.Id("group_id", in.group_id(), &out->id);
  at.Int("source", in.source(), &out->source);
  at.Int("sources", in.sources(), &out->sources);
  out->hosts = {in.hosts().begin(), in.hosts().end()};
  out->in_step = in.in_step();
}

v1::JoinGroupRequest ToProto(const GroupMessage& message) {
  v1::JoinGroupRequest out;
  std::visit([&out](const auto& in) { EncodeMember(in, &out); }, message);
  return out;
}

absl::StatusOr<GroupMessage> FromProto(const v1::JoinGroupRequest& proto) {
  if (proto.has_open()) {
    SY_RETURN_IF_ERROR(CheckProtocolVersion("source", proto.open().protocol_version()));
  }
  Decoder at("JoinGroupRequest");
  GroupMessage message = DecodeRequest(at, proto);
  return at.Finish(std::move(message));
}

v1::JoinGroupResponse ToProto(const GroupAnswer& answer) {
  v1::JoinGroupResponse out;
  std::visit([&out](const auto& in) { EncodeMember(in, &out); }, answer);
  return out;
}

absl::StatusOr<GroupAnswer> FromProto(const v1::JoinGroupResponse& proto) {
  if (proto.has_joined()) {
    SY_RETURN_IF_ERROR(CheckProtocolVersion("worker", proto.joined().protocol_version()));
  }
  Decoder at("JoinGroupResponse");
  GroupAnswer answer = DecodeResponse(at, proto);
  return at.Finish(std::move(answer));
}

}  // namespace switchyard
