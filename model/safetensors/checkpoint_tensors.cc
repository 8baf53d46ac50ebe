#include "model/safetensors/checkpoint_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/file_descriptor.h"
#include "model/safetensors/safetensors_index.h"
#include "model/safetensors/weight_files.h"

namespace switchyard {
namespace {

using Kind = CheckpointErrorKind;
using Files = std::vector<std::unique_ptr<SafetensorsFile>>;

CheckpointErrorPlace PlaceOf(const std::string& file, absl::string_view tensor = "") {
  return {.file = file, .tensor = std::string(tensor), .offset = std::nullopt};
}

// The files of a checkpoint, open, and what an operator should know about them.
struct OpenWeights {
  Files files;
  std::vector<std::string> warnings;
};

// Every tensor of the index is in its shard, and no shard holds another.
absl::Status CheckAgreement(const std::string& path, const SafetensorsIndex& index,
                            const Files& files) {
  std::size_t in_shards = 0;
  for (const auto& file : files) in_shards += file->tensors().size();
  for (const SafetensorsIndex::Entry& entry : index.entries) {
    if (files[entry.file]->Find(entry.tensor) != nullptr) continue;
    return MakeCheckpointError(
        Kind::kIndexMismatch, PlaceOf(path, entry.tensor),
        absl::StrCat("the index places it in '", index.files[entry.file],
                     "', which has no such tensor; index and shards are of different versions"));
  }
  // Names are unique in the index and in each shard, so equal counts mean equal sets.
  if (in_shards == index.entries.size()) return absl::OkStatus();
  return MakeCheckpointError(
      Kind::kIndexMismatch, PlaceOf(path),
      absl::StrCat("the shards hold ", in_shards, " tensors, the index lists ",
                   index.entries.size(), "; index and shards are of different versions"));
}

// A warning and no error: DeepSeek-V3's own FP8 index states a wrong sum, and nothing reads it. The
// tensors themselves are checked, one by one.
void CheckTotal(const std::string& path, const SafetensorsIndex& index, OpenWeights& weights) {
  if (!index.total_bytes.has_value()) return;
  std::uint64_t bytes = 0;
  for (const auto& file : weights.files) {
    for (const TensorInfo& tensor : file->tensors()) bytes += tensor.bytes;
  }
  if (*index.total_bytes == bytes) return;
  weights.warnings.push_back(absl::StrCat(path, ": metadata.total_size is ", *index.total_bytes,
                                          ", but the shards' tensors have ", bytes,
                                          " bytes. The tensors agree with the index."));
}

absl::StatusOr<OpenWeights> OpenShards(const WeightFolder& folder, const WeightFile& index_file,
                                       const SafetensorsLimits& limits) {
  const std::string path = folder.PathOf(index_file.name);
  SY_ASSIGN_OR_RETURN(const std::string json,
                      ReadWhole(index_file.file, path, limits.header_bytes_max));
  SY_ASSIGN_OR_RETURN(const SafetensorsIndex index,
                      ParseSafetensorsIndex(json, path, {.entries_max = limits.tensors_max}));
  OpenWeights weights;
  for (const std::string& name : index.files) {
    SY_ASSIGN_OR_RETURN(FileDescriptor file, folder.Open(name));
    SY_ASSIGN_OR_RETURN(
        auto shard, SafetensorsFile::FromDescriptor(std::move(file), folder.PathOf(name), limits));
    weights.files.push_back(std::move(shard));
  }
  SY_RETURN_IF_ERROR(CheckAgreement(path, index, weights.files));
  CheckTotal(path, index, weights);
  return weights;
}

absl::StatusOr<OpenWeights> OpenFiles(const WeightFolder& folder, const SafetensorsLimits& limits) {
  SY_ASSIGN_OR_RETURN(WeightFile first, FindWeights(folder, limits));
  if (first.is_index) return OpenShards(folder, first, limits);
  OpenWeights weights;
  SY_ASSIGN_OR_RETURN(auto file, SafetensorsFile::FromDescriptor(
                                     std::move(first.file), folder.PathOf(first.name), limits));
  weights.files.push_back(std::move(file));
  return weights;
}

}  // namespace

// Sorted, because lookups by name and by prefix are frequent and names can be a million.
CheckpointTensors::CheckpointTensors(std::string dir, FileDescriptor folder, Files files,
                                     std::vector<std::string> warnings)
    : dir_(std::move(dir)),
      folder_(std::move(folder)),
      files_(std::move(files)),
      warnings_(std::move(warnings)) {
  for (const auto& file : files_) {
    for (const TensorInfo& tensor : file->tensors()) entries_.push_back({&tensor, file.get()});
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
}

absl::StatusOr<CheckpointTensors> CheckpointTensors::Open(const std::string& dir,
                                                          const SafetensorsLimits& limits) {
  SY_ASSIGN_OR_RETURN(FileDescriptor descriptor, OpenFolder(dir));
  WeightFolder folder{dir, std::move(descriptor)};
  SY_ASSIGN_OR_RETURN(OpenWeights weights, OpenFiles(folder, limits));
  return CheckpointTensors(dir, std::move(folder.descriptor), std::move(weights.files),
                           std::move(weights.warnings));
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
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return file.status();
  SY_ASSIGN_OR_RETURN(std::string text, ReadWhole(*file, path, bytes_max));
  return text;
}

}  // namespace switchyard
