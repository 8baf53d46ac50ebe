// Mutual TLS between our processes: credentials for gRPC's servers and channels that are made of a
// process's files and the table of identities.
//
// A peer needs a certificate of an authority in `ca`, valid now, with one URI name. A server lets
// an id in that the table knows, and only to the methods of its roles (access.h); a client talks
// only to a server whose id has the role that it expects there. Names and addresses of hosts are
// not compared. Files are read again every ten seconds: new connections use what is there then.
// Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"

#include "core/tenants/tenant.h"
#include "services/security/certificate.h"
#include "services/security/role.h"
#include "services/security/stream_guard.h"
#include "services/security/table_watch.h"

namespace switchyard {

class TransportSecurity {
 public:
  // Errors: those of ReadTlsFiles and CheckTlsMaterial; kFailedPrecondition (BAD_CONFIG) if the
  // table does not know this process's own id.
  static absl::StatusOr<std::shared_ptr<const TransportSecurity>> Create(
      const TlsFiles& files, std::shared_ptr<TableWatch> identities);

  // Calls of peers without a known id fail with UNAUTHENTICATED, those that their roles do not
  // have with PERMISSION_DENIED. Their handlers do not run.
  [[nodiscard]] std::shared_ptr<grpc::ServerCredentials> Server() const;
  // Connections to a server without `role` fail; its calls are UNAVAILABLE.
  [[nodiscard]] std::shared_ptr<grpc::ChannelCredentials> Channel(Role role) const;

  // Those that the table gives to the id now; none if it does not have it.
  [[nodiscard]] Roles RolesOf(absl::string_view id) const;
  // The tenant of `id`, which may call `method`, both by the table as it is now: from two tables an
  // id that has just lost its tenant would come as one that needs none. Null: nothing is limited.
  // Errors: those of CheckCall.
  [[nodiscard]] absl::StatusOr<TenantRef> Admit(const std::string& id,
                                                absl::string_view method) const;
  // CheckPool, by the table as it is now.
  [[nodiscard]] absl::Status AdmitToPool(const std::string& id, absl::string_view pool) const;
  // Ends the streams of servers whose callers may not have them any more.
  [[nodiscard]] StreamGuard* streams() const { return streams_.get(); }

  // The facts when this object was made.
  [[nodiscard]] const CertificateFacts& own() const { return own_; }
  // Those of the file as it is now, which new connections use within ten seconds; own() if it is
  // wrong now. Reads the files.
  [[nodiscard]] CertificateFacts OwnNow() const;

 private:
  TransportSecurity(const TlsFiles& files, CertificateFacts own,
                    std::shared_ptr<TableWatch> identities);

  // One for all, because each has a thread.
  const std::shared_ptr<grpc::experimental::CertificateProviderInterface> certificates_;
  const TlsFiles files_;
  const CertificateFacts own_;
  const std::shared_ptr<TableWatch> identities_;
  const std::unique_ptr<StreamGuard> streams_;
};

}  // namespace switchyard
