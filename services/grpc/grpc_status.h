// The only bridge between absl::Status and what gRPC carries.
//
// An error travels as google.rpc.Status {code, text, details}: an ErrorInfo {reason from
// core/base/error.h, domain "switchyard", metadata}, the FailureScope as metadata "failure_scope"
// (a reserved key, left out for kRequest), and a RetryInfo with every UNAVAILABLE. Code, text,
// reason, metadata, scope and payloads of others come back as they went, in either direction,
// within these bounds: text 1024 bytes, metadata 1536 bytes, other details 512 bytes, so that the
// whole fits into the 8 KiB of trailers that any gRPC client accepts (text travels twice, details
// in base64). Beyond them text and values are cut and end in "..."; bytes that are not UTF-8 become
// '?'.
//
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

#include "core/base/clock.h"
#include "core/base/error.h"

namespace switchyard {

inline constexpr std::size_t kStatusTextBytesMax = 1024;
inline constexpr std::size_t kStatusMetadataBytesMax = 1536;
inline constexpr std::size_t kStatusOtherBytesMax = 512;
// The RetryInfo that an UNAVAILABLE carries when nothing else was said.
inline constexpr Duration kDefaultRetryDelay = std::chrono::milliseconds(100);

google::rpc::Status StatusToProto(const absl::Status& status);
// Total: a code that is none of the 17 becomes UNKNOWN; a reason of our domain that this version
// does not know becomes kUnspecified with the name as metadata "reason".
absl::Status StatusFromProto(const google::rpc::Status& proto);

grpc::Status StatusToGrpc(const absl::Status& status);
// Also gives MESSAGE_TOO_LARGE to the errors that gRPC itself makes of a message over a limit.
absl::Status StatusFromGrpc(const grpc::Status& status);

// `status` with `reason`, unless it is OK or has one: for errors that gRPC itself made.
absl::Status WithReasonIfNone(const absl::Status& status, Reason reason);
// kResourceExhausted (MESSAGE_TOO_LARGE), naming size and limit, when `message` is larger.
absl::Status CheckMessageSize(const google::protobuf::Message& message, std::size_t bytes_max);
// What the peer asked the caller to wait before the next attempt; unset when it is no UNAVAILABLE.
std::optional<Duration> RetryDelayOf(const absl::Status& status);

}  // namespace switchyard
