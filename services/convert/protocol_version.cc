#include "services/convert/protocol_version.h"

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/protocol_version.h"

namespace switchyard {

absl::Status CheckProtocolVersion(absl::string_view who, std::uint32_t peer) {
  if (peer == kProtocolVersion) return absl::OkStatus();
  // 0 is also what a release sends that does not know the field.
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kTransport,
      absl::StrCat("the ", who, " has protocol version ", peer, ", the refusing process version ",
                   kProtocolVersion, "; run one release on both sides"),
      {{"peer_version", absl::StrCat(peer)}, {"own_version", absl::StrCat(kProtocolVersion)}});
}

}  // namespace switchyard
