// Files of a checkpoint: opened without following links out of the folder, read at offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/unique_handle.h"

namespace switchyard {

// For UniqueHandle.
struct FileDescriptorTraits {
  using Handle = int;
  static Handle Invalid() { return -1; }
  static void Close(Handle fd);
};
// Closes the file when it goes. Move-only.
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

// Errors of all calls: Reason::kCheckpoint, kinds IO_ERROR and NOT_A_REGULAR_FILE, naming the file.

// Opens a regular file for reading. Never blocks on a pipe.
absl::StatusOr<FileDescriptor> OpenRegularFile(const std::string& path);
// Opens a folder, for OpenRegularFileIn.
absl::StatusOr<FileDescriptor> OpenFolder(const std::string& path);
// Opens the file of that bare name in `folder`; a symbolic link is refused. `path` is for errors.
absl::StatusOr<FileDescriptor> OpenRegularFileIn(const FileDescriptor& folder,
                                                 const std::string& name, const std::string& path);

// The size now; a file that shrinks later is found by ReadAt.
absl::StatusOr<std::uint64_t> SizeOf(const FileDescriptor& file, const std::string& path);
// Reads exactly out.size() bytes from `offset`; a file that ends before is IO_ERROR. Thread-safe.
absl::Status ReadAt(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                    std::span<std::byte> out);
// Reads the whole file; HEADER_TOO_LARGE when it has more than `bytes_max` bytes.
absl::StatusOr<std::string> ReadWhole(const FileDescriptor& file, const std::string& path,
                                      std::uint64_t bytes_max);

}  // namespace switchyard
