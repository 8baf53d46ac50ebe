#include "model/quant/config/quant_files.h"

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"

namespace switchyard {
namespace {

constexpr std::uint64_t kConfigBytesMax = 16U << 20U;

}  // namespace

absl::StatusOr<QuantConfig> LoadQuantConfig(const CheckpointTensors& tensors) {
  QuantConfigFiles files;
  SY_ASSIGN_OR_RETURN(std::optional<std::string> config,
                      tensors.ReadText("config.json", kConfigBytesMax));
  if (!config.has_value()) {
    return MakeCheckpointIoError(
        {.file = absl::StrCat(tensors.dir(), "/config.json"), .tensor = "", .offset = std::nullopt},
        "open", ENOENT);
  }
  files.config_json = *std::move(config);
  SY_ASSIGN_OR_RETURN(files.hf_quant_config,
                      tensors.ReadText("hf_quant_config.json", kConfigBytesMax));
  SY_ASSIGN_OR_RETURN(
      files.quant_model_description,
      tensors.ReadText("quant_model_description.json", ModelSlimLimits{}.file_bytes_max));
  absl::StatusOr<QuantConfig> parsed = ParseQuantConfig(files);
  if (parsed.ok()) return parsed;
  return WithMetadata(Annotate(parsed.status(), tensors.dir()), "dir", tensors.dir());
}

}  // namespace switchyard
