// Whether the coordinator granted the session that wants to attach. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/moe_shape.h"
#include "core/session_messages.h"
#include "worker/expert/layer_runtime.h"

namespace switchyard {

// `runtime` is the epoch that `request` names. Errors: kUnauthenticated (BAD_GRANT) unless a key of
// the epoch signed the session's id, cookie, deployment, phase, mode and limits as the request has
// them; with a caller, kNotFound (UNKNOWN_SESSION), also for a session of another caller. The text
// names the session and never a secret.
absl::Status CheckGrant(const AttachRequest& request, const EpochRuntime& runtime,
                        absl::string_view worker_id);
// The same by the keys of the deployment that the request names. Without any, the answer is that of
// a wrong signature.
absl::Status CheckGrant(const AttachRequest& request, const GrantKeys& keys,
                        absl::string_view worker_id);
// The same for the session that wants to join a group, and its place there.
absl::Status CheckGrant(const JoinRequest& request, const EpochRuntime& runtime,
                        absl::string_view worker_id);
absl::Status CheckGrant(const JoinRequest& request, const GrantKeys& keys,
                        absl::string_view worker_id);

// The most rows that a chunk of the session can have; a source never sends more.
std::uint32_t GrantedRowsMax(const AttachRequest& request, const MoeShape& shape);

}  // namespace switchyard
