// A certificate authority for tests: makes the files that services/config/security_files.h reads.
// Keys are P-256, made anew each time. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace switchyard::testing {

// What a certificate is to say.
struct LeafWish {
  std::vector<std::string> uris;
  std::vector<std::string> dns = {};
  std::int64_t valid_from_s = -3600;  // relative to now
  std::int64_t valid_until_s = 3600;
};

// PEM texts.
struct Leaf {
  std::string certificate;
  std::string key;
};

class TestAuthority {
 public:
  // `name` is that of the authority's own certificate.
  explicit TestAuthority(const std::string& name);
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  [[nodiscard]] const std::string& certificate() const { return certificate_; }
  [[nodiscard]] Leaf Issue(const LeafWish& wish);
  // Writes ca.crt, tls.crt, tls.key and identities.yaml into `dir`, which exists. Files that are
  // there are replaced by renaming.
  void WriteFolder(const std::string& dir, const LeafWish& wish, const std::string& identities);

 private:
  struct Keys;
  std::unique_ptr<Keys> keys_;
  std::string certificate_;
  std::int64_t next_serial_ = 2;
};

// Replaces a file in one step, as a kubelet does.
void ReplaceFile(const std::string& path, const std::string& text);

}  // namespace switchyard::testing
