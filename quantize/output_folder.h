// A folder that appears under its name only when it is complete.
//
//   Create   DIR.partial-PID is made beside DIR
//   Commit   everything is on disk; then one rename gives it its name
//   else     the partial folder is removed; DIR is as it was
//
// With `replace`, an older checkpoint under the name is swapped for the new one in one step and
// then removed; a folder that is not a checkpoint (no config.json, or folders inside) is
// never replaced. A process that is killed leaves the partial folder behind, never half of DIR. Not
// thread-safe.
//
// Errors of all calls: (CHECKPOINT) IO_ERROR naming the file and the system's words,
// kResourceExhausted when the disk or the quota is full; kFailedPrecondition (BAD_CONFIG), metadata
// {out}, where said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/io/file_descriptor.h"

namespace switchyard {

class OutputFolder {
 public:
  // kFailedPrecondition: `dir` exists and `replace` is false, or it is not a checkpoint; its
  // partial folder exists.
  static absl::StatusOr<std::unique_ptr<OutputFolder>> Create(const std::string& dir, bool replace);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // The path of the files until Commit.
  [[nodiscard]] const std::string& partial() const { return partial_; }
  // Writes a whole file, durable on return.
  absl::Status WriteFile(const std::string& name, absl::string_view text);
  // Call once, last. kFailedPrecondition when another process created `dir` meanwhile.
  absl::Status Commit();

 private:
  OutputFolder(std::string dir, std::string partial, bool replace);

  const std::string dir_;
  const std::string partial_;
  const bool replace_;
  bool committed_ = false;
};

// Creates a file for writing; it must not exist.
absl::StatusOr<FileDescriptor> CreateFile(const std::string& path);
absl::Status WriteAt(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                     std::span<const std::byte> bytes);
absl::Status Sync(const FileDescriptor& file, const std::string& path);

}  // namespace switchyard
