// A safetensors file: its header checked on opening, its tensors read on demand.
//
// Nothing is mapped, and a tensor is read only when a caller reads it (pread of ranges), so a
// worker holds only the experts that it owns. The file stays open and must not change; one that
// shrinks gives IO_ERROR. Immutable after Open: all calls are thread-safe and may run side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/unique_handle.h"
#include "model/io/file_descriptor.h"
#include "model/safetensors/safetensors_header.h"

namespace switchyard {

class SafetensorsFile {
 public:
  // Errors: kDataLoss (CHECKPOINT) with the kinds of checkpoint_error.h; IO_ERROR has the code of
  // the system's error (kNotFound, kPermissionDenied ...). Costs one read of the header.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(
      const std::string& path, const SafetensorsLimits& limits = {});
  // The same for a file that is already open; `path` is for errors.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> FromDescriptor(
      FileDescriptor file, const std::string& path, const SafetensorsLimits& limits = {});

  // In order of their place in the file.
  [[nodiscard]] std::span<const TensorInfo> tensors() const { return header_.tensors; }
  // nullptr when the file has no such tensor. O(log n). Lives as long as the file.
  [[nodiscard]] const TensorInfo* Find(absl::string_view name) const;
  // The file's __metadata__, ascending by key.
  [[nodiscard]] std::span<const std::pair<std::string, std::string>> metadata() const {
    return header_.metadata;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

  // All bytes of `tensor`, one of this file's, into `out` of exactly that size.
  // Errors: kInvalidArgument (INVALID_TENSOR_VIEW); kDataLoss (IO_ERROR), `out` is then undefined.
  absl::Status Read(const TensorInfo& tensor, std::span<std::byte> out) const;
  // The bytes [offset, offset + out.size()) of `tensor`. Errors as above.
  absl::Status ReadRange(const TensorInfo& tensor, std::uint64_t offset,
                         std::span<std::byte> out) const;

 private:
  SafetensorsFile(FileDescriptor file, std::string path, SafetensorsHeader header);

  const FileDescriptor file_;
  const std::string path_;
  const SafetensorsHeader header_;
  std::vector<std::uint32_t> by_name_;  // indices of header_.tensors, ascending by name
};

}  // namespace switchyard
