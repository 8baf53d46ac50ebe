#include "quantize/output_folder.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

absl::Status IoError(const std::string& path, absl::string_view call, int error) {
  const CheckpointErrorPlace place{.file = path, .tensor = "", .offset = std::nullopt};
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) {
    return MakeCheckpointIoError(place, call, error);
  }
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kCheckpoint,
      absl::StrCat(path, ": the disk is full, or a quota or size limit is reached (", call, ": ",
                   std::generic_category().message(error), "); free space or choose another --out"),
      {{"kind", "IO_ERROR"}, {"file", path}});
}

absl::Status Refuse(const std::string& dir, absl::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                   absl::StrCat(dir, ": ", what), {{"out", dir}});
}

absl::Status SyncFolder(const std::string& path) {
  SY_ASSIGN_OR_RETURN(const FileDescriptor folder, OpenFolder(path));
  return Sync(folder, path);
}

std::string ParentOf(const std::string& dir) {
  const std::string parent = fs::path(dir).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string WithoutSlash(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

// The error of a failed mkdir names the parent: the partial folder's name would only confuse.
absl::Status CannotMake(const std::string& dir, int error) {
  const std::string parent = ParentOf(dir);
  if (error != ENOENT) return IoError(parent, "create a folder in it", error);
  return MakeError(absl::StatusCode::kNotFound, Reason::kCheckpoint,
                   absl::StrCat(dir, ": the folder ", parent,
                                " does not exist; create it, or choose another --out"),
                   {{"kind", "IO_ERROR"}, {"file", parent}});
}

// Replacing deletes the folder, so only a folder that looks like a checkpoint is replaced: a wrong
// --out must not cost anyone other files.
absl::Status CheckReplaceable(const std::string& dir) {
  std::error_code error;
  if (fs::is_symlink(dir, error) || !fs::is_directory(dir, error)) {
    return Refuse(dir, "it is not a folder, so it is not replaced; choose another --out");
  }
  if (!fs::is_regular_file(dir + "/config.json", error)) {
    return Refuse(
        dir,
        "it has no config.json, so it is not a checkpoint and is not replaced; choose another "
        "--out");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    if (entry.is_directory(error)) {
      return Refuse(
          dir,
          "it contains folders, so it is more than a checkpoint and is not replaced; choose "
          "another --out");
    }
  }
  return error ? IoError(dir, "list", error.value()) : absl::OkStatus();
}

// One rename, refused when `to` exists.
absl::Status RenameNew(const std::string& from, const std::string& to) {
  int result = renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  // Some file systems do not support the flag. A plain rename replaces at most an empty folder.
  if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
    result = std::rename(from.c_str(), to.c_str());
  }
  if (result == 0) return absl::OkStatus();
  if (errno == EEXIST || errno == ENOTEMPTY) {
    return Refuse(to, "another process created it meanwhile; choose another --out");
  }
  return IoError(to, "rename", errno);
}

}  // namespace

absl::StatusOr<FileDescriptor> CreateFile(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) return IoError(path, "create", errno);
  return file;
}

absl::Status WriteAt(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                     std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return IoError(path, "write", errno);
    offset += static_cast<std::uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status Sync(const FileDescriptor& file, const std::string& path) {
  return fsync(file.get()) == 0 ? absl::OkStatus() : IoError(path, "fsync", errno);
}

OutputFolder::OutputFolder(std::string dir, std::string partial, bool replace)
    : dir_(std::move(dir)), partial_(std::move(partial)), replace_(replace) {}

// A destructor cannot report a failure; the partial folder then stays, under a name that says so.
OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(partial_, ignored);
}

absl::StatusOr<std::unique_ptr<OutputFolder>> OutputFolder::Create(const std::string& dir,
                                                                   bool replace) {
  const std::string name = WithoutSlash(dir);
  std::error_code error;
  if (fs::exists(fs::symlink_status(name, error))) {
    if (!replace)
      return Refuse(name, "it exists; choose another --out, or replace it with --force");
    SY_RETURN_IF_ERROR(CheckReplaceable(name));
  }
  const std::string partial = absl::StrCat(name, ".partial-", getpid());
  if (mkdir(partial.c_str(), 0777) != 0) {
    if (errno != EEXIST) return CannotMake(name, errno);
    return Refuse(partial,
                  "it remains from a run that was killed, or another run is writing there; "
                  "delete it if no run is active");
  }
  return std::unique_ptr<OutputFolder>(new OutputFolder(name, partial, replace));
}

absl::Status OutputFolder::WriteFile(const std::string& name, absl::string_view text) {
  const std::string path = absl::StrCat(partial_, "/", name);
  SY_ASSIGN_OR_RETURN(const FileDescriptor file, CreateFile(path));
  const std::span<const char> bytes(text.data(), text.size());
  SY_RETURN_IF_ERROR(WriteAt(file, path, 0, std::as_bytes(bytes)));
  return Sync(file, path);
}

absl::Status OutputFolder::Commit() {
  // Files were synced one by one; their names are durable only after the folder is synced too.
  SY_RETURN_IF_ERROR(SyncFolder(partial_));
  std::error_code error;
  if (!replace_ || !fs::exists(fs::symlink_status(dir_, error))) {
    SY_RETURN_IF_ERROR(RenameNew(partial_, dir_));
    committed_ = true;
    return SyncFolder(ParentOf(dir_));
  }
  // Again, because hours may have passed since Create, and the folder may hold other files by now.
  SY_RETURN_IF_ERROR(CheckReplaceable(dir_));
  if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, dir_.c_str(), RENAME_EXCHANGE) != 0) {
    return IoError(dir_, "swap with the older checkpoint", errno);
  }
  committed_ = true;
  SY_RETURN_IF_ERROR(SyncFolder(ParentOf(dir_)));
  fs::remove_all(partial_, error);  // After the exchange this is the older checkpoint.
  return error ? IoError(partial_, "remove", error.value()) : absl::OkStatus();
}

}  // namespace switchyard
