// Which files of a checkpoint folder hold its weights.
//
// transformers writes "model.safetensors", or "model.safetensors.index.json" with shards beside it.
// Other writers use other names: msModelSlim writes "quant_model_weights.safetensors" and
// "quant_model_weights.safetensors.index.json". So the usual names come first, and in a folder
// without them the one index, or else the one safetensors file that has weights, is taken: a file
// beside the model, such as one of golden outputs, has none. Two candidates are an error, because
// to choose one could serve other weights than the operator means.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "model/io/file_descriptor.h"
#include "model/safetensors/safetensors.h"

namespace switchyard {

// An open checkpoint folder.
struct WeightFolder {
  std::string path;
  FileDescriptor descriptor;

  [[nodiscard]] std::string PathOf(const std::string& name) const;
  // Errors: those of OpenRegularFileIn.
  [[nodiscard]] absl::StatusOr<FileDescriptor> Open(const std::string& name) const;
};

// The file to begin with.
struct WeightFile {
  std::string name;       // bare
  bool is_index = false;  // an index that names shards; otherwise the tensors themselves
  FileDescriptor file;
};

// Errors, with Reason::kCheckpoint: AMBIGUOUS_WEIGHTS names the candidates; UNSUPPORTED_FORMAT
// when the weights are in another format; IO_ERROR (kNotFound) when there are none; those of
// WeightFolder::Open and SafetensorsFile for a file that cannot be opened or read. Cost: where the
// usual names are missing, reads the folder and the headers of its safetensors files, 64 at most.
absl::StatusOr<WeightFile> FindWeights(const WeightFolder& folder, const SafetensorsLimits& limits);

}  // namespace switchyard
