#include "services/security/certificate.h"

#include <fstream>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "services/security/identity_table.h"
#include "services/security/openssl.h"

namespace switchyard {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

using openssl::BioOf;
using openssl::Certificate;
using openssl::NextCertificate;
using Store = std::unique_ptr<X509_STORE, openssl::Freed<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, openssl::Freed<X509_STORE_CTX_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, openssl::Freed<GENERAL_NAMES_free>>;

absl::Status Bad(const std::string& file, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat(file, ": ", what), {{"file", file}});
}

absl::StatusOr<std::string> ReadOne(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  // An empty file sets failbit on `text`, which is no failure to read.
  if (in) text << in.rdbuf();
  if (!in.is_open() || in.bad()) {
    return MakeError(absl::StatusCode::kNotFound, Reason::kBadConfig,
                     absl::StrCat("cannot read ", path, "; does it exist, and may this user?"),
                     {{"file", path}});
  }
  std::string out = text.str();
  if (out.size() > kFileBytesMax) return Bad(path, "it is larger than 1 MiB");
  return out;
}

std::vector<std::string> UrisOf(X509* certificate) {
  std::vector<std::string> uris;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<std::size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

std::int64_t UnixSeconds(const ASN1_TIME* time) {
  int days = 0;
  int seconds = 0;
  const std::unique_ptr<ASN1_TIME, openssl::Freed<ASN1_TIME_free>> epoch(ASN1_TIME_set(nullptr, 0));
  if (epoch == nullptr || ASN1_TIME_diff(&days, &seconds, epoch.get(), time) == 0) return 0;
  return std::int64_t{days} * 86400 + seconds;
}

absl::Status CheckKey(X509* certificate, const TlsMaterial& material, const TlsFiles& files) {
  const openssl::Key key = openssl::KeyOf(material.key);
  const bool fits = key != nullptr && X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr) return Bad(files.key, "there is no unencrypted private key in PEM in it");
  if (fits) return absl::OkStatus();
  return Bad(files.key, absl::StrCat("it is not the key of the certificate in ", files.certificate,
                                     "; issue both together"));
}

absl::StatusOr<std::string> IdOf(X509* certificate, const TlsFiles& files) {
  std::vector<std::string> uris = UrisOf(certificate);
  if (uris.size() != 1) {
    return Bad(files.certificate,
               absl::StrCat("a certificate needs one URI name, its SPIFFE id; this has ",
                            uris.empty() ? "none" : absl::StrJoin(uris, " and ")));
  }
  if (const std::string wrong = ParseSpiffeId(uris.front()).wrong; !wrong.empty()) {
    return Bad(files.certificate,
               absl::StrCat("its URI name ", uris.front(), " is no SPIFFE id: ", wrong));
  }
  return std::move(uris.front());
}

std::vector<Certificate> CertificatesOf(const std::string& pem) {
  const openssl::Bio bio = BioOf(pem);
  std::vector<Certificate> all;
  for (Certificate each = NextCertificate(bio.get()); each != nullptr;
       each = NextCertificate(bio.get())) {
    all.push_back(std::move(each));
  }
  return all;
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files) {
  TlsMaterial material;
  SY_ASSIGN_OR_RETURN(material.ca, ReadOne(files.ca));
  SY_ASSIGN_OR_RETURN(material.certificate, ReadOne(files.certificate));
  SY_ASSIGN_OR_RETURN(material.key, ReadOne(files.key));
  return material;
}

absl::StatusOr<CertificateFacts> CheckTlsMaterial(const TlsMaterial& material,
                                                  const TlsFiles& files) {
  if (NextCertificate(BioOf(material.ca).get()) == nullptr) {
    return Bad(files.ca, "there is no certificate in PEM in it");
  }
  const Certificate own = NextCertificate(BioOf(material.certificate).get());
  if (own == nullptr) return Bad(files.certificate, "there is no certificate in PEM in it");
  SY_RETURN_IF_ERROR(CheckKey(own.get(), material, files));
  CertificateFacts facts;
  SY_ASSIGN_OR_RETURN(facts.id, IdOf(own.get(), files));
  facts.not_before_s = UnixSeconds(X509_get0_notBefore(own.get()));
  facts.not_after_s = UnixSeconds(X509_get0_notAfter(own.get()));
  return facts;
}

absl::StatusOr<Validity> ValidityOf(const std::string& certificate) {
  const Certificate first = NextCertificate(BioOf(certificate).get());
  if (first == nullptr) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     "the text has no certificate in PEM", {});
  }
  return Validity{UnixSeconds(X509_get0_notBefore(first.get())),
                  UnixSeconds(X509_get0_notAfter(first.get()))};
}

absl::Status CheckChain(const TlsMaterial& material, const TlsFiles& files) {
  const std::vector<Certificate> authorities = CertificatesOf(material.ca);
  const std::vector<Certificate> own = CertificatesOf(material.certificate);
  const Store store(X509_STORE_new());
  const StoreContext context(X509_STORE_CTX_new());
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> between(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  bool good = store != nullptr && context != nullptr && between != nullptr && !own.empty();
  for (const Certificate& each : authorities) {
    good = good && X509_STORE_add_cert(store.get(), each.get()) == 1;
  }
  for (std::size_t i = 1; i < own.size(); ++i) {
    good = good && sk_X509_push(between.get(), own[i].get()) > 0;
  }
  good = good &&
         X509_STORE_CTX_init(context.get(), store.get(), own.front().get(), between.get()) == 1;
  if (good) {
    X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME);
    good = X509_verify_cert(context.get()) == 1;
  }
  ERR_clear_error();
  if (good) return absl::OkStatus();
  return Bad(files.certificate, absl::StrCat("no authority in ", files.ca, " has issued it"));
}

}  // namespace switchyard
