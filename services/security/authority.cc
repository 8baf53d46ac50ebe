#include "services/security/authority.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include <openssl/ec.h>
#include <openssl/rand.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "services/security/identity_table.h"
#include "services/security/openssl.h"

namespace switchyard {
namespace {

using openssl::Certificate;
using openssl::Key;

constexpr std::int64_t kDay = 86400;
// Clocks of two hosts differ.
constexpr std::int64_t kEarlier = 3600;

absl::Status Failed() {
  ERR_clear_error();
  return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                   "libcrypto could not make a certificate", {});
}
absl::Status Bad(absl::StatusCode code, absl::string_view what) {
  return MakeError(code, Reason::kBadConfig, what, {});
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

absl::StatusOr<KeyedCertificate> PemOf(X509* certificate, EVP_PKEY* key) {
  const openssl::Bio first(BIO_new(BIO_s_mem()));
  const openssl::Bio second(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(first.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(second.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed();
  }
  return KeyedCertificate{TextOf(first.get()), TextOf(second.get())};
}

bool AddExtension(X509* certificate, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const openssl::Extension extension(X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// Random, because two authorities of one name must not give one number twice.
bool SetSerial(X509* certificate) {
  unsigned char bytes[8];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return false;
  std::uint64_t serial = 0;
  for (const unsigned char byte : bytes) serial = serial << 8U | byte;
  return ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1U | 1U) == 1;
}

// Everything but names of the subject, extensions and signature.
Certificate Begin(EVP_PKEY* key, std::int64_t seconds) {
  Certificate out(X509_new());
  const bool good = out != nullptr && X509_set_version(out.get(), 2) == 1 && SetSerial(out.get()) &&
                    X509_gmtime_adj(X509_getm_notBefore(out.get()), -kEarlier) != nullptr &&
                    X509_gmtime_adj(X509_getm_notAfter(out.get()), seconds) != nullptr &&
                    X509_set_pubkey(out.get(), key) == 1;
  return good ? std::move(out) : nullptr;
}

// Zero or less: it has expired.
std::int64_t SecondsLeft(const X509* certificate) {
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate)) != 1) return 0;
  return std::int64_t{days} * kDay + seconds;
}

}  // namespace

absl::StatusOr<KeyedCertificate> MakeAuthority(const std::string& name, std::int64_t days) {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed();
  const Certificate own = Begin(key.get(), days * kDay);
  if (own == nullptr) return Failed();
  std::uint64_t serial = 0;
  if (ASN1_INTEGER_get_uint64(&serial, X509_get0_serialNumber(own.get())) != 1) return Failed();
  const std::string own_name = absl::StrCat(name, " ", absl::Hex(serial, absl::kZeroPad16));
  X509_NAME* subject = X509_get_subject_name(own.get());
  const auto* text = reinterpret_cast<const unsigned char*>(own_name.c_str());
  const bool good =
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, text, -1, -1, 0) == 1 &&
      X509_set_issuer_name(own.get(), subject) == 1 &&
      AddExtension(own.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      AddExtension(own.get(), NID_key_usage, "critical,keyCertSign,cRLSign") &&
      AddExtension(own.get(), NID_subject_key_identifier, "hash") &&
      X509_sign(own.get(), key.get(), EVP_sha256()) != 0;
  return good ? PemOf(own.get(), key.get()) : Failed();
}

absl::StatusOr<KeyedCertificate> IssueCertificate(const KeyedCertificate& authority,
                                                  const std::string& id, std::int64_t days) {
  if (const std::string wrong = ParseSpiffeId(id).wrong; !wrong.empty()) {
    return Bad(absl::StatusCode::kInvalidArgument,
               absl::StrCat("\"", id, "\" is no SPIFFE id: ", wrong));
  }
  const Certificate issuer = openssl::NextCertificate(openssl::BioOf(authority.certificate).get());
  const Key issuer_key = openssl::KeyOf(authority.key);
  if (issuer == nullptr || issuer_key == nullptr ||
      X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    ERR_clear_error();
    return Bad(absl::StatusCode::kInvalidArgument,
               "the authority's certificate and key are not PEM, or do not belong together");
  }
  const std::int64_t left = SecondsLeft(issuer.get());
  if (left <= 0) {
    return Bad(absl::StatusCode::kFailedPrecondition, "the authority's certificate has expired");
  }
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed();
  const Certificate leaf = Begin(key.get(), std::min(left, days * kDay));
  const bool good =
      leaf != nullptr &&
      X509_set_issuer_name(leaf.get(), X509_get_subject_name(issuer.get())) == 1 &&
      AddExtension(leaf.get(), NID_basic_constraints, "critical,CA:FALSE") &&
      AddExtension(leaf.get(), NID_key_usage, "critical,digitalSignature") &&
      AddExtension(leaf.get(), NID_ext_key_usage, "serverAuth,clientAuth") &&
      // Critical, because the certificate has no other name (RFC 5280, 4.2.1.6).
      AddExtension(leaf.get(), NID_subject_alt_name, absl::StrCat("critical,URI:", id)) &&
      X509_sign(leaf.get(), issuer_key.get(), EVP_sha256()) != 0;
  return good ? PemOf(leaf.get(), key.get()) : Failed();
}

absl::Status CheckIssuer(absl::string_view certificate, absl::string_view authority) {
  const Certificate leaf = openssl::NextCertificate(openssl::BioOf(certificate).get());
  const Certificate issuer = openssl::NextCertificate(openssl::BioOf(authority).get());
  const bool good = leaf != nullptr && issuer != nullptr &&
                    X509_verify(leaf.get(), X509_get0_pubkey(issuer.get())) == 1;
  ERR_clear_error();
  return good ? absl::OkStatus()
              : Bad(absl::StatusCode::kInvalidArgument, "the authority has not signed it");
}

}  // namespace switchyard
