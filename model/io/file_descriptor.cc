#include "model/io/file_descriptor.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"

namespace switchyard {
namespace {

CheckpointErrorPlace PlaceOf(const std::string& path) {
  return {.file = path, .tensor = "", .offset = std::nullopt};
}

absl::Status NotRegular(const std::string& path, absl::string_view what) {
  return MakeCheckpointError(CheckpointErrorKind::kNotARegularFile, PlaceOf(path), what);
}

// `file` itself when it is a regular file: opening a device or pipe succeeds too.
absl::StatusOr<FileDescriptor> CheckRegular(FileDescriptor file, const std::string& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return MakeCheckpointIoError(PlaceOf(path), "stat", errno);
  if (!S_ISREG(status.st_mode)) return NotRegular(path, "this is not a regular file");
  return file;
}

}  // namespace

// A failing close loses nothing of a file that was only read.
void FileDescriptorTraits::Close(Handle fd) { static_cast<void>(close(fd)); }

absl::StatusOr<FileDescriptor> OpenRegularFile(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe blocks until a writer opens it.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return MakeCheckpointIoError(PlaceOf(path), "open", errno);
  return CheckRegular(std::move(file), path);
}

absl::StatusOr<FileDescriptor> OpenFolder(const std::string& path) {
  FileDescriptor folder(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (!folder.valid()) return MakeCheckpointIoError(PlaceOf(path), "open folder", errno);
  return folder;
}

absl::StatusOr<FileDescriptor> OpenRegularFileIn(const FileDescriptor& folder,
                                                 const std::string& name, const std::string& path) {
  // O_NOFOLLOW, because a link in a downloaded folder could name any file of the machine.
  FileDescriptor file(
      openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file.valid() && errno == ELOOP) {
    return NotRegular(path,
                      "this is a symbolic link, and links are not followed out of the checkpoint's "
                      "folder; copy the checkpoint with its links resolved (cp -rL)");
  }
  if (!file.valid()) return MakeCheckpointIoError(PlaceOf(path), "open", errno);
  return CheckRegular(std::move(file), path);
}

absl::StatusOr<std::uint64_t> SizeOf(const FileDescriptor& file, const std::string& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return MakeCheckpointIoError(PlaceOf(path), "stat", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

absl::Status ReadAt(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                    std::span<std::byte> out) {
  while (!out.empty()) {
    // pread keeps no position, so threads can share the descriptor.
    const ssize_t got = pread(file.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    CheckpointErrorPlace place = PlaceOf(path);
    place.offset = offset;
    if (got < 0) return MakeCheckpointIoError(place, "read", errno);
    if (got == 0) {
      return MakeCheckpointError(
          CheckpointErrorKind::kIoError, place,
          "the file became shorter while it was open; restart with the complete file");
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWhole(const FileDescriptor& file, const std::string& path,
                                      std::uint64_t bytes_max) {
  SY_ASSIGN_OR_RETURN(const std::uint64_t bytes, SizeOf(file, path));
  if (bytes > bytes_max) {
    return MakeCheckpointError(
        CheckpointErrorKind::kHeaderTooLarge, PlaceOf(path),
        absl::StrCat("its ", bytes, " bytes are above the limit of ", bytes_max));
  }
  std::string text(bytes, '\0');
  SY_RETURN_IF_ERROR(ReadAt(file, path, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace switchyard
