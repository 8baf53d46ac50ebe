// The only conversion between absl::Status and gRPC's errors.
//
// An error travels as google.rpc.Status {code, text, details}: a google.rpc.ErrorInfo {reason from
// core/base/error.h, domain "switchyard", metadata}, the FailureScope as metadata "failure_scope"
// (a reserved key, omitted for kRequest), and a RetryInfo with every UNAVAILABLE. Code, text,
// reason, metadata, scope and other payloads survive the round trip in either direction within
// these limits: text 1024 bytes, metadata 1536 bytes, other details 512 bytes. The total then fits
// into the 8 KiB of trailers that every gRPC client accepts (text travels twice, details in
// base64). Longer texts and values are cut and end in "..."; bytes that are not UTF-8 become '?'.
//
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/status.h"

#include "core/base/clock.h"
#include "core/base/error.h"
#include "switchyard/v1/error.pb.h"

namespace switchyard {

inline constexpr std::size_t kStatusTextBytesMax = 1024;
inline constexpr std::size_t kStatusMetadataBytesMax = 1536;
inline constexpr std::size_t kStatusOtherBytesMax = 512;
// The RetryInfo of an UNAVAILABLE error without one of its own.
inline constexpr Duration kDefaultRetryDelay = std::chrono::milliseconds(100);

// Both conversions use the form above; StatusFromProto(StatusToProto(s)) is s within the limits.
v1::Status StatusToProto(const absl::Status& status);
// Accepts every message: a code outside the 17 canonical ones becomes UNKNOWN; a reason of our
// domain that this version does not know becomes kUnspecified with its name in metadata "reason".
absl::Status StatusFromProto(const v1::Status& proto);

// The same for calls, whose trailers carry the details.
grpc::Status StatusToGrpc(const absl::Status& status);
// Adds the reason MESSAGE_TOO_LARGE to gRPC's own errors for messages over a limit.
absl::Status StatusFromGrpc(const grpc::Status& status);

// Adds `reason` to an error without one. For errors that gRPC itself created.
absl::Status WithReasonIfNone(const absl::Status& status, Reason reason);
// kResourceExhausted (MESSAGE_TOO_LARGE) with size and limit if `message` is larger.
absl::Status CheckMessageSize(const google::protobuf::Message& message, std::size_t bytes_max);
// The delay before the next attempt that the peer requests; nullopt unless `status` is UNAVAILABLE.
std::optional<Duration> RetryDelayOf(const absl::Status& status);

}  // namespace switchyard
