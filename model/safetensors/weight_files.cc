#include "model/safetensors/weight_files.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"

namespace switchyard {
namespace {

using Kind = CheckpointErrorKind;

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr std::size_t kNamesShown = 4;
constexpr std::size_t kHeadersRead = 64;

CheckpointErrorPlace PlaceOf(const std::string& file) {
  return {.file = file, .tensor = "", .offset = std::nullopt};
}

// Names in a folder, ascending, so that the same folder always gives the same error.
struct Listing {
  std::vector<std::string> indexes;
  std::vector<std::string> files;
  std::vector<std::string> other_formats;
};

Listing List(const std::string& path) {
  Listing out;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return out;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (absl::EndsWith(name, ".safetensors.index.json")) out.indexes.push_back(name);
    if (absl::EndsWith(name, ".safetensors")) out.files.push_back(name);
    for (const char* suffix : {".bin", ".pt", ".pth", ".gguf"}) {
      if (absl::EndsWith(name, suffix)) out.other_formats.push_back(name);
    }
  }
  closedir(folder);
  for (auto* names : {&out.indexes, &out.files, &out.other_formats}) {
    std::sort(names->begin(), names->end());
  }
  return out;
}

absl::Status Ambiguous(const WeightFolder& folder, absl::string_view what,
                       const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    shown.push_back(absl::StrCat("'", PrintableName(names[i]), "'"));
  }
  if (names.size() > shown.size()) shown.emplace_back("...");
  return MakeCheckpointError(
      Kind::kAmbiguousWeights, PlaceOf(folder.path),
      absl::StrCat("it has ", names.size(), " ", what, " (", absl::StrJoin(shown, ", "),
                   ") and none is named '", kSingleName, "' or '", kIndexName,
                   "'; leave the one to serve, or add the index of its shards"));
}

absl::Status NoWeights(const WeightFolder& folder, const Listing& listing) {
  if (!listing.other_formats.empty()) {
    return MakeCheckpointError(
        Kind::kUnsupportedFormat, PlaceOf(folder.PathOf(listing.other_formats.front())),
        "only safetensors checkpoints are read (pickles can run code); convert this one");
  }
  return MakeCheckpointIoError(PlaceOf(folder.path), "looking for safetensors files with weights",
                               ENOENT);
}

absl::StatusOr<WeightFile> Opened(const WeightFolder& folder, std::string name, bool is_index) {
  SY_ASSIGN_OR_RETURN(FileDescriptor file, folder.Open(name));
  return WeightFile{std::move(name), is_index, std::move(file)};
}

// The weights of linear modules are named so in every layout: "q_proj.weight",
// "up_proj.weight_packed".
bool HasWeights(const SafetensorsFile& file) {
  return std::any_of(file.tensors().begin(), file.tensors().end(), [](const TensorInfo& tensor) {
    return absl::StrContains(tensor.name, ".weight") || absl::StrContains(tensor.name, ".qweight");
  });
}

// Those of `names` that have weights; all of them where there are too many to look into.
absl::StatusOr<std::vector<std::string>> WithWeights(const WeightFolder& folder,
                                                     const std::vector<std::string>& names,
                                                     const SafetensorsLimits& limits) {
  if (names.size() > kHeadersRead) return names;
  std::vector<std::string> found;
  for (const std::string& name : names) {
    SY_ASSIGN_OR_RETURN(FileDescriptor file, folder.Open(name));
    SY_ASSIGN_OR_RETURN(const auto opened, SafetensorsFile::FromDescriptor(
                                               std::move(file), folder.PathOf(name), limits));
    if (HasWeights(*opened)) found.push_back(name);
  }
  return found;
}

}  // namespace

std::string WeightFolder::PathOf(const std::string& name) const {
  return absl::StrCat(path, "/", name);
}

absl::StatusOr<FileDescriptor> WeightFolder::Open(const std::string& name) const {
  return OpenRegularFileIn(descriptor, name, PathOf(name));
}

absl::StatusOr<WeightFile> FindWeights(const WeightFolder& folder,
                                       const SafetensorsLimits& limits) {
  // Like transformers: the single file wins when both exist. An error other than NOT_FOUND is
  // reported, not hidden behind a search for other names.
  absl::StatusOr<WeightFile> usual = Opened(folder, kSingleName, false);
  if (!absl::IsNotFound(usual.status())) return usual;
  usual = Opened(folder, kIndexName, true);
  if (!absl::IsNotFound(usual.status())) return usual;
  const Listing listing = List(folder.path);
  if (listing.indexes.size() > 1) return Ambiguous(folder, "indexes", listing.indexes);
  if (listing.indexes.size() == 1) return Opened(folder, listing.indexes.front(), true);
  SY_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                      WithWeights(folder, listing.files, limits));
  if (files.size() > 1) return Ambiguous(folder, "safetensors files with weights", files);
  if (files.size() == 1) return Opened(folder, files.front(), false);
  return NoWeights(folder, listing);
}

}  // namespace switchyard
