#include "services/convert/attach.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/protocol_version.h"
#include "services/convert/plan.h"
#include "services/convert/protocol_version.h"
#include "services/grpc/grpc_status.h"

namespace switchyard {
namespace {

// The secrets in an offer (address, rkey) must cross the wire, but no log prints these messages.
void EncodeRing(const RingOffer& in, v1::RingOffer* out) {
  out->set_transport(in.transport);
  out->set_address(in.address);
  out->set_incarnation(ToHex(in.incarnation));
  out->set_attachment(in.attachment.value);
  out->set_ring_address(in.ring_address);
  out->set_ring_bytes(in.ring_bytes);
  out->set_slots(in.slots);
  out->set_slot_bytes(in.slot_bytes);
  out->set_rkey(in.rkey);
  out->set_transport_version(in.transport_version);
  out->set_frame_version(in.frame_version);
  out->set_device_memory(in.device_memory);
  out->set_protocol_version(kProtocolVersion);
}

// Sizes and addresses of a ring are not checked here: the transport checks an offer against its own
// ring (ring_geometry.h).
void DecodeRing(Decoder& at, const v1::RingOffer& in, RingOffer* out) {
  out->transport = in.transport();
  out->address = in.address();
  at.Id("incarnation", in.incarnation(), &out->incarnation);
  out->attachment.value = in.attachment();
  out->ring_address = in.ring_address();
  out->ring_bytes = in.ring_bytes();
  out->slots = in.slots();
  out->slot_bytes = in.slot_bytes();
  out->rkey = in.rkey();
  out->transport_version = in.transport_version();
  out->frame_version = in.frame_version();
  out->device_memory = in.device_memory();
}

// One overload for each message, so that std::visit does not compile if one is missing.
void EncodeMember(const AttachRequest& in, v1::AttachRequest* message) {
  v1::OpenAttachmentRequest* out = message->mutable_open();
  EncodeClaims(in, out);
  out->set_transport(EnumToProto(in.transport));
  EncodeRing(in.reply_ring, out->mutable_reply_ring());
  out->set_request_slot_bytes(in.request_slot_bytes);
}
void EncodeMember(const BindRequest& in, v1::AttachRequest* message) {
  EncodeBind(in, message->mutable_bind());
}
void EncodeMember(const ReleaseRequest& in, v1::AttachRequest* message) {
  message->mutable_release()->set_epoch(in.epoch.value);
}

void EncodeMember(const AttachGrant& in, v1::AttachResponse* message) {
  EncodeRing(in.request_ring, message->mutable_opened()->mutable_request_ring());
  message->mutable_opened()->set_path(in.path);
  message->mutable_opened()->set_why_messages(in.why_messages);
  message->mutable_opened()->set_why_no_device(in.why_no_device);
}
void EncodeMember(const BindAnswer& in, v1::AttachResponse* message) {
  EncodeBound(in, message->mutable_bound());
}

void DecodeOpen(Decoder& at, const v1::OpenAttachmentRequest& in, AttachRequest* out) {
  DecodeClaims(at, in, out);
  at.Enum("transport", in.transport(), &out->transport);
  at.Sub("reply_ring", in.has_reply_ring(),
         [&] { DecodeRing(at, in.reply_ring(), &out->reply_ring); });
  out->request_slot_bytes = in.request_slot_bytes();
}

AttachMessage DecodeRequest(Decoder& at, const v1::AttachRequest& proto) {
  switch (proto.message_case()) {
    case v1::AttachRequest::kOpen: {
      AttachRequest out;
      at.Sub("open", true, [&] { DecodeOpen(at, proto.open(), &out); });
      return out;
    }
    case v1::AttachRequest::kBind: {
      BindRequest out;
      at.Sub("bind", true, [&] { DecodeBind(at, proto.bind(), &out); });
      return out;
    }
    case v1::AttachRequest::kRelease:
      return ReleaseRequest{Epoch{proto.release().epoch()}};
    case v1::AttachRequest::MESSAGE_NOT_SET:
      break;
  }
  // The peer's version is newer and uses a message that this one does not have.
  at.Refuse("message", "is missing or unknown to this version");
  return ReleaseRequest{};
}

AttachAnswer DecodeResponse(Decoder& at, const v1::AttachResponse& proto) {
  switch (proto.message_case()) {
    case v1::AttachResponse::kOpened: {
      const v1::AttachGrant& in = proto.opened();
      AttachGrant out;
      at.Sub("opened", true, [&] {
        at.Sub("request_ring", in.has_request_ring(),
               [&] { DecodeRing(at, in.request_ring(), &out.request_ring); });
      });
      // The grant's path is text for status output, so an unknown value is no error.
      out.path = in.path();
      out.why_messages = in.why_messages();
      out.why_no_device = in.why_no_device();
      return out;
    }
    case v1::AttachResponse::kBound: {
      BindAnswer out;
      at.Sub("bound", true, [&] { DecodeBound(at, proto.bound(), &out); });
      return out;
    }
    case v1::AttachResponse::MESSAGE_NOT_SET:
      break;
  }
  at.Refuse("message", "is missing or unknown to this version");
  return BindAnswer{};
}

}  // namespace

void EncodeClaims(const AttachRequest& in, v1::OpenAttachmentRequest* out) {
  out->set_session_id(ToHex(in.session));
  out->set_cookie(in.cookie.value);
  out->set_deployment(in.deployment);
  out->set_phase(EnumToProto(in.phase));
  out->set_mode(EnumToProto(in.mode));
  out->set_epoch(in.epoch.value);
  EncodeDigest(in.hash, out->mutable_plan_hash());
  out->set_record_amax(in.record_amax);
  EncodeTime(in.step_deadline, out->mutable_step_deadline());
  out->set_max_tokens(static_cast<std::uint32_t>(in.max_tokens));
  EncodeBytes32(in.signature.bytes, out->mutable_grant_signature());
}

void DecodeClaims(Decoder& at, const v1::OpenAttachmentRequest& in, AttachRequest* out) {
  at.Id("session_id", in.session_id(), &out->session);
  out->cookie.value = in.cookie();
  out->deployment = in.deployment();
  at.Enum("phase", in.phase(), &out->phase);
  at.Enum("mode", in.mode(), &out->mode);
  out->epoch.value = in.epoch();
  at.Digest("plan_hash", in.plan_hash(), &out->hash);
  out->record_amax = in.record_amax();
  at.Time("step_deadline", in.step_deadline(), &out->step_deadline);
  at.Int("max_tokens", in.max_tokens(), &out->max_tokens);
  // Without one the request is understood all the same: the worker refuses it as not granted.
  if (!in.grant_signature().empty()) {
    at.Bytes32("grant_signature", in.grant_signature(), &out->signature.bytes);
  }
}

void EncodeBind(const BindRequest& in, v1::BindEpochRequest* out) {
  out->set_epoch(in.epoch.value);
  EncodeDigest(in.hash, out->mutable_plan_hash());
  EncodeTime(in.step_deadline, out->mutable_step_deadline());
}

void DecodeBind(Decoder& at, const v1::BindEpochRequest& in, BindRequest* out) {
  out->epoch.value = in.epoch();
  at.Digest("plan_hash", in.plan_hash(), &out->hash);
  at.Time("step_deadline", in.step_deadline(), &out->step_deadline);
}

void EncodeBound(const BindAnswer& in, v1::Bound* out) {
  out->set_epoch(in.epoch.value);
  if (!in.result.ok()) *out->mutable_error() = StatusToProto(in.result);
}

void DecodeBound(Decoder& at, const v1::Bound& in, BindAnswer* out) {
  out->epoch.value = in.epoch();
  if (in.has_error()) at.Error("error", true, in.error(), &out->result);
}

v1::AttachRequest ToProto(const AttachMessage& message) {
  v1::AttachRequest out;
  std::visit([&out](const auto& in) { EncodeMember(in, &out); }, message);
  return out;
}

absl::StatusOr<AttachMessage> FromProto(const v1::AttachRequest& proto) {
  if (proto.has_open()) {
    SY_RETURN_IF_ERROR(
        CheckProtocolVersion("source", proto.open().reply_ring().protocol_version()));
  }
  Decoder at("AttachRequest");
  AttachMessage message = DecodeRequest(at, proto);
  return at.Finish(std::move(message));
}

v1::AttachResponse ToProto(const AttachAnswer& answer) {
  v1::AttachResponse out;
  std::visit([&out](const auto& in) { EncodeMember(in, &out); }, answer);
  return out;
}

absl::StatusOr<AttachAnswer> FromProto(const v1::AttachResponse& proto) {
  if (proto.has_opened()) {
    SY_RETURN_IF_ERROR(
        CheckProtocolVersion("worker", proto.opened().request_ring().protocol_version()));
  }
  Decoder at("AttachResponse");
  AttachAnswer answer = DecodeResponse(at, proto);
  return at.Finish(std::move(answer));
}

void Encode(const AttachmentCounters& in, v1::AttachmentCounters* out) {
  out->set_session_id(ToHex(in.session));
  out->set_path(in.path);
  out->set_rows(in.rows);
  out->set_request_payload_bytes(in.request_payload_bytes);
  out->set_reply_payload_bytes(in.reply_payload_bytes);
  out->set_frames(in.frames);
  out->set_nan_rows(in.nan_rows);
  for (const AttachmentCounters::Hit& hit : in.hits) {
    v1::ExpertHit* item = out->add_hits();
    item->set_layer(static_cast<std::uint32_t>(hit.layer.value));
    item->set_expert(static_cast<std::uint32_t>(hit.expert.value));
    item->set_rows(hit.rows);
    item->set_inputs_amax(hit.inputs_amax);
    item->set_middle_amax(hit.middle_amax);
  }
}

void Decode(Decoder& at, const v1::AttachmentCounters& in, AttachmentCounters* out) {
  at.Id("session_id", in.session_id(), &out->session);
  out->path = in.path();
  out->rows = in.rows();
  out->request_payload_bytes = in.request_payload_bytes();
  out->reply_payload_bytes = in.reply_payload_bytes();
  out->frames = in.frames();
  out->nan_rows = in.nan_rows();
  at.Each("hits", in.hits(), &out->hits,
          [&at](const v1::ExpertHit& item, AttachmentCounters::Hit* hit) {
            at.Int("layer", item.layer(), &hit->layer.value);
            at.Int("expert", item.expert(), &hit->expert.value);
            hit->rows = item.rows();
            hit->inputs_amax = item.inputs_amax();
            hit->middle_amax = item.middle_amax();
          });
}

}  // namespace switchyard
