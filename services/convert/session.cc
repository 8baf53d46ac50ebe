#include "services/convert/session.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/protocol_version.h"
#include "services/convert/group.h"
#include "services/convert/plan.h"
#include "services/convert/protocol_version.h"
#include "services/convert/tracing.h"

namespace switchyard {

void Encode(const GroupRequest& in, v1::GroupOptions* out) {
  out->set_name(in.name);
  out->set_source(static_cast<std::uint32_t>(in.source));
  out->set_sources(static_cast<std::uint32_t>(in.sources));
  for (const std::string& host : in.hosts) out->add_hosts(host);
  out->set_in_step(in.in_step);
  if (in.device.has_value()) out->set_device(EnumToProto(*in.device));
  out->set_obstacle(in.obstacle);
}

void Decode(Decoder& at, const v1::GroupOptions& in, GroupRequest* out) {
  out->name = in.name();
  at.Int("source", in.source(), &out->source);
  at.Int("sources", in.sources(), &out->sources);
  out->hosts = {in.hosts().begin(), in.hosts().end()};
  out->in_step = in.in_step();
  at.OptionalEnum<DeviceKind>("device", in.device(), &out->device);
  out->obstacle = in.obstacle();
}

void Encode(const OpenSessionRequest& in, v1::SessionOptions* out) {
  out->set_deployment(in.deployment);
  out->set_model(in.model);
  out->set_phase(EnumToProto(in.phase));
  if (in.mode.has_value()) out->set_mode(EnumToProto(*in.mode));
  out->set_max_tokens(static_cast<std::uint32_t>(in.max_tokens));
  out->set_y_dtype(EnumToProto(in.y_dtype));
  out->set_combine_dtype(EnumToProto(in.combine_dtype));
  out->set_strict(in.strict);
  EncodeTime(in.step_deadline, out->mutable_step_deadline());
  out->set_source(EnumToProto(in.source));
  out->set_record_amax(in.record_amax);
  out->set_binding(EnumToProto(in.binding));
  if (in.group != GroupRequest()) Encode(in.group, out->mutable_group());
}

void Decode(Decoder& at, const v1::SessionOptions& in, OpenSessionRequest* out) {
  out->deployment = in.deployment();
  out->model = in.model();
  at.OptionalEnum<Phase>("phase", in.phase(), &out->phase);
  // An unset mode means "the plan's mode for the phase", so it has no default here.
  at.OptionalEnum<DispatchMode>("mode", in.mode(), &out->mode);
  at.Int("max_tokens", in.max_tokens(), &out->max_tokens);
  at.OptionalEnum<OutputDtype>("y_dtype", in.y_dtype(), &out->y_dtype);
  at.OptionalEnum<DispatchDtype>("combine_dtype", in.combine_dtype(), &out->combine_dtype);
  out->strict = in.strict();
  at.Time("step_deadline", in.step_deadline(), &out->step_deadline);
  at.OptionalEnum<DeviceKind>("source", in.source(), &out->source);
  out->record_amax = in.record_amax();
  at.OptionalEnum<BindingChoice>("binding", in.binding(), &out->binding);
  if (!in.has_group()) return;
  at.Sub("group", true, [&] { Decode(at, in.group(), &out->group); });
}

void Encode(const SessionGrant& in, v1::SessionGrant* out) {
  out->set_session_id(ToHex(in.session));
  Encode(in.request, out->mutable_options());
  Encode(in.plan, out->mutable_plan());
  EncodeDigest(in.hash, out->mutable_plan_hash());
  if (in.binding == Binding::kCollective) Encode(in.group, out->mutable_group());
  if (in.tracing != TraceSettings()) Encode(in.tracing, out->mutable_tracing());
  out->set_binding_reason(in.binding_reason);
}

void Decode(Decoder& at, const v1::SessionGrant& in, SessionGrant* out) {
  at.Id("session_id", in.session_id(), &out->session);
  at.Sub("options", in.has_options(), [&] { Decode(at, in.options(), &out->request); });
  at.Sub("plan", in.has_plan(), [&] { Decode(at, in.plan(), &out->plan); });
  at.Digest("plan_hash", in.plan_hash(), &out->hash);
  if (in.has_tracing()) {
    at.Sub("tracing", true, [&] { Decode(at, in.tracing(), &out->tracing); });
  }
  out->binding_reason = in.binding_reason();
  if (!in.has_group()) return;
  out->binding = Binding::kCollective;
  at.Sub("group", true, [&] { Decode(at, in.group(), &out->group); });
}

v1::OpenSessionRequest ToProto(const OpenSessionRequest& request) {
  v1::OpenSessionRequest out;
  Encode(request, out.mutable_options());
  out.set_protocol_version(kProtocolVersion);
  out.set_on_behalf_of(request.on_behalf_of);
  return out;
}

absl::StatusOr<OpenSessionRequest> FromProto(const v1::OpenSessionRequest& proto) {
  SY_RETURN_IF_ERROR(CheckProtocolVersion("source", proto.protocol_version()));
  Decoder at("OpenSessionRequest");
  OpenSessionRequest request;
  at.Sub("options", proto.has_options(), [&] { Decode(at, proto.options(), &request); });
  request.on_behalf_of = proto.on_behalf_of();
  return at.Finish(std::move(request));
}

v1::OpenSessionResponse ToProto(const SessionGrant& grant) {
  v1::OpenSessionResponse out;
  Encode(grant, out.mutable_grant());
  out.set_cookie(grant.cookie.value);
  EncodeBytes32(grant.signature.bytes, out.mutable_grant_signature());
  out.set_protocol_version(kProtocolVersion);
  return out;
}

absl::StatusOr<SessionGrant> FromProto(const v1::OpenSessionResponse& proto) {
  SY_RETURN_IF_ERROR(CheckProtocolVersion("coordinator", proto.protocol_version()));
  Decoder at("OpenSessionResponse");
  SessionGrant grant;
  at.Sub("grant", proto.has_grant(), [&] { Decode(at, proto.grant(), &grant); });
  grant.cookie.value = proto.cookie();
  at.Bytes32("grant_signature", proto.grant_signature(), &grant.signature.bytes);
  return at.Finish(std::move(grant));
}

v1::CloseSessionRequest ToProto(SessionId session) {
  v1::CloseSessionRequest out;
  out.set_session_id(ToHex(session));
  return out;
}

absl::StatusOr<SessionId> FromProto(const v1::CloseSessionRequest& proto) {
  Decoder at("CloseSessionRequest");
  SessionId session;
  at.Id("session_id", proto.session_id(), &session);
  return at.Finish(session);
}

// The epoch and the hash let the coordinator send only a plan that is newer than the caller's.
v1::WatchPlanRequest ToProto(const WatchRequest& request) {
  v1::WatchPlanRequest out;
  out.set_session_id(ToHex(request.session));
  out.set_deployment(request.deployment);
  out.set_phase(EnumToProto(request.phase));
  out.set_epoch(request.epoch.value);
  EncodeDigest(request.hash, out.mutable_plan_hash());
  if (request.signature == GrantSignature()) return out;
  v1::GrantProof* grant = out.mutable_grant();
  grant->set_cookie(request.cookie.value);
  grant->set_mode(EnumToProto(request.mode));
  grant->set_max_tokens(static_cast<std::uint32_t>(request.max_tokens));
  grant->set_record_amax(request.record_amax);
  if (request.group != GroupGrant()) Encode(request.group, grant->mutable_place());
  EncodeBytes32(request.signature.bytes, grant->mutable_signature());
  return out;
}

absl::StatusOr<WatchRequest> FromProto(const v1::WatchPlanRequest& proto) {
  Decoder at("WatchPlanRequest");
  WatchRequest request;
  at.Id("session_id", proto.session_id(), &request.session);
  request.deployment = proto.deployment();
  at.Enum("phase", proto.phase(), &request.phase);
  request.epoch.value = proto.epoch();
  at.Digest("plan_hash", proto.plan_hash(), &request.hash);
  // A source of a release before this field sends none.
  if (!proto.has_grant()) return at.Finish(std::move(request));
  at.Sub("grant", true, [&] {
    request.cookie.value = proto.grant().cookie();
    at.Enum("mode", proto.grant().mode(), &request.mode);
    at.Int("max_tokens", proto.grant().max_tokens(), &request.max_tokens);
    request.record_amax = proto.grant().record_amax();
    if (proto.grant().has_place()) {
      at.Sub("place", true, [&] { Decode(at, proto.grant().place(), &request.group); });
    }
    at.Bytes32("signature", proto.grant().signature(), &request.signature.bytes);
  });
  return at.Finish(std::move(request));
}

v1::WatchPlanResponse ToProto(const PlanUpdate& update) {
  v1::WatchPlanResponse out;
  Encode(update.plan, out.mutable_plan());
  EncodeDigest(update.hash, out.mutable_plan_hash());
  for (const Incarnation& lost : update.lost) out.add_lost(ToHex(lost));
  EncodeTime(update.former_kept, out.mutable_former_kept());
  return out;
}

absl::StatusOr<PlanUpdate> FromProto(const v1::WatchPlanResponse& proto) {
  Decoder at("WatchPlanResponse");
  PlanUpdate update;
  at.Sub("plan", proto.has_plan(), [&] { Decode(at, proto.plan(), &update.plan); });
  at.Digest("plan_hash", proto.plan_hash(), &update.hash);
  at.Each("lost", proto.lost(), &update.lost,
          [&at](const std::string& in, Incarnation* out) { at.Id("", in, out); });
  at.Time("former_kept", proto.former_kept(), &update.former_kept);
  return at.Finish(std::move(update));
}

}  // namespace switchyard
