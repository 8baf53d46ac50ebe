#include "services/security/transport_security.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "services/security/access.h"
#include "services/security/caller.h"

namespace switchyard {
namespace {

namespace tls = grpc::experimental;

// gRPC looks at the files so often; kubelets bring new ones within a minute or two.
constexpr unsigned kRefreshSeconds = 10;

std::string Text(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// The one URI name of a peer; what is wrong with its names, in the second, if it is not one.
struct PeerName {
  std::string id;
  std::string wrong;
};
PeerName NameOf(const std::vector<grpc::string_ref>& uris) {
  if (uris.size() == 1) return {Text(uris.front()), ""};
  std::vector<std::string> names;
  names.reserve(uris.size());
  for (const grpc::string_ref& uri : uris) names.push_back(Text(uri));
  return {"", names.empty()
                  ? "the certificate has no URI name, its SPIFFE id"
                  : absl::StrCat("the certificate has several URI names (",
                                 absl::StrJoin(names, ", "), "); it needs one, its SPIFFE id")};
}

// Decides about each call before its handler runs.
class CallGate final : public grpc::AuthMetadataProcessor {
 public:
  explicit CallGate(std::shared_ptr<TableWatch> identities) : identities_(std::move(identities)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const PeerName name = NameOf(context->FindPropertyValues(kPeerUriProperty));
    if (!name.wrong.empty()) return {grpc::StatusCode::UNAUTHENTICATED, name.wrong};
    const auto path = metadata.find(":path");
    const std::string method = path == metadata.end() ? "" : Text(path->second);
    const absl::Status allowed = CheckCall(*identities_->Now(), name.id, method);
    if (allowed.ok()) return grpc::Status::OK;
    return {static_cast<grpc::StatusCode>(allowed.code()), std::string(allowed.message())};
  }

 private:
  const std::shared_ptr<TableWatch> identities_;
};

// Decides about a server once its certificate has been found to be an authority's.
class ServerCheck final : public tls::ExternalCertificateVerifier {
 public:
  ServerCheck(std::shared_ptr<TableWatch> identities, Role role)
      : identities_(std::move(identities)), role_(role) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const PeerName name = NameOf(request->uri_names());
    const Identity* server = nullptr;
    const std::shared_ptr<const IdentityTable> table = identities_->Now();
    if (name.wrong.empty()) server = table->Find(name.id);
    if (!name.wrong.empty()) {
      *status = {grpc::StatusCode::UNAUTHENTICATED, name.wrong};
    } else if (server == nullptr || !server->roles.Has(role_)) {
      *status = {grpc::StatusCode::UNAUTHENTICATED,
                 absl::StrCat("the server is ", name.id, ", which is no ", RoleName(role_),
                              " in the table of identities")};
    } else {
      *status = grpc::Status::OK;
    }
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::shared_ptr<TableWatch> identities_;
  const Role role_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TransportSecurity>> TransportSecurity::Create(
    const TlsFiles& files, std::shared_ptr<TableWatch> identities) {
  SY_ASSIGN_OR_RETURN(const TlsMaterial material, ReadTlsFiles(files));
  SY_ASSIGN_OR_RETURN(CertificateFacts own, CheckTlsMaterial(material, files));
  if (identities->Now()->Find(own.id) == nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                     absl::StrCat("the table of identities does not have ", own.id, ", the id in ",
                                  files.certificate, "; peers would refuse this process"),
                     {{"file", files.certificate}});
  }
  return std::shared_ptr<const TransportSecurity>(
      new TransportSecurity(files, std::move(own), std::move(identities)));
}

TransportSecurity::TransportSecurity(const TlsFiles& files, CertificateFacts own,
                                     std::shared_ptr<TableWatch> identities)
    : certificates_(std::make_shared<tls::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.ca, kRefreshSeconds)),
      files_(files),
      own_(std::move(own)),
      identities_(std::move(identities)),
      streams_(std::make_unique<StreamGuard>(identities_)) {}

Roles TransportSecurity::RolesOf(absl::string_view id) const {
  const std::shared_ptr<const IdentityTable> table = identities_->Now();
  const Identity* known = table->Find(id);
  return known == nullptr ? Roles() : known->roles;
}

absl::StatusOr<TenantRef> TransportSecurity::Admit(const std::string& id,
                                                   absl::string_view method) const {
  std::shared_ptr<const IdentityTable> table = identities_->Now();
  SY_RETURN_IF_ERROR(CheckCall(*table, id, method));
  const Tenant* tenant = table->TenantOf(id);
  return tenant == nullptr ? nullptr : TenantRef(std::move(table), tenant);
}

absl::Status TransportSecurity::AdmitToPool(const std::string& id, absl::string_view pool) const {
  return CheckPool(*identities_->Now(), id, pool);
}

CertificateFacts TransportSecurity::OwnNow() const {
  const absl::StatusOr<TlsMaterial> material = ReadTlsFiles(files_);
  if (!material.ok()) return own_;
  return CheckTlsMaterial(*material, files_).value_or(own_);
}

std::shared_ptr<grpc::ServerCredentials> TransportSecurity::Server() const {
  tls::TlsServerCredentialsOptions options(certificates_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials = tls::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<CallGate>(identities_));
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> TransportSecurity::Channel(Role role) const {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(certificates_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  // Ids decide, not names of hosts: Pods are reached by addresses that no certificate can know.
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<ServerCheck>(identities_, role));
  return tls::TlsCredentials(options);
}

}  // namespace switchyard
