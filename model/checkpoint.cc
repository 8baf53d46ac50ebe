#include "model/checkpoint.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/error.h"
#include "core/status_macros.h"
#include "model/checkpoint_error.h"

namespace switchyard {
namespace {

constexpr char kConfigName[] = "config.json";
constexpr std::uint64_t kConfigBytesMax = 16U << 20U;

absl::StatusOr<ModelConfig> ReadConfig(const CheckpointTensors& tensors) {
  const std::string path = absl::StrCat(tensors.dir(), "/", kConfigName);
  SY_ASSIGN_OR_RETURN(const std::optional<std::string> json,
                      tensors.ReadText(kConfigName, kConfigBytesMax));
  if (!json.has_value()) {
    return MakeCheckpointIoError({.file = path, .tensor = "", .offset = std::nullopt}, "open",
                                 ENOENT);
  }
  absl::StatusOr<ModelConfig> config = ParseModelConfig(*json);
  if (!config.ok()) return WithMetadata(Annotate(config.status(), path), "file", path);
  return config;
}

}  // namespace

Checkpoint::Checkpoint(CheckpointTensors tensors, ModelConfig config)
    : CheckpointTensors(std::move(tensors)), config_(std::move(config)) {}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& dir,
                                                             const SafetensorsLimits& limits) {
  SY_ASSIGN_OR_RETURN(CheckpointTensors tensors, CheckpointTensors::Open(dir, limits));
  SY_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(tensors));
  return std::unique_ptr<Checkpoint>(new Checkpoint(std::move(tensors), std::move(config)));
}

}  // namespace switchyard
