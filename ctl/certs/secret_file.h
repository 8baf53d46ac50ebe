// Folders and files that only some may read. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard::ctl {

enum class FileReaders : std::uint8_t { kOwner, kEverybody };

// Makes the folder and those above it, if it is not there: mode 700 or 755. One that is there keeps
// its mode. Errors, of both: kFailedPrecondition (BAD_CONFIG) with the path and why.
absl::Status MakeFolder(const std::string& path, FileReaders readers);
// Replaces the file in one step, mode 600 or 644; a reader sees the old content or the new one.
absl::Status WriteFile(const std::string& path, absl::string_view content, FileReaders readers);

// Keeps other processes from working on a folder, until it is destroyed or its process ends.
class FolderLock {
 public:
  // Errors: kFailedPrecondition (BAD_CONFIG) while another one has it.
  static absl::StatusOr<FolderLock> Take(const std::string& path);
  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int file) : file_(file) {}
  int file_;  // -1: moved from
};

struct NewFile {
  std::string path;
  std::string content;
  FileReaders readers = FileReaders::kOwner;
};
// Likewise several that belong together, such as a certificate and its key: all are on the disk
// before the first one is replaced, so that a reader hardly ever finds the one without the other.
absl::Status WriteFiles(const std::vector<NewFile>& files);

}  // namespace switchyard::ctl
