#include "examples/qwen3_moe/tensor_reader.h"

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "model/io/checkpoint_error.h"

namespace switchyard::qwen3_moe {
namespace {

std::vector<std::int64_t> ShapeOf(std::initializer_list<std::size_t> sizes) {
  std::vector<std::int64_t> shape;
  for (const std::size_t size : sizes) shape.push_back(static_cast<std::int64_t>(size));
  return shape;
}

}  // namespace

absl::StatusOr<std::vector<float>> TensorReader::Vector(const std::string& name, std::size_t size) {
  return Read(name, ShapeOf({size}));
}

absl::StatusOr<std::vector<float>> TensorReader::Matrix(const std::string& name, std::size_t rows,
                                                        std::size_t columns) {
  return Read(name, ShapeOf({rows, columns}));
}

absl::StatusOr<PackedMatrix> TensorReader::Packed(const std::string& name, std::size_t rows,
                                                  std::size_t columns) {
  SY_ASSIGN_OR_RETURN(const std::vector<float> values, Matrix(name, rows, columns));
  return PackedMatrix::Pack(values, rows, columns);
}

// Names are recorded only for tensors that pass the checks.
absl::StatusOr<std::vector<float>> TensorReader::Read(const std::string& name,
                                                      const std::vector<std::int64_t>& shape) {
  const CheckpointErrorPlace place{
      .file = checkpoint_.FileOf(name), .tensor = name, .offset = std::nullopt};
  const TensorInfo* info = checkpoint_.Find(name);
  if (info == nullptr) {
    return MakeCheckpointError(
        CheckpointErrorKind::kTensorNotFound, place,
        absl::StrCat("no file of ", checkpoint_.dir(),
                     " has it, but config.json requires it; download the checkpoint again"));
  }
  if (info->shape != shape) {
    return MakeCheckpointError(
        CheckpointErrorKind::kWrongShape, place,
        absl::StrCat("its shape is [", absl::StrJoin(info->shape, ", "),
                     "], but config.json requires [", absl::StrJoin(shape, ", "),
                     "]; download both files again"));
  }
  names_.push_back(name);
  // Norms and routers of some checkpoints are stored as F32.
  if (info->dtype == TensorDtype::kF32) {
    std::vector<float> values(info->bytes / sizeof(float));
    SY_RETURN_IF_ERROR(checkpoint_.Read(name, std::as_writable_bytes(std::span(values))));
    return values;
  }
  if (info->dtype != TensorDtype::kBf16) {
    return MakeCheckpointError(CheckpointErrorKind::kWrongDtype, place,
                               absl::StrCat("its dtype is ", TensorDtypeName(info->dtype),
                                            "; the decoder reads BF16 and F32"));
  }
  std::vector<Bf16> stored(info->bytes / sizeof(Bf16));
  SY_RETURN_IF_ERROR(checkpoint_.Read(name, std::as_writable_bytes(std::span(stored))));
  std::vector<float> values(stored.size());
  Bf16ToFloats(stored, values);
  return values;
}

}  // namespace switchyard::qwen3_moe
