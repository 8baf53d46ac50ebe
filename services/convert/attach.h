// Converts attachments and their counters between core and the wire. As in convert/plan.h,
// FromProto restores exactly the value given to ToProto. Errors: kInvalidArgument (BAD_REQUEST)
// with the field. Pure; thread-safe.
#pragma once

#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/session_messages.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/expert.pb.h"

namespace switchyard {

// The messages of an attachment stream from the source.
using AttachMessage = std::variant<AttachRequest, BindRequest, ReleaseRequest>;

// The answer to one BindRequest.
struct BindAnswer {
  Epoch epoch{};
  // OK if the epoch is bound.
  absl::Status result{};
  friend bool operator==(const BindAnswer&, const BindAnswer&) = default;
};
// The messages of an attachment stream from the worker.
using AttachAnswer = std::variant<AttachGrant, BindAnswer>;

v1::AttachRequest ToProto(const AttachMessage& message);
// A message without a known member is refused: it comes from a newer version, and ignoring it could
// leave the peer waiting. Errors also: those of CheckProtocolVersion, in either direction.
absl::StatusOr<AttachMessage> FromProto(const v1::AttachRequest& proto);

v1::AttachResponse ToProto(const AttachAnswer& answer);
absl::StatusOr<AttachAnswer> FromProto(const v1::AttachResponse& proto);

// The parts that other streams have too. Claims: all but the ring, the transport and the slots.
void EncodeClaims(const AttachRequest& in, v1::OpenAttachmentRequest* out);
void DecodeClaims(Decoder& at, const v1::OpenAttachmentRequest& in, AttachRequest* out);
void EncodeBind(const BindRequest& in, v1::BindEpochRequest* out);
void DecodeBind(Decoder& at, const v1::BindEpochRequest& in, BindRequest* out);
void EncodeBound(const BindAnswer& in, v1::Bound* out);
void DecodeBound(Decoder& at, const v1::Bound& in, BindAnswer* out);

// Do not convert the worker's id, which is part of the enclosing message.
void Encode(const AttachmentCounters& in, v1::AttachmentCounters* out);
void Decode(Decoder& at, const v1::AttachmentCounters& in, AttachmentCounters* out);

}  // namespace switchyard
