// Owners of libcrypto's objects, for the sources of this folder.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace switchyard::openssl {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;

// A reader of `text`, which outlives it.
inline Bio BioOf(absl::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The next certificate of a PEM text; null: there is none.
inline Certificate NextCertificate(BIO* bio) {
  Certificate out(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr));
  ERR_clear_error();  // the end of the text is an error, too
  return out;
}

// The private key of a PEM text; null: there is none, or it is encrypted.
inline Key KeyOf(absl::string_view text) {
  // Otherwise libcrypto would ask for a password on a terminal.
  const auto no_password = [](char* /*buffer*/, int /*size*/, int /*writing*/, void* /*user*/) {
    return 0;
  };
  const Bio bio = BioOf(text);
  Key out(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  return out;
}

}  // namespace switchyard::openssl
