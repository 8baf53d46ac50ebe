// A folder of a test's own, removed with all that is in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace switchyard::testing {

class TempDir {
 public:
  TempDir() {
    std::string path = ::testing::TempDir() + "switchyard_XXXXXX";
    if (mkdtemp(path.data()) != nullptr) path_ = path;
    EXPECT_FALSE(path_.empty()) << "no folder could be made in " << ::testing::TempDir();
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string Join(absl::string_view name) const {
    return path_ + "/" + std::string(name);
  }
  // Returns the file's path.
  std::string Write(absl::string_view name, absl::string_view bytes) const {
    const std::string path = Join(name);
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(file.good()) << path;
    return path;
  }

 private:
  std::string path_;
};

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace switchyard::testing
