#include "services/grpc/grpc_status.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/failure_scope.h"
#include "core/base/utf8.h"

namespace switchyard {
namespace {

constexpr char kDomain[] = "switchyard";
constexpr char kOwnPayloads[] = "switchyard/";  // core's payloads, which become the ErrorInfo
constexpr char kScopeKey[] = "failure_scope";
constexpr char kReasonKey[] = "reason";
constexpr int kCodeMax = 16;
constexpr std::size_t kEntryBytes = 8;  // tags and lengths of one metadata entry

// The public names of what error.proto has under names of its own.
constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

void Add(const char* url, const google::protobuf::Message& detail, v1::Status* out) {
  google::protobuf::Any* any = out->add_details();
  any->set_type_url(url);
  any->set_value(detail.SerializeAsString());
}

// False if `any` is something else. As Any::UnpackTo, what is before the last slash does not count.
bool Read(const google::protobuf::Any& any, absl::string_view url,
          google::protobuf::Message* detail) {
  const auto name = [](absl::string_view text) { return text.substr(text.rfind('/') + 1); };
  return absl::StrContains(any.type_url(), '/') && name(any.type_url()) == name(url) &&
         detail->ParseFromString(any.value());
}

void SetDelay(Duration delay, google::protobuf::Duration* out) {
  constexpr std::int64_t kNanos = 1'000'000'000;
  out->set_seconds(delay.count() / kNanos);
  out->set_nanos(static_cast<std::int32_t>(delay.count() % kNanos));
}

Duration DelayOf(const v1::RetryInfo& info) {
  // A peer may send any value. A caller must neither busy-loop on a negative delay nor stall for
  // hours.
  constexpr std::int64_t kSecondsMax = 3600;
  const std::int64_t seconds =
      std::clamp<std::int64_t>(info.retry_delay().seconds(), 0, kSecondsMax);
  const std::int32_t nanos = std::clamp(info.retry_delay().nanos(), 0, 999'999'999);
  return std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanos);
}

void AddErrorInfo(const absl::Status& status, v1::Status* out) {
  v1::ErrorInfo info;
  info.set_domain(kDomain);
  info.set_reason(std::string(ReasonName(ReasonOf(status))));
  // Ordered by key, so that the entries that fit do not depend on a hash seed.
  std::map<std::string, std::string> metadata = MetadataOf(status);
  if (ScopeOf(status) != FailureScope::kRequest) {
    metadata[kScopeKey] = std::string(FailureScopeName(ScopeOf(status)));
  }
  // Reserve room for the key and the protobuf tags first; the value gets what is left.
  std::size_t left = kStatusMetadataBytesMax;
  for (const auto& [key, value] : metadata) {
    if (key.size() + kEntryBytes >= left) break;
    left -= key.size() + kEntryBytes;
    std::string text = CutUtf8(value, left);
    left -= text.size();
    (*info.mutable_metadata())[CutUtf8(key, key.size())] = std::move(text);
  }
  // An ErrorInfo without reason and metadata would carry no information.
  if (ReasonOf(status) == Reason::kUnspecified && info.metadata().empty()) return;
  Add(kErrorInfoUrl, info, out);
}

// Adds the details that are not ours. True if one of them is a RetryInfo.
bool AddOtherDetails(const absl::Status& status, v1::Status* out) {
  bool has_retry = false;
  std::size_t left = kStatusOtherBytesMax;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    const std::size_t bytes = url.size() + payload.size();
    if (absl::StartsWith(url, kOwnPayloads) || bytes > left) return;
    left -= bytes;
    has_retry = has_retry || url == kRetryInfoUrl;
    google::protobuf::Any* detail = out->add_details();
    detail->set_type_url(CutUtf8(url, url.size()));
    detail->set_value(std::string(payload));
  });
  return has_retry;
}

absl::Status FromErrorInfo(absl::StatusCode code, const std::string& text,
                           const v1::ErrorInfo& info) {
  const std::optional<Reason> reason = ReasonFromName(info.reason());
  std::map<std::string, std::string> sorted(info.metadata().begin(), info.metadata().end());
  FailureScope scope = FailureScope::kRequest;
  if (const auto it = sorted.find(kScopeKey); it != sorted.end()) {
    for (const FailureScope candidate :
         {FailureScope::kPeer, FailureScope::kCommunicator, FailureScope::kWorker}) {
      if (FailureScopeName(candidate) == it->second) scope = candidate;
    }
    if (scope != FailureScope::kRequest) sorted.erase(it);
  }
  // A reason of a newer version keeps its name as metadata, so that logs still show it.
  if (!reason.has_value()) sorted[kReasonKey] = info.reason();
  const absl::Status status = MakeError(code, reason.value_or(Reason::kUnspecified), text,
                                        ErrorMetadata(sorted.begin(), sorted.end()));
  return scope == FailureScope::kRequest ? status : WithScope(status, scope);
}

