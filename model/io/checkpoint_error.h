// The faults of checkpoints, each under one stable name.
//
// A failure carries Reason::kCheckpoint and the metadata {kind, file, tensor, offset} (the last two
// where they apply), so that an operator sees which file to fetch again and a test can tell two
// failures apart. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace switchyard {

enum class CheckpointErrorKind : std::uint8_t {
  // The names of the reference reader of safetensors.
  kInvalidHeader,                 // header is not UTF-8
  kInvalidHeaderStart,            // header does not begin with '{' (leading whitespace is allowed)
  kInvalidHeaderDeserialization,  // header is not JSON, or not the JSON that the format requires
  kHeaderTooLarge,                // header longer than the limit
  kHeaderTooSmall,                // file shorter than the 8 bytes of the header's length
  kInvalidHeaderLength,           // header ends behind the end of the file
  // A tensor that a caller or a layout names is not in the checkpoint.
  kTensorNotFound,
  kTensorInvalidInfo,         // bytes of a tensor differ from shape times dtype
  kInvalidOffset,             // hole, overlap or end before begin
  kIoError,                   // open or read refused by the system, or a file that shrank
  kJsonError,                 // index is not JSON
  kInvalidTensorView,         // the caller's buffer or range does not fit the tensor
  kMetadataIncompleteBuffer,  // tensors end before or behind the end of the file
  kValidationOverflow,        // sizes that overflow 64 bits
  kMisalignedSlice,           // tensor of a sub-byte dtype that ends inside a byte
  // Names of this project.
  kDuplicateKey,
  kUnknownDtype,
  kHeaderTooDeep,
  kTooManyTensors,
  kTooManyDims,
  kTooManyMetadataEntries,
  kNotARegularFile,    // symbolic link, pipe, folder ...
  kUnsupportedFormat,  // a folder with .bin, .pt or .gguf files only
  kUnsafeFileName,     // index names a file that is not a bare name
  kIndexInvalid,       // index lacks or mistypes a field, or is over its limits
  kIndexMismatch,      // index and shards list different tensors
  kAmbiguousWeights,   // several files could be the checkpoint's weights
  kWrongShape,         // tensor has another shape than config.json implies
  kWrongDtype,         // tensor has a dtype that cannot be served
  kWrongValue,         // tensor holds a value that its layout does not allow
  kUnexpectedTensor,   // tensor that would change what the weights beside it mean
};

// SCREAMING_SNAKE, e.g. "HEADER_TOO_LARGE". Total over the enum.
absl::string_view CheckpointErrorKindName(CheckpointErrorKind kind);
// Every kind, for tables and tests.
std::vector<CheckpointErrorKind> AllCheckpointErrorKinds();

// The place of the fault; empty parts are left out of text and metadata.
struct CheckpointErrorPlace {
  std::string file;
  std::string tensor;
  std::optional<std::uint64_t> offset;  // bytes from the start of `file`
};

// The Status of `kind`: kDataLoss but for TENSOR_NOT_FOUND (kNotFound), INVALID_TENSOR_VIEW
// (kInvalidArgument), AMBIGUOUS_WEIGHTS (kFailedPrecondition), UNSUPPORTED_FORMAT, WRONG_DTYPE and
// UNEXPECTED_TENSOR (kUnimplemented). `what` says what is wrong and what to do next. Names may hold
// any bytes: they are escaped and cut.
absl::Status MakeCheckpointError(CheckpointErrorKind kind, const CheckpointErrorPlace& place,
                                 absl::string_view what);

// IO_ERROR of a failed system call: kNotFound for ENOENT, kPermissionDenied for EACCES and EPERM,
// kResourceExhausted for EMFILE and ENFILE, else kDataLoss.
absl::Status MakeCheckpointIoError(const CheckpointErrorPlace& place, absl::string_view call,
                                   int error_number);

// `name` fit to print: escaped, at most 120 bytes or so.
std::string PrintableName(absl::string_view name);

}  // namespace switchyard
