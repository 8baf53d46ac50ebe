#include "model/safetensors/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"

namespace switchyard {
namespace {

// The format is little endian, and its numbers are used as stored.
static_assert(std::endian::native == std::endian::little);

using Kind = CheckpointErrorKind;

absl::Status HeaderError(Kind kind, const std::string& path, absl::string_view what) {
  return MakeCheckpointError(kind, {.file = path, .tensor = "", .offset = 0}, what);
}

// Checks the header's length against the limit and the file before anything of that size is
// allocated: the first eight bytes of a wrong file are an arbitrary number.
absl::StatusOr<std::uint64_t> ReadHeaderBytes(const FileDescriptor& file, const std::string& path,
                                              std::uint64_t file_bytes,
                                              const SafetensorsLimits& limits) {
  std::array<std::byte, 8> length{};
  if (file_bytes < length.size()) {
    return HeaderError(Kind::kHeaderTooSmall, path,
                       absl::StrCat("its ", file_bytes,
                                    " bytes are fewer than the 8 of a header's length; fetch the "
                                    "file again"));
  }
  SY_RETURN_IF_ERROR(ReadAt(file, path, 0, length));
  const auto bytes = std::bit_cast<std::uint64_t>(length);
  if (bytes > limits.header_bytes_max) {
    return HeaderError(Kind::kHeaderTooLarge, path,
                       absl::StrCat("its header of ", bytes, " bytes is above the limit of ",
                                    limits.header_bytes_max, "; is this a safetensors file?"));
  }
  if (bytes > file_bytes - length.size()) {
    return HeaderError(Kind::kInvalidHeaderLength, path,
                       absl::StrCat("its header of ", bytes, " bytes ends behind the file of ",
                                    file_bytes, "; fetch the file again"));
  }
  return bytes;
}

}  // namespace

SafetensorsFile::SafetensorsFile(FileDescriptor file, std::string path, SafetensorsHeader header)
    : file_(std::move(file)), path_(std::move(path)), header_(std::move(header)) {
  // Indices instead of a map: 4 bytes for each tensor beside the header's own.
  by_name_.resize(header_.tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return header_.tensors[a].name < header_.tensors[b].name;
  });
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path, const SafetensorsLimits& limits) {
  SY_ASSIGN_OR_RETURN(FileDescriptor file, OpenRegularFile(path));
  return FromDescriptor(std::move(file), path, limits);
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::FromDescriptor(
    FileDescriptor file, const std::string& path, const SafetensorsLimits& limits) {
  SY_ASSIGN_OR_RETURN(const std::uint64_t file_bytes, SizeOf(file, path));
  SY_ASSIGN_OR_RETURN(const std::uint64_t header_bytes,
                      ReadHeaderBytes(file, path, file_bytes, limits));
  std::string json(header_bytes, '\0');
  SY_RETURN_IF_ERROR(ReadAt(file, path, 8, std::as_writable_bytes(std::span(json))));
  const SafetensorsHeaderInput input{
      .json = json, .data_bytes = file_bytes - 8 - header_bytes, .file = path};
  SY_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(input, limits));
  return std::unique_ptr<SafetensorsFile>(
      new SafetensorsFile(std::move(file), path, std::move(header)));
}

const TensorInfo* SafetensorsFile::Find(absl::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](std::uint32_t index, absl::string_view wanted) {
                                     return header_.tensors[index].name < wanted;
                                   });
  if (it == by_name_.end() || header_.tensors[*it].name != name) return nullptr;
  return &header_.tensors[*it];
}

absl::Status SafetensorsFile::Read(const TensorInfo& tensor, std::span<std::byte> out) const {
  if (out.size() != tensor.bytes) {
    return MakeCheckpointError(
        Kind::kInvalidTensorView, {.file = path_, .tensor = tensor.name, .offset = std::nullopt},
        absl::StrCat("it has ", tensor.bytes, " bytes, the buffer ", out.size()));
  }
  return ReadRange(tensor, 0, out);
}

absl::Status SafetensorsFile::ReadRange(const TensorInfo& tensor, std::uint64_t offset,
                                        std::span<std::byte> out) const {
  // Written without a sum, which could overflow.
  if (offset > tensor.bytes || out.size() > tensor.bytes - offset) {
    return MakeCheckpointError(Kind::kInvalidTensorView,
                               {.file = path_, .tensor = tensor.name, .offset = std::nullopt},
                               absl::StrCat(out.size(), " bytes from ", offset,
                                            " were requested, the tensor has ", tensor.bytes));
  }
  const absl::Status status = ReadAt(file_, path_, tensor.file_offset + offset, out);
  // ReadAt knows the file and the offset; which tensor that is, only this function knows.
  return status.ok() ? status : WithMetadata(status, "tensor", PrintableName(tensor.name));
}

}  // namespace switchyard