// Index of the first ErrorInfo of our domain; -1 if there is none.
int FindOwnInfo(const v1::Status& proto) {
  for (int i = 0; i < proto.details_size(); ++i) {
    v1::ErrorInfo info;
    if (Read(proto.details(i), kErrorInfoUrl, &info) && info.domain() == kDomain) return i;
  }
  return -1;
}

// gRPC enforces its own limits before our code sees a message and adds no ErrorInfo, so only its
// text identifies such an error.
bool IsGrpcSizeError(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         (absl::StrContains(status.error_message(), "message larger than max") ||
          absl::StrContains(status.error_message(), "metadata size exceeds"));
}

}  // namespace

v1::Status StatusToProto(const absl::Status& status) {
  v1::Status out;
  if (status.ok()) return out;
  const int code = static_cast<int>(status.code());
  // absl may know codes that gRPC does not.
  out.set_code(code > kCodeMax ? static_cast<int>(absl::StatusCode::kUnknown) : code);
  out.set_message(CutUtf8(status.message(), kStatusTextBytesMax));
  AddErrorInfo(status, &out);
  const bool has_retry = AddOtherDetails(status, &out);
  if (status.code() == absl::StatusCode::kUnavailable && !has_retry) {
    v1::RetryInfo retry;
    SetDelay(kDefaultRetryDelay, retry.mutable_retry_delay());
    Add(kRetryInfoUrl, retry, &out);
  }
  return out;
}

absl::Status StatusFromProto(const v1::Status& proto) {
  if (proto.code() == 0) return absl::OkStatus();
  const auto code = proto.code() > 0 && proto.code() <= kCodeMax
                        ? static_cast<absl::StatusCode>(proto.code())
                        : absl::StatusCode::kUnknown;
  absl::Status out(code, proto.message());
  // Other parties on the way may have added an ErrorInfo of their own domain.
  const int own = FindOwnInfo(proto);
  if (own >= 0) {
    v1::ErrorInfo info;
    Read(proto.details(own), kErrorInfoUrl, &info);
    out = FromErrorInfo(code, proto.message(), info);
  }
  for (int i = 0; i < proto.details_size(); ++i) {
    const google::protobuf::Any& detail = proto.details(i);
    v1::RetryInfo retry;
    // The default delay is implied by the code. Keeping it would make a second trip add a payload.
    const bool implied = code == absl::StatusCode::kUnavailable &&
                         Read(detail, kRetryInfoUrl, &retry) &&
                         DelayOf(retry) == kDefaultRetryDelay;
    if (i == own || implied || detail.type_url().empty() ||
        absl::StartsWith(detail.type_url(), kOwnPayloads)) {
      continue;
    }
    out.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  }
  return out;
}

grpc::Status StatusToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const v1::Status proto = StatusToProto(status);
  return {static_cast<grpc::StatusCode>(proto.code()), proto.message(), proto.SerializeAsString()};
}

absl::Status StatusFromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  v1::Status proto;
  // Details with a different code belong to another error, for example one added by a proxy.
  if (!status.error_details().empty() && proto.ParseFromString(status.error_details()) &&
      proto.code() == static_cast<int>(status.error_code())) {
    return StatusFromProto(proto);
  }
  proto.Clear();
  proto.set_code(static_cast<int>(status.error_code()));
  proto.set_message(status.error_message());
  const absl::Status plain = StatusFromProto(proto);
  return IsGrpcSizeError(status) ? WithReasonIfNone(plain, Reason::kMessageTooLarge) : plain;
}

absl::Status WithReasonIfNone(const absl::Status& status, Reason reason) {
  if (status.ok() || ReasonOf(status) != Reason::kUnspecified) return status;
  const std::map<std::string, std::string> metadata = MetadataOf(status);
  absl::Status out = MakeError(status.code(), reason, status.message(),
                               ErrorMetadata(metadata.begin(), metadata.end()));
  // Payloads other than the details above are kept, so that nothing is lost on the way.
  status.ForEachPayload([&out](absl::string_view url, const absl::Cord& payload) {
    if (!out.GetPayload(url).has_value()) out.SetPayload(url, payload);
  });
  return out;
}

absl::Status CheckMessageSize(const google::protobuf::Message& message, std::size_t bytes_max) {
  const std::size_t bytes = message.ByteSizeLong();
  if (bytes <= bytes_max) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kMessageTooLarge,
      absl::StrCat(message.GetTypeName(), " has ", bytes, " bytes; the limit is ", bytes_max),
      {{"bytes", absl::StrCat(bytes)}, {"bytes_max", absl::StrCat(bytes_max)}});
}

std::optional<Duration> RetryDelayOf(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable) return std::nullopt;
  const auto payload = status.GetPayload(kRetryInfoUrl);
  v1::RetryInfo retry;
  if (payload.has_value() && retry.ParseFromString(std::string(*payload))) return DelayOf(retry);
  return kDefaultRetryDelay;
}

}  // namespace switchyard
