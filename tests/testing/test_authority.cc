#include "tests/testing/test_authority.h"

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "core/base/check.h"
#include "services/config/security_files.h"

namespace switchyard::testing {
namespace {

constexpr char kSignedBy[] = "test authority";

std::string PemOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return text;
}

std::string PemOf(X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  SY_CHECK(PEM_write_bio_X509(bio, certificate) == 1, kSignedBy);
  return PemOf(bio);
}

std::string PemOf(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  SY_CHECK(PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
           kSignedBy);
  return PemOf(bio);
}

void AddExtension(X509* certificate, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
  SY_CHECK(extension != nullptr, kSignedBy);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

X509* Begin(EVP_PKEY* key, std::int64_t serial, std::int64_t from_s, std::int64_t until_s,
            const std::string& name) {
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), from_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate), until_s);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

struct TestAuthority::Keys {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = nullptr;
  ~Keys() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
};

TestAuthority::TestAuthority(const std::string& name) : keys_(std::make_unique<Keys>()) {
  constexpr std::int64_t kDay = 86400;
  keys_->certificate = Begin(keys_->key, 1, -kDay, kDay, name);
  X509* own = keys_->certificate;
  X509_set_issuer_name(own, X509_get_subject_name(own));
  AddExtension(own, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(own, NID_key_usage, "critical,keyCertSign");
  SY_CHECK(X509_sign(own, keys_->key, EVP_sha256()) != 0, kSignedBy);
  certificate_ = PemOf(own);
}

TestAuthority::~TestAuthority() = default;

Leaf TestAuthority::Issue(const LeafWish& wish) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* leaf = Begin(key, next_serial_++, wish.valid_from_s, wish.valid_until_s, "leaf");
  X509_set_issuer_name(leaf, X509_get_subject_name(keys_->certificate));
  std::vector<std::string> names;
  for (const std::string& uri : wish.uris) names.push_back(absl::StrCat("URI:", uri));
  for (const std::string& dns : wish.dns) names.push_back(absl::StrCat("DNS:", dns));
  if (!names.empty()) AddExtension(leaf, NID_subject_alt_name, absl::StrJoin(names, ","));
  AddExtension(leaf, NID_ext_key_usage, "serverAuth,clientAuth");
  SY_CHECK(X509_sign(leaf, keys_->key, EVP_sha256()) != 0, kSignedBy);
  Leaf out{PemOf(leaf), PemOf(key)};
  X509_free(leaf);
  EVP_PKEY_free(key);
  return out;
}

void TestAuthority::WriteFolder(const std::string& dir, const LeafWish& wish,
                                const std::string& identities) {
  const Leaf leaf = Issue(wish);
  ReplaceFile(absl::StrCat(dir, "/", kCaFile), certificate_);
  ReplaceFile(absl::StrCat(dir, "/", kKeyFile), leaf.key);
  ReplaceFile(absl::StrCat(dir, "/", kCertificateFile), leaf.certificate);
  ReplaceFile(absl::StrCat(dir, "/", kIdentitiesFile), identities);
}

void ReplaceFile(const std::string& path, const std::string& text) {
  const std::string fresh = absl::StrCat(path, ".new");
  std::ofstream(fresh) << text;
  SY_CHECK(std::rename(fresh.c_str(), path.c_str()) == 0, "a test cannot replace a file");
}

}  // namespace switchyard::testing
