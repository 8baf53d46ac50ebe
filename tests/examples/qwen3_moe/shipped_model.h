// The checkpoint of the repository with its goldens, loaded once for a test suite.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/status_macros.h"
#include "examples/qwen3_moe/decoder.h"
#include "examples/qwen3_moe/reference_moe.h"
#include "model/checkpoint.h"
#include "tools/golden/golden_file.h"
#include "tools/verify/verify.h"

namespace switchyard::qwen3_moe {

inline std::string ShippedFile(absl::string_view name) {
  return std::string(SY_SHIPPED_MODEL "/") + std::string(name);
}

struct ShippedModel {
  // `dir` may hold a changed copy of the checkpoint; the goldens are the repository's.
  static absl::StatusOr<std::unique_ptr<ShippedModel>> Load(
      const std::string& dir = SY_SHIPPED_MODEL) {
    auto model = std::make_unique<ShippedModel>();
    SY_ASSIGN_OR_RETURN(model->checkpoint, Checkpoint::Open(dir));
    SY_ASSIGN_OR_RETURN(model->decoder, Decoder::Load(*model->checkpoint));
    SY_ASSIGN_OR_RETURN(std::shared_ptr<const ReferenceMoe> moe,
                        ReferenceMoe::Load(*model->checkpoint, model->decoder->dims()));
    model->moe = MakeReferenceMoe(std::move(moe));
    SY_ASSIGN_OR_RETURN(model->golden, GoldenFile::Open(ShippedFile("golden.safetensors"),
                                                        GoldenShapeOf(model->decoder->dims())));
    return model;
  }

  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<GoldenFile> golden;
  MoeFn moe;
};

}  // namespace switchyard::qwen3_moe
