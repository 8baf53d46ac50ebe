// Opens what mutual TLS needs from the folder that a program's option names. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/log.h"
#include "services/security/certificate.h"
#include "services/security/identity_table.h"
#include "services/security/transport_security.h"

namespace switchyard {

// The files of a process's folder for TLS. The first three names are those of Kubernetes' and
// cert-manager's Secrets of type tls.
inline constexpr char kCaFile[] = "ca.crt";            // of the authorities of peers, PEM
inline constexpr char kCertificateFile[] = "tls.crt";  // own, then up to the authority's, PEM
inline constexpr char kKeyFile[] = "tls.key";          // PEM, unencrypted
inline constexpr char kIdentitiesFile[] = "identities.yaml";  // switchyard/v1/identities.proto

// The first three of them in `dir`; they need not exist.
TlsFiles TlsFilesIn(const std::string& dir);

// Reads a file of identities. Errors: those of services/config/config_file.h and of
// IdentityTable::Create, naming the file.
absl::StatusOr<IdentityTable> ReadIdentities(const std::string& path);

// The same with the tenants of another file (v1::Tenants); empty: none. Errors name the file that
// is wrong, with the line or the place in the list, and no tenant.
absl::StatusOr<IdentityTable> ReadIdentities(const std::string& path, const std::string& tenants);

// Null if `dir` is empty: nothing is encrypted and anybody may call. Later changes of the files are
// seen (services/security). `logger`, which may be null, outlives the result and all credentials
// made of it. `tenants` is the path of a file of tenants; empty: callers have none. Errors: those
// of ReadIdentities and TransportSecurity::Create; kInvalidArgument (BAD_CONFIG) for tenants
// without `dir`.
absl::StatusOr<std::shared_ptr<const TransportSecurity>> OpenSecurity(
    const std::string& dir, Logger* logger, const std::string& tenants = "");

}  // namespace switchyard
