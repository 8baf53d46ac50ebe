// Files of a checkpoint: opened without following surprises, read at offsets.
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

struct FileDescriptorTraits {
  using Handle = int;
  static Handle Invalid() { return -1; }
  static void Close(Handle fd);
};
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

// All errors: Reason::kCheckpoint, kinds IO_ERROR and NOT_A_REGULAR_FILE, naming the file.

// A regular file of that path, for reading. Never blocks on a pipe.
absl::StatusOr<FileDescriptor> OpenRegularFile(const std::string& path);
// A folder, for OpenRegularFileIn.
absl::StatusOr<FileDescriptor> OpenFolder(const std::string& path);
// The file of that bare name in `folder` itself: a symbolic link is refused. `path` is for errors.
absl::StatusOr<FileDescriptor> OpenRegularFileIn(const FileDescriptor& folder,
                                                 const std::string& name, const std::string& path);

absl::StatusOr<std::uint64_t> SizeOf(const FileDescriptor& file, const std::string& path);
// Exactly out.size() bytes from `offset`; a file that ends before is IO_ERROR. Thread-safe.
absl::Status ReadAt(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                    std::span<std::byte> out);
// The whole file, when it has at most `bytes_max` bytes; else kind HEADER_TOO_LARGE.
absl::StatusOr<std::string> ReadWhole(const FileDescriptor& file, const std::string& path,
                                      std::uint64_t bytes_max);

}  // namespace switchyard
