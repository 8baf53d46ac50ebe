// syctl certs: certificates for deployments that have no authority of their own. Works on folders;
// needs no coordinator. Not for two processes at once on one folder.
//
//   DIR/authority/ca.crt, ca.key     the authority; only its own user may read the key
//   DIR/identities.yaml              who has which roles
//   DIR/NAME/                        what --tls-dir takes, for each name: services/config
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace switchyard::ctl {

struct CertsOptions {
  bool show = false;  // else: ensure
  std::string dir;
  std::string trust_domain;  // ensure; may be empty where there are identities already
  std::string prefix;        // ensure; between domain and name of an id, "ns/moe/sa/prod-"
  // ensure; "NAME:ROLE[,ROLE]", beside the five roles, each of which has a certificate of its name.
  std::vector<std::string> also;
  std::int64_t days = 90;              // ensure; of a certificate
  std::int64_t authority_days = 3650;  // ensure
};

// A folder and its certificate.
struct CertificateRow {
  std::string name;
  std::string id;
  std::string what;              // "made", "renewed", "kept", "valid", "expired", "not yet valid"
  std::int64_t not_after_s = 0;  // Unix time
};

// Makes what is missing: the authority, which is never replaced, and a certificate for each name.
// One that the authority did not sign, for another id, or with less than a third of `days` to go is
// made anew. Errors: kInvalidArgument (BAD_CONFIG) for options that do not fit, and for files that
// are not what they should be, naming them; kFailedPrecondition (BAD_CONFIG) if the authority has
// expired, or a file cannot be written.
absl::StatusOr<std::vector<CertificateRow>> EnsureCertificates(const CertsOptions& options,
                                                               std::int64_t now_s);

// The certificate of the folder, or of every folder in it that has one. Errors: kNotFound
// (BAD_CONFIG) if there is none; those of ReadTlsFiles and CheckTlsMaterial.
absl::StatusOr<std::vector<CertificateRow>> ShowCertificates(const std::string& dir,
                                                             std::int64_t now_s);

std::string CertificatesText(const std::vector<CertificateRow>& rows, std::int64_t now_s);
nlohmann::ordered_json CertificatesJson(const std::vector<CertificateRow>& rows);

// Adds "certs ensure" and "certs show" to syctl's command line. `options` outlives `app`.
void AddCertsVerb(CLI::App& app, CertsOptions* options);

}  // namespace switchyard::ctl
