#include "worker/expert/attach_grant.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/grant_signature.h"

namespace switchyard {
namespace {

absl::Status CheckClaims(const GrantClaims& claims, const AttachRequest& request,
                         const GrantKeys& keys, absl::string_view worker_id) {
  if (VerifyGrantOf(request.caller, keys, claims, request.signature)) {
    return absl::OkStatus();
  }
  // Not which field differs: whoever forges a grant must not be led to a right one.
  // Nor, where callers are known, whether the session is another's: to this one it does not exist.
  const bool known = !request.caller.empty();
  return MakeError(
      known ? absl::StatusCode::kNotFound : absl::StatusCode::kUnauthenticated,
      known ? Reason::kUnknownSession : Reason::kBadGrant,
      absl::StrFormat("worker %s: session %s was not granted by the coordinator of deployment %s, "
                      "or not with this cookie, mode and limits; open a session there",
                      worker_id, ToHex(request.session), request.deployment),
      {{"worker", std::string(worker_id)},
       {"session", ToHex(request.session)},
       {"deployment", request.deployment}});
}

}  // namespace

absl::Status CheckGrant(const AttachRequest& request, const EpochRuntime& runtime,
                        absl::string_view worker_id) {
  return CheckGrant(request, runtime.grant_keys, worker_id);
}

absl::Status CheckGrant(const AttachRequest& request, const GrantKeys& keys,
                        absl::string_view worker_id) {
  return CheckClaims(ClaimsOf(request), request, keys, worker_id);
}

absl::Status CheckGrant(const JoinRequest& request, const EpochRuntime& runtime,
                        absl::string_view worker_id) {
  return CheckGrant(request, runtime.grant_keys, worker_id);
}

absl::Status CheckGrant(const JoinRequest& request, const GrantKeys& keys,
                        absl::string_view worker_id) {
  return CheckClaims(ClaimsOf(request), request.attach, keys, worker_id);
}

std::uint32_t GrantedRowsMax(const AttachRequest& request, const MoeShape& shape) {
  const auto tokens = static_cast<std::uint64_t>(std::max(request.max_tokens, 0));
  const auto top_k = static_cast<std::uint64_t>(std::max(shape.top_k, 0));
  // A row for each of a token's experts in low_latency; in normal, where steps have no limit, a
  // chunk holds at least as many rows as a token has experts.
  const std::uint64_t rows =
      request.mode == DispatchMode::kLowLatency ? tokens * top_k : std::max(tokens, top_k);
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(rows, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace switchyard
