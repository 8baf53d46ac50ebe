#include "ctl/certs/secret_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard::ctl {
namespace {

absl::Status Cannot(absl::string_view what, const std::string& path) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                   absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)),
                   {{"file", path}});
}

bool WriteAll(int file, absl::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(file) == 0;
}

std::string FreshOf(const NewFile& file) { return absl::StrCat(file.path, ".new"); }

absl::Status WriteFresh(const NewFile& wanted) {
  const std::string fresh = FreshOf(wanted);
  ::unlink(fresh.c_str());  // what an earlier run left, perhaps with another mode
  const mode_t mode = wanted.readers == FileReaders::kOwner ? 0600 : 0644;
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) return Cannot("write", fresh);
  const bool written = WriteAll(file, wanted.content);
  ::close(file);
  return written ? absl::OkStatus() : Cannot("write", fresh);
}

}  // namespace

absl::Status MakeFolder(const std::string& path, FileReaders readers) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::string above = std::filesystem::path(path).parent_path().string();
  if (!above.empty()) std::filesystem::create_directories(above, error);
  if (::mkdir(path.c_str(), readers == FileReaders::kOwner ? 0700 : 0755) == 0) {
    return absl::OkStatus();
  }
  return Cannot("make the folder", path);
}

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return Cannot("open", path);
  FolderLock lock(file);
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return Cannot("lock", path);
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                   absl::StrCat("another process works on ", path, "; run this again when it ends"),
                   {{"file", path}});
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

absl::Status WriteFile(const std::string& path, absl::string_view content, FileReaders readers) {
  return WriteFiles({{path, std::string(content), readers}});
}

absl::Status WriteFiles(const std::vector<NewFile>& files) {
  for (const NewFile& each : files) SY_RETURN_IF_ERROR(WriteFresh(each));
  for (const NewFile& each : files) {
    if (::rename(FreshOf(each).c_str(), each.path.c_str()) != 0) return Cannot("write", each.path);
  }
  return absl::OkStatus();
}

}  // namespace switchyard::ctl
