// syctl certs: certificates for deployments that have no authority of their own. Works on folders;
// needs no coordinator. A second process on one folder is refused while the first one works.
//
//   DIR/authority/          the authority, whose keys only its user may read: ctl/certs/rotation.h
//   DIR/identities.yaml     who has which roles
//   DIR/NAME/               what --tls-dir takes, for each name: services/config
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

#include "core/cli/cli11.h"
#include "ctl/certs/rotation.h"

namespace switchyard::ctl {

struct CertsOptions {
  enum class Verb : std::uint8_t { kEnsure, kIssue, kShow };
  Verb verb = Verb::kEnsure;
  std::string dir;
  std::string trust_domain;  // ensure; may be empty where there are identities already
  std::string prefix;        // ensure, issue; between domain and name of an id, "ns/moe/sa/prod-"
  // ensure; "NAME:ROLE[,ROLE]", beside the five roles, each of which has a certificate of its name.
  std::vector<std::string> also;
  std::string holder;                  // issue; as one of `also`, or a NAME that is there already
  std::int64_t days = 90;              // ensure, issue; of a certificate
  std::int64_t authority_days = 3650;  // ensure
  std::string rotate_authority;        // ensure; a word that began none so far begins one
};

// A folder and its certificate.
struct CertificateRow {
  std::string name;
  std::string id;
  // "made", "renewed", "kept", "issued", "valid", "expired", "not yet valid"
  std::string what;
  std::int64_t not_after_s = 0;  // Unix time
};

struct CertificatesReport {
  std::vector<CertificateRow> rows;
  RotationRecord rotation;
};

// Makes what is missing: the authority, and a certificate for each name and for each folder that is
// there with a certificate of the authority and an id that the identities have. One that the
// authority did not sign, for another id, or with less than a third of `days` to go is made anew.
// Goes on with a rotation of the authority, or begins one, by one phase at most, but for an
// authority that has expired. Errors: kInvalidArgument (BAD_CONFIG) for options that do not fit,
// and for files that are not what they should be, naming them; kNotFound (BAD_CONFIG) for a file
// of a rotation that is missing; kFailedPrecondition (BAD_CONFIG) if another process works on the
// folder, files of a rotation are there without their authority, or a file cannot be written.
absl::StatusOr<CertificatesReport> EnsureCertificates(const CertsOptions& options,
                                                      std::int64_t now_s);

// Makes one certificate anew, whatever there is: for a holder more, or for one whose key others may
// have seen. The others stay as they are, and so does the authority's phase. Errors: those of
// EnsureCertificates; kNotFound (BAD_CONFIG) without an authority, and for a NAME without roles
// that the identities do not have.
absl::StatusOr<CertificatesReport> IssueOneCertificate(const CertsOptions& options);

// The certificate of the folder, or of every folder in it that has one, and how far a rotation is.
// Errors: kNotFound (BAD_CONFIG) if there is none; those of ReadTlsFiles, CheckTlsMaterial and
// ReadRecord.
absl::StatusOr<CertificatesReport> ShowCertificates(const std::string& dir, std::int64_t now_s);

std::string CertificatesText(const CertificatesReport& report, std::int64_t now_s);
nlohmann::ordered_json CertificatesJson(const CertificatesReport& report, std::int64_t now_s);

// Adds "certs ensure", "certs issue" and "certs show" to syctl's command line. `options` outlives
// `app`.
void AddCertsVerb(CLI::App& app, CertsOptions* options);

}  // namespace switchyard::ctl
