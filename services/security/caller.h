// Who makes a call, as its connection proves it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grpcpp/security/auth_context.h"
#include "grpcpp/server_context.h"

namespace switchyard {

// The property of gRPC's context that has the URI names of a peer's certificate.
inline constexpr char kPeerUriProperty[] = "peer_uri";

// The caller's SPIFFE id. Empty without TLS; with it, no handler runs for a caller that has none or
// several.
inline std::string CallerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer == nullptr) return "";
  const std::vector<grpc::string_ref> uris = peer->FindPropertyValues(kPeerUriProperty);
  return uris.size() == 1 ? std::string(uris[0].data(), uris[0].size()) : "";
}

}  // namespace switchyard
