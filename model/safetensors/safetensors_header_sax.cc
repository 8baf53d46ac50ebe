#include "model/safetensors/safetensors_header_sax.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "model/io/checkpoint_error.h"

namespace switchyard::internal {
namespace {

using Kind = CheckpointErrorKind;

constexpr absl::string_view kMetadataKey = "__metadata__";

// The parser's place in the header:
//
//   kStart -> kRoot -> kMetadata               {"__metadata__": {"k": "v"},
//                   -> kTensor -> kShape        "t": {"dtype": "F32", "shape": [2],
//                              -> kOffsets            "data_offsets": [0, 8],
//                              -> kIgnored            "anything else": ...}}
enum class State { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kIgnored, kEnd };

// The field that the next value belongs to.
enum class Field { kNone, kMetadata, kTensor, kEntry, kDtype, kShape, kOffsets, kIgnored };

// The events of nlohmann's SAX parser; each returns false to stop it, after setting status_.
class HeaderHandler {
 public:
  HeaderHandler(const SafetensorsHeaderInput& input, const SafetensorsLimits& limits,
                SafetensorsHeader& header)
      : input_(input), limits_(limits), header_(header) {}

  [[nodiscard]] const absl::Status& status() const { return status_; }

  // The names and signatures below are those that nlohmann::json::sax_parse calls.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() {
    // The reference reader accepts a null __metadata__.
    if (state_ == State::kRoot && field_ == Field::kMetadata) return true;
    return Scalar("null");
  }
  bool boolean(bool /*value*/) { return Scalar("a boolean"); }
  bool number_integer(std::int64_t /*value*/) { return Scalar("a negative number"); }
  bool number_float(double /*value*/, const std::string& /*text*/) {
    return Scalar("a number that is no 64-bit integer");
  }
  bool number_unsigned(std::uint64_t value) {
    if (state_ == State::kShape) return AddDim(value);
    if (state_ == State::kOffsets) return AddOffset(value);
    return Scalar("a number");
  }
  bool binary(std::vector<std::uint8_t>& /*value*/) { return Scalar("binary data"); }
  bool string(std::string& value) {
    if (state_ == State::kMetadata) {
      header_.metadata.back().second = std::move(value);
      return true;
    }
    if (state_ == State::kTensor && field_ == Field::kDtype) return SetDtype(value);
    return Scalar("a string");
  }
  bool key(std::string& value) {
    switch (state_) {
      case State::kRoot:
        return RootKey(value);
      case State::kMetadata:
        return MetadataKey(value);
      case State::kTensor:
        return TensorKey(value);
      default:
        return true;  // Inside something ignored.
    }
  }
  bool start_object(std::size_t /*elements*/) {
    if (!Deeper()) return false;
    if (state_ == State::kStart) return Enter(State::kRoot);
    if (state_ == State::kRoot) {
      return Enter(field_ == Field::kMetadata ? State::kMetadata : State::kTensor);
    }
    return IgnoredOr("an object");
  }
  bool start_array(std::size_t /*elements*/) {
    if (!Deeper()) return false;
    if (state_ == State::kTensor && field_ == Field::kShape) return Enter(State::kShape);
    if (state_ == State::kTensor && field_ == Field::kOffsets) return Enter(State::kOffsets);
    return IgnoredOr("an array");
  }
  bool end_object() {
    --depth_;
    if (state_ == State::kIgnored) return LeaveIgnored();
    if (state_ == State::kTensor && !FinishTensor()) return false;
    tensor_.clear();
    state_ = state_ == State::kRoot ? State::kEnd : State::kRoot;
    return true;
  }
  bool end_array() {
    --depth_;
    if (state_ == State::kIgnored) return LeaveIgnored();
    if (state_ == State::kOffsets && offsets_seen_ != 2) {
      return Malformed("data_offsets must hold two numbers");
    }
    state_ = State::kTensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    // `position` counts from 1 and points behind the offending byte; 8 bytes precede the JSON.
    CheckpointErrorPlace place = Place();
    place.offset = position + 7;
    status_ = MakeCheckpointError(Kind::kInvalidHeaderDeserialization, place,
                                  "the header is not valid JSON");
    return false;
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  bool Deeper() {
    if (++depth_ <= limits_.depth_max) return true;
    return Fail(Kind::kHeaderTooDeep,
                absl::StrCat("the header nests deeper than ", limits_.depth_max, " levels"));
  }

  bool Enter(State state) {
    state_ = state;
    return true;
  }

  // Fails on a container where none belongs, except as the value of an unknown field.
  bool IgnoredOr(absl::string_view what) {
    if (state_ == State::kTensor && field_ == Field::kIgnored) {
      ignored_depth_ = depth_;
      return Enter(State::kIgnored);
    }
    return state_ == State::kIgnored || Misplaced(what);
  }

  bool LeaveIgnored() {
    if (depth_ < ignored_depth_) state_ = State::kTensor;
    return true;
  }

  // Fails on a scalar where none belongs, except in an unknown field.
  bool Scalar(absl::string_view what) {
    if (state_ == State::kIgnored) return true;
    if (state_ == State::kTensor && field_ == Field::kIgnored) return true;
    return Misplaced(what);
  }

  bool RootKey(std::string& name) {
    tensor_.clear();
    if (name == kMetadataKey) {
      if (metadata_seen_) return Fail(Kind::kDuplicateKey, "the header has __metadata__ twice");
      metadata_seen_ = true;
      field_ = Field::kMetadata;
      return true;
    }
    if (header_.tensors.size() >= limits_.tensors_max) {
      return Fail(Kind::kTooManyTensors,
                  absl::StrCat("the header lists more than ", limits_.tensors_max, " tensors"));
    }
    header_.tensors.emplace_back().name = std::move(name);
    tensor_ = PrintableName(header_.tensors.back().name);
    dtype_seen_ = shape_seen_ = false;
    offsets_seen_ = 0;
    field_ = Field::kTensor;
    return true;
  }

  bool MetadataKey(std::string& name) {
    if (header_.metadata.size() >= limits_.metadata_entries_max) {
      return Fail(
          Kind::kTooManyMetadataEntries,
          absl::StrCat("__metadata__ has more than ", limits_.metadata_entries_max, " entries"));
    }
    header_.metadata.emplace_back().first = std::move(name);
    field_ = Field::kEntry;
    return true;
  }

  bool TensorKey(const std::string& name) {
    field_ = Field::kIgnored;
    bool seen = false;
    if (name == "dtype") {
      field_ = Field::kDtype;
      seen = std::exchange(dtype_seen_, true);
    } else if (name == "shape") {
      field_ = Field::kShape;
      seen = std::exchange(shape_seen_, true);
    } else if (name == "data_offsets") {
      field_ = Field::kOffsets;
      seen = offsets_seen_ != 0;
    }
    return !seen || Fail(Kind::kDuplicateKey, absl::StrCat("it has '", name, "' twice"));
  }

  bool SetDtype(const std::string& name) {
    const std::optional<TensorDtype> dtype = TensorDtypeFromName(name);
    if (!dtype.has_value()) {
      return Fail(Kind::kUnknownDtype,
                  absl::StrCat("its dtype '", PrintableName(name), "' is not known"));
    }
    header_.tensors.back().dtype = *dtype;
    return true;
  }

  bool AddDim(std::uint64_t value) {
    std::vector<std::int64_t>& shape = header_.tensors.back().shape;
    if (shape.size() >= limits_.dims_max) {
      return Fail(Kind::kTooManyDims,
                  absl::StrCat("it has more than ", limits_.dims_max, " dimensions"));
    }
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return Fail(Kind::kValidationOverflow,
                  absl::StrCat("its dimension ", value, " is too large"));
    }
    shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool AddOffset(std::uint64_t value) {
    TensorInfo& tensor = header_.tensors.back();
    if (++offsets_seen_ == 1) {
      tensor.file_offset = value;
      return true;
    }
    if (offsets_seen_ > 2) return Malformed("data_offsets must hold two numbers");
    if (value < tensor.file_offset) {
      return Fail(Kind::kInvalidOffset, absl::StrCat("its data begins at ", tensor.file_offset,
                                                     " and ends before, at ", value));
    }
    tensor.bytes = value - tensor.file_offset;
    return true;
  }

  bool FinishTensor() {
    if (dtype_seen_ && shape_seen_ && offsets_seen_ == 2) return true;
    return Malformed(absl::StrCat("it lacks '",
                                  !dtype_seen_   ? "dtype"
                                  : !shape_seen_ ? "shape"
                                                 : "data_offsets",
                                  "'"));
  }

  bool Misplaced(absl::string_view what) {
    return Malformed(absl::StrCat("the header has ", what, " where none belongs"));
  }
  bool Malformed(absl::string_view what) { return Fail(Kind::kInvalidHeaderDeserialization, what); }
  bool Fail(Kind kind, absl::string_view what) {
    status_ = MakeCheckpointError(kind, Place(), what);
    return false;
  }
  [[nodiscard]] CheckpointErrorPlace Place() const {
    return {.file = std::string(input_.file), .tensor = tensor_, .offset = std::nullopt};
  }

  const SafetensorsHeaderInput& input_;
  const SafetensorsLimits& limits_;
  SafetensorsHeader& header_;
  absl::Status status_;
  State state_ = State::kStart;
  Field field_ = Field::kNone;
  std::size_t depth_ = 0;
  std::size_t ignored_depth_ = 0;  // depth at which the ignored value began
  std::string tensor_;             // printable name of the current tensor, for errors
  bool metadata_seen_ = false;
  bool dtype_seen_ = false;
  bool shape_seen_ = false;
  int offsets_seen_ = 0;
};

}  // namespace

absl::Status ReadHeaderJson(const SafetensorsHeaderInput& input, const SafetensorsLimits& limits,
                            SafetensorsHeader& header) {
  HeaderHandler handler(input, limits, header);
  const char* begin = input.json.data();
  if (nlohmann::json::sax_parse(begin, begin + input.json.size(), &handler)) {
    return absl::OkStatus();
  }
  return handler.status();
}

}  // namespace switchyard::internal
