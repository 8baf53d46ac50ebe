#include "model/safetensors/checkpoint_tensors.h"

#include <algorithm>
#include <dirent.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/file_descriptor.h"
#include "model/safetensors/safetensors_index.h"

namespace switchyard {
namespace {

using Kind = CheckpointErrorKind;
using Files = std::vector<std::unique_ptr<SafetensorsFile>>;

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";

// An open checkpoint folder.
struct Folder {
  std::string path;
  FileDescriptor descriptor;

  [[nodiscard]] std::string PathOf(const std::string& name) const {
    return absl::StrCat(path, "/", name);
  }
  [[nodiscard]] absl::StatusOr<FileDescriptor> Open(const std::string& name) const {
    return OpenRegularFileIn(descriptor, name, PathOf(name));
  }
};

CheckpointErrorPlace PlaceOf(const std::string& file, absl::string_view tensor = "") {
  return {.file = file, .tensor = std::string(tensor), .offset = std::nullopt};
}

// A file in the folder that has weights in another format; empty when there is none. The first in
// order of names, so that the error is always the same.
std::string OtherFormatIn(const std::string& path) {
  std::string found;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return found;
  // The order of readdir differs between file systems, hence the comparison of names.
  while (const dirent* entry = readdir(folder)) {
    const absl::string_view name = entry->d_name;
    for (const char* suffix : {".bin", ".pt", ".pth", ".gguf"}) {
      if (absl::EndsWith(name, suffix) && (found.empty() || name < found))
        found = std::string(name);
    }
  }
  closedir(folder);
  return found;
}

// The error when neither the single file nor the index exists; names other formats that do.
absl::Status NoWeights(const Folder& folder) {
  const std::string other = OtherFormatIn(folder.path);
  if (!other.empty()) {
    return MakeCheckpointError(
        Kind::kUnsupportedFormat, PlaceOf(folder.PathOf(other)),
        "only safetensors checkpoints are read (pickles can run code); convert this one");
  }
  return MakeCheckpointIoError(
      PlaceOf(folder.path), absl::StrCat("looking for ", kSingleName, " or ", kIndexName), ENOENT);
}

// Every tensor of the index is in its shard, and no shard holds another.
absl::Status CheckAgreement(const std::string& path, const SafetensorsIndex& index,
                            const Files& files) {
  std::size_t in_shards = 0;
  std::uint64_t bytes = 0;
  for (const auto& file : files) {
    in_shards += file->tensors().size();
    for (const TensorInfo& tensor : file->tensors()) bytes += tensor.bytes;
  }
  for (const SafetensorsIndex::Entry& entry : index.entries) {
    if (files[entry.file]->Find(entry.tensor) != nullptr) continue;
    return MakeCheckpointError(
        Kind::kIndexMismatch, PlaceOf(path, entry.tensor),
        absl::StrCat("the index places it in '", index.files[entry.file],
                     "', which has no such tensor; index and shards are of different versions"));
  }
  // Names are unique in the index and in each shard, so equal counts mean equal sets.
  if (in_shards != index.entries.size()) {
    return MakeCheckpointError(
        Kind::kIndexMismatch, PlaceOf(path),
        absl::StrCat("the shards hold ", in_shards, " tensors, the index lists ",
                     index.entries.size(), "; index and shards are of different versions"));
  }
  if (index.total_bytes.has_value() && *index.total_bytes != bytes) {
    return MakeCheckpointError(Kind::kTotalSizeMismatch, PlaceOf(path),
                               absl::StrCat("metadata.total_size is ", *index.total_bytes,
                                            ", the shards' tensors have ", bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Files> OpenShards(const Folder& folder, const FileDescriptor& index_file,
                                 const SafetensorsLimits& limits) {
  const std::string path = folder.PathOf(kIndexName);
  // Bounded like a header: the index is read into memory as a whole.
  SY_ASSIGN_OR_RETURN(const std::string json, ReadWhole(index_file, path, limits.header_bytes_max));
  SY_ASSIGN_OR_RETURN(const SafetensorsIndex index,
                      ParseSafetensorsIndex(json, path, {.entries_max = limits.tensors_max}));
  Files files;
  for (const std::string& name : index.files) {
    SY_ASSIGN_OR_RETURN(FileDescriptor file, folder.Open(name));
    SY_ASSIGN_OR_RETURN(
        auto shard, SafetensorsFile::FromDescriptor(std::move(file), folder.PathOf(name), limits));
    files.push_back(std::move(shard));
  }
  SY_RETURN_IF_ERROR(CheckAgreement(path, index, files));
  return files;
}

absl::StatusOr<Files> OpenFiles(const Folder& folder, const SafetensorsLimits& limits) {
  // Like transformers: the single file wins when both exist.
  absl::StatusOr<FileDescriptor> single = folder.Open(kSingleName);
  if (single.ok()) {
    SY_ASSIGN_OR_RETURN(auto file, SafetensorsFile::FromDescriptor(
                                       *std::move(single), folder.PathOf(kSingleName), limits));
    Files files;
    files.push_back(std::move(file));
    return files;
  }
  // Another error is reported, not hidden behind a search for the index.
  if (!absl::IsNotFound(single.status())) return single.status();
  const absl::StatusOr<FileDescriptor> index = folder.Open(kIndexName);
  if (index.ok()) return OpenShards(folder, *index, limits);
  // As above: a file that exists and cannot be read is the error to report.
  if (!absl::IsNotFound(index.status())) return index.status();
  return NoWeights(folder);
}

}  // namespace

// Sorted, because lookups by name and by prefix are frequent and names can be a million.
CheckpointTensors::CheckpointTensors(std::string dir, FileDescriptor folder, Files files)
    : dir_(std::move(dir)), folder_(std::move(folder)), files_(std::move(files)) {
  // Entries point into the files, which are on the heap and never move.
  for (const auto& file : files_) {
    for (const TensorInfo& tensor : file->tensors()) entries_.push_back({&tensor, file.get()});
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
}

absl::StatusOr<CheckpointTensors> CheckpointTensors::Open(const std::string& dir,
                                                          const SafetensorsLimits& limits) {
  SY_ASSIGN_OR_RETURN(FileDescriptor descriptor, OpenFolder(dir));
  Folder folder{dir, std::move(descriptor)};
  SY_ASSIGN_OR_RETURN(Files files, OpenFiles(folder, limits));
  return CheckpointTensors(dir, std::move(folder.descriptor), std::move(files));
}

std::vector<CheckpointTensors::Entry>::const_iterator CheckpointTensors::LowerBound(
    absl::string_view name) const {
  return std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const Entry& entry, absl::string_view wanted) { return entry.tensor->name < wanted; });
}

const CheckpointTensors::Entry* CheckpointTensors::FindEntry(absl::string_view name) const {
  const auto it = LowerBound(name);
  return it != entries_.end() && it->tensor->name == name ? &*it : nullptr;
}

absl::Status CheckpointTensors::NotFound(absl::string_view name) const {
  return MakeCheckpointError(Kind::kTensorNotFound, PlaceOf(dir_, name),
                             "the checkpoint has no such tensor; is it complete?");
}

const TensorInfo* CheckpointTensors::Find(absl::string_view name) const {
  const Entry* entry = FindEntry(name);
  return entry == nullptr ? nullptr : entry->tensor;
}

bool CheckpointTensors::HasPrefix(absl::string_view prefix) const {
  const auto it = LowerBound(prefix);
  return it != entries_.end() && absl::StartsWith(it->tensor->name, prefix);
}

absl::Status CheckpointTensors::Read(absl::string_view name, std::span<std::byte> out) const {
  const Entry* entry = FindEntry(name);
  return entry == nullptr ? NotFound(name) : entry->file->Read(*entry->tensor, out);
}

absl::Status CheckpointTensors::ReadRange(absl::string_view name, std::uint64_t offset,
                                          std::span<std::byte> out) const {
  const Entry* entry = FindEntry(name);
  return entry == nullptr ? NotFound(name) : entry->file->ReadRange(*entry->tensor, offset, out);
}

std::vector<std::string> CheckpointTensors::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.tensor->name);
  return names;
}

std::string CheckpointTensors::FileOf(absl::string_view name) const {
  const Entry* entry = FindEntry(name);
  return entry == nullptr ? "" : entry->file->path();
}

absl::StatusOr<std::optional<std::string>> CheckpointTensors::ReadText(
    const std::string& name, std::uint64_t bytes_max) const {
  const std::string path = absl::StrCat(dir_, "/", name);
  const absl::StatusOr<FileDescriptor> file = OpenRegularFileIn(folder_, name, path);
  // Optional files are common; every other error is one.
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return file.status();
  SY_ASSIGN_OR_RETURN(std::string text, ReadWhole(*file, path, bytes_max));
  return text;
}

}  // namespace switchyard
