// Our own certificate files are checked before anything listens: gRPC itself only logs that a
// handshake cannot work, once it fails. Pure but for ReadTlsFiles; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace switchyard {

// The paths of a process's TLS files, in PEM.
struct TlsFiles {
  std::string ca;           // certificates of the authorities that peers' certificates come from
  std::string certificate;  // this process's, then those between it and the authority
  std::string key;          // its private key, unencrypted
};

// The contents of the same.
struct TlsMaterial {
  std::string ca;
  std::string certificate;
  std::string key;
};

// The facts of a process's own certificate.
struct CertificateFacts {
  std::string id;                 // its one URI name, a SPIFFE id
  std::int64_t not_before_s = 0;  // Unix time
  std::int64_t not_after_s = 0;
};

// In Unix time.
struct Validity {
  std::int64_t not_before_s = 0;
  std::int64_t not_after_s = 0;
};

// Returns that of the first certificate of a PEM text. Errors: kInvalidArgument (BAD_CONFIG) if it
// has none.
absl::StatusOr<Validity> ValidityOf(const std::string& certificate);

// A file has at most 1 MiB. Errors: kNotFound (BAD_CONFIG), naming the file, if it cannot be read.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files);

// Errors: kInvalidArgument (BAD_CONFIG), naming the file of `files`: no PEM, a key that is not the
// certificate's, no URI name or several, a URI that is no SPIFFE id, no certificate in the bundle.
// Whether it has expired, or who signed it, is not looked at: a peer decides that.
absl::StatusOr<CertificateFacts> CheckTlsMaterial(const TlsMaterial& material,
                                                  const TlsFiles& files);

// OK if certificates of the bundle and those behind the process's own lead to one that the bundle
// has, whatever the time is. `material` has passed CheckTlsMaterial. Errors: kInvalidArgument
// (BAD_CONFIG), naming the file of `files`.
absl::Status CheckChain(const TlsMaterial& material, const TlsFiles& files);

}  // namespace switchyard
