#include "model/io/checkpoint_error.h"

#include <array>
#include <cerrno>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

using absl::StatusCode;

struct KindRow {
  CheckpointErrorKind kind;
  const char* name;
  StatusCode code;
};

// Row i belongs to the enumerator of value i.
constexpr std::array<KindRow, 31> kKinds{{
    {CheckpointErrorKind::kInvalidHeader, "INVALID_HEADER", StatusCode::kDataLoss},
    {CheckpointErrorKind::kInvalidHeaderStart, "INVALID_HEADER_START", StatusCode::kDataLoss},
    {CheckpointErrorKind::kInvalidHeaderDeserialization, "INVALID_HEADER_DESERIALIZATION",
     StatusCode::kDataLoss},
    {CheckpointErrorKind::kHeaderTooLarge, "HEADER_TOO_LARGE", StatusCode::kDataLoss},
    {CheckpointErrorKind::kHeaderTooSmall, "HEADER_TOO_SMALL", StatusCode::kDataLoss},
    {CheckpointErrorKind::kInvalidHeaderLength, "INVALID_HEADER_LENGTH", StatusCode::kDataLoss},
    {CheckpointErrorKind::kTensorNotFound, "TENSOR_NOT_FOUND", StatusCode::kNotFound},
    {CheckpointErrorKind::kTensorInvalidInfo, "TENSOR_INVALID_INFO", StatusCode::kDataLoss},
    {CheckpointErrorKind::kInvalidOffset, "INVALID_OFFSET", StatusCode::kDataLoss},
    {CheckpointErrorKind::kIoError, "IO_ERROR", StatusCode::kDataLoss},
    {CheckpointErrorKind::kJsonError, "JSON_ERROR", StatusCode::kDataLoss},
    {CheckpointErrorKind::kInvalidTensorView, "INVALID_TENSOR_VIEW", StatusCode::kInvalidArgument},
    {CheckpointErrorKind::kMetadataIncompleteBuffer, "METADATA_INCOMPLETE_BUFFER",
     StatusCode::kDataLoss},
    {CheckpointErrorKind::kValidationOverflow, "VALIDATION_OVERFLOW", StatusCode::kDataLoss},
    {CheckpointErrorKind::kMisalignedSlice, "MISALIGNED_SLICE", StatusCode::kDataLoss},
    {CheckpointErrorKind::kDuplicateKey, "DUPLICATE_KEY", StatusCode::kDataLoss},
    {CheckpointErrorKind::kUnknownDtype, "UNKNOWN_DTYPE", StatusCode::kDataLoss},
    {CheckpointErrorKind::kHeaderTooDeep, "HEADER_TOO_DEEP", StatusCode::kDataLoss},
    {CheckpointErrorKind::kTooManyTensors, "TOO_MANY_TENSORS", StatusCode::kDataLoss},
    {CheckpointErrorKind::kTooManyDims, "TOO_MANY_DIMS", StatusCode::kDataLoss},
    {CheckpointErrorKind::kTooManyMetadataEntries, "TOO_MANY_METADATA_ENTRIES",
     StatusCode::kDataLoss},
    {CheckpointErrorKind::kNotARegularFile, "NOT_A_REGULAR_FILE", StatusCode::kDataLoss},
    {CheckpointErrorKind::kUnsupportedFormat, "UNSUPPORTED_FORMAT", StatusCode::kUnimplemented},
    {CheckpointErrorKind::kUnsafeFileName, "UNSAFE_FILE_NAME", StatusCode::kDataLoss},
    {CheckpointErrorKind::kIndexInvalid, "INDEX_INVALID", StatusCode::kDataLoss},
    {CheckpointErrorKind::kIndexMismatch, "INDEX_MISMATCH", StatusCode::kDataLoss},
    {CheckpointErrorKind::kAmbiguousWeights, "AMBIGUOUS_WEIGHTS", StatusCode::kFailedPrecondition},
    {CheckpointErrorKind::kWrongShape, "WRONG_SHAPE", StatusCode::kDataLoss},
    {CheckpointErrorKind::kWrongDtype, "WRONG_DTYPE", StatusCode::kUnimplemented},
    {CheckpointErrorKind::kWrongValue, "WRONG_VALUE", StatusCode::kDataLoss},
    {CheckpointErrorKind::kUnexpectedTensor, "UNEXPECTED_TENSOR", StatusCode::kUnimplemented},
}};

const KindRow& RowOf(CheckpointErrorKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

// The code decides what an operator corrects: a path, rights or limits. All else counts as damage.
StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return StatusCode::kPermissionDenied;
    case EMFILE:
    case ENFILE:
      return StatusCode::kResourceExhausted;
    default:
      return StatusCode::kDataLoss;
  }
}

absl::Status MakeWithCode(StatusCode code, CheckpointErrorKind kind,
                          const CheckpointErrorPlace& place, absl::string_view what) {
  std::string text;
  ErrorMetadata metadata{{"kind", std::string(CheckpointErrorKindName(kind))}};
  if (!place.file.empty()) {
    // Names come from untrusted files and go to logs and terminals.
    const std::string file = PrintableName(place.file);
    absl::StrAppend(&text, file, ": ");
    metadata.emplace_back("file", file);
  }
  if (!place.tensor.empty()) {
    const std::string tensor = PrintableName(place.tensor);
    absl::StrAppend(&text, "tensor '", tensor, "': ");
    metadata.emplace_back("tensor", tensor);
  }
  absl::StrAppend(&text, what);
  if (place.offset.has_value()) {
    absl::StrAppend(&text, " (at byte ", *place.offset, " of the file)");
    metadata.emplace_back("offset", absl::StrCat(*place.offset));
  }
  return MakeError(code, Reason::kCheckpoint, text, metadata);
}

}  // namespace

absl::string_view CheckpointErrorKindName(CheckpointErrorKind kind) { return RowOf(kind).name; }

std::vector<CheckpointErrorKind> AllCheckpointErrorKinds() {
  std::vector<CheckpointErrorKind> all;
  all.reserve(kKinds.size());
  for (const KindRow& row : kKinds) all.push_back(row.kind);
  return all;
}

absl::Status MakeCheckpointError(CheckpointErrorKind kind, const CheckpointErrorPlace& place,
                                 absl::string_view what) {
  return MakeWithCode(RowOf(kind).code, kind, place, what);
}

absl::Status MakeCheckpointIoError(const CheckpointErrorPlace& place, absl::string_view call,
                                   int error_number) {
  return MakeWithCode(CodeOfErrno(error_number), CheckpointErrorKind::kIoError, place,
                      absl::StrCat(call, ": ", std::generic_category().message(error_number),
                                   "; check the path and its permissions"));
}

std::string PrintableName(absl::string_view name) {
  // Long names keep their end, where a path has the file's name; 120 bytes distinguish real names.
  constexpr std::size_t kBytesMax = 120;
  if (name.size() <= kBytesMax) return absl::Utf8SafeCHexEscape(name);
  return absl::StrCat("...", absl::CHexEscape(name.substr(name.size() - kBytesMax)));
}

}  // namespace switchyard
