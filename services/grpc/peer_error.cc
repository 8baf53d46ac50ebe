#include "services/grpc/peer_error.h"

#include "absl/strings/str_cat.h"

namespace switchyard {

absl::Status AsPeerError(const absl::Status& status, const Peer& peer) {
  if (status.ok() || ReasonOf(status) != Reason::kUnspecified) return status;
  const std::string who = absl::StrCat(peer.role, " ", peer.endpoint);
  const ErrorMetadata metadata{{"endpoint", peer.endpoint}};
  switch (status.code()) {
    // gRPC reports a broken connection with any of these, depending on the moment. For the caller
    // they all mean the same.
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kAborted:
      return MakeError(absl::StatusCode::kUnavailable, peer.lost,
                       absl::StrCat(who, " is unreachable: ", status.message()), metadata);
      // The peer may be alive but hung; for the caller the result is the same.
    case absl::StatusCode::kDeadlineExceeded:
      return MakeError(absl::StatusCode::kUnavailable, peer.lost,
                       absl::StrCat(who, " did not answer in time"), metadata);
    case absl::StatusCode::kUnimplemented:
      return MakeError(
          absl::StatusCode::kUnimplemented, Reason::kUnsupported,
          absl::StrCat(who, " does not know the call; check the port and the versions of both"),
          metadata);
    // The peer answered, so the connection works: the code says what to do.
    default:
      return MakeError(status.code(), Reason::kTransport, absl::StrCat(who, ": ", status.message()),
                       metadata);
  }
}

}  // namespace switchyard
