// Makes certificates: an authority of one's own and what it signs. For 'syctl certs', where no
// other authority is at hand. Keys are ECDSA P-256. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard {

// PEM texts. The key is a secret.
struct KeyedCertificate {
  std::string certificate;
  std::string key;
};

// A self-signed certificate that may sign others, valid from an hour ago for `days` >= 1. Its
// common name is `name`, at most 47 bytes, with a number that no other has: whoever trusts two
// authorities finds that of a certificate by name, and tries no second one. Errors: kInternal if
// libcrypto fails, as below.
absl::StatusOr<KeyedCertificate> MakeAuthority(const std::string& name, std::int64_t days);

// A certificate for server and client, valid from an hour ago for `days` or as long as the
// authority's, whichever ends first. `id` is a SPIFFE id, its one URI name. Errors:
// kInvalidArgument (BAD_CONFIG) for an id that is none and for an authority without a usable
// certificate or key; kFailedPrecondition (BAD_CONFIG) for one that has expired.
absl::StatusOr<KeyedCertificate> IssueCertificate(const KeyedCertificate& authority,
                                                  const std::string& id, std::int64_t days);

// OK if the first certificate of `certificate` was signed with the key of the first of `authority`.
// Errors: kInvalidArgument (BAD_CONFIG).
absl::Status CheckIssuer(absl::string_view certificate, absl::string_view authority);

}  // namespace switchyard
