#include "coordinator/checkpoints/remembering_loader.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "model/model_spec.h"

namespace switchyard {
namespace {

constexpr std::time_t kRecentSeconds = 2;

// Empty: the file cannot be looked at, or changed just now.
std::string IdentityOfFile(const std::filesystem::path& path) {
  struct stat file {};
  // Follows links: a checkpoint of the hub's cache is a folder of them.
  if (::stat(path.c_str(), &file) != 0) return "";
  const std::time_t newest = std::max(file.st_mtim.tv_sec, file.st_ctim.tv_sec);
  if (newest + kRecentSeconds >= std::time(nullptr)) return "";
  return absl::StrJoin({absl::StrCat(path.filename().string()), absl::StrCat(file.st_dev),
                        absl::StrCat(file.st_ino), absl::StrCat(file.st_size),
                        absl::StrCat(file.st_mtim.tv_sec), absl::StrCat(file.st_mtim.tv_nsec),
                        absl::StrCat(file.st_ctim.tv_sec), absl::StrCat(file.st_ctim.tv_nsec)},
                       " ");
}

}  // namespace

std::string CheckpointIdentity(absl::string_view checkpoint) {
  const auto spec = ParseModelSpec(checkpoint);
  if (!spec.ok()) return "";
  const auto* folder = std::get_if<CheckpointFolder>(&*spec);
  if (folder == nullptr) return std::string(checkpoint);
  std::error_code error;
  std::vector<std::string> files;
  for (auto it = std::filesystem::directory_iterator(folder->path, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    files.push_back(IdentityOfFile(it->path()));
    if (files.back().empty()) return "";
  }
  if (error || files.empty()) return "";
  std::sort(files.begin(), files.end());
  return absl::StrJoin(files, "\n");
}

RememberingLoader::RememberingLoader(ModelLoader load, std::size_t max)
    : load_(std::move(load)), max_(max) {}

absl::StatusOr<ModelFacts> RememberingLoader::operator()(const std::string& checkpoint,
                                                         const ManifestProgress& progress) {
  const std::string before = CheckpointIdentity(checkpoint);
  if (!before.empty()) {
    const MutexLock lock(shared_->mutex);
    for (const Entry& entry : shared_->entries) {
      if (entry.checkpoint == checkpoint && entry.identity == before) return entry.facts;
    }
  }
  absl::StatusOr<ModelFacts> facts = load_(checkpoint, progress);
  // Somebody may have written to it meanwhile.
  if (!facts.ok() || before.empty() || CheckpointIdentity(checkpoint) != before) return facts;
  const MutexLock lock(shared_->mutex);
  std::erase_if(shared_->entries,
                [&](const Entry& entry) { return entry.checkpoint == checkpoint; });
  shared_->entries.push_back({checkpoint, before, *facts});
  if (shared_->entries.size() > max_) shared_->entries.pop_front();
  return facts;
}

}  // namespace switchyard
