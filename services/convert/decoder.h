// Decodes a message field by field and keeps the first error with the path of its field. One status
// at the end replaces a check after every field.
//
//   Decoder in("OpenSessionRequest");
//   OpenSessionRequest request;
//   in.Sub("options", proto.has_options(), [&] { Decode(in, proto.options(), &request); });
//   return in.Finish(std::move(request));
//
// Every error is kInvalidArgument, BAD_REQUEST, with the path in the text and as metadata "field",
// e.g. "SessionRequest.register.resident[2].plan_hash". After an error the outputs are unspecified.
// Every error is the peer's fault and says how to correct it. Values that the wire cannot express,
// such as negative numbers, need no check.
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/duration.pb.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/ids.h"
#include "services/convert/enums.h"
#include "switchyard/v1/error.pb.h"

namespace switchyard {

class Decoder {
 public:
  // `message` must outlive the decoder: pass a literal.
  explicit Decoder(const char* message) { path_.push_back({message, -1}); }

  // Whether no field was refused so far. A decoder that is not ok ignores further fields.
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const absl::Status& status() const { return status_; }
  // `value`, or the first error.
  template <typename T>
  absl::StatusOr<T> Finish(T value) {
    if (!ok()) return status_;
    return value;
  }

  // Records that `field` is invalid; `what` describes the problem and the expected value. Only the
  // first call has an effect.
  void Refuse(const char* field, absl::string_view what);

  // Refuses "not set" and values of a later version.
  template <typename Core>
  void Enum(const char* field, typename WireEnum<Core>::Proto in, Core* out) {
    if (const auto value = EnumFromProto<Core>(in); value.has_value()) {
      *out = *value;
    } else {
      RefuseEnum(field, static_cast<int>(in));
    }
  }
  // Leaves `out` unchanged if the field is not set.
  template <typename Core, typename Out>
  void OptionalEnum(const char* field, typename WireEnum<Core>::Proto in, Out* out) {
    if (static_cast<int>(in) == 0) return;
    Core value{};
    Enum<Core>(field, in, &value);
    *out = value;
  }
  // Requires exactly 32 bytes.
  void Digest(const char* field, const std::string& in, Sha256Digest* out);
  // The same for bytes that are no digest.
  void Bytes32(const char* field, const std::string& in, std::array<std::uint8_t, 32>* out);
  // Requires exactly 32 hex digits.
  template <typename Tag>
  void Id(const char* field, const std::string& in, RandomId<Tag>* out) {
    if (!internal::RandomIdFromHex(in, &out->high, &out->low)) {
      Refuse(field, "needs 32 hex digits");
    }
  }
  // Requires at most 2^31 - 1.
  void Int(const char* field, std::uint32_t in, std::int32_t* out);
  // Requires at most 2^63 - 1.
  void Int(const char* field, std::uint64_t in, std::int64_t* out);
  // Requires 0 to 2^63 - 1 nanoseconds.
  void Time(const char* field, const google::protobuf::Duration& in, Duration* out);
  // Requires an error; an OK status is refused, because the caller would take it for success.
  void Error(const char* field, bool present, const v1::Status& in, absl::Status* out);

  // Requires a submessage; `body` decodes it.
  template <typename Body>
  void Sub(const char* field, bool present, Body body) {
    if (!present) return Refuse(field, "is missing");
    path_.push_back({field, -1});
    body();
    path_.pop_back();
  }
  // Calls body(item, &element) for each item; stops at the first error.
  template <typename List, typename T, typename Body>
  void Each(const char* field, const List& list, std::vector<T>* out, Body body) {
    out->clear();
    out->reserve(static_cast<std::size_t>(list.size()));
    // Index 0 even for an empty list: it is only read while an item is decoded.
    path_.push_back({field, 0});
    for (const auto& item : list) {
      if (!ok()) break;
      body(item, &out->emplace_back());
      ++path_.back().index;
    }
    path_.pop_back();
  }

 private:
  // One step of the path to the current field. Names are literals and are not copied, because
  // almost no path is ever printed.
  struct Segment {
    const char* field;
    int index;  // -1 if the field is not a list
  };

  // Refuses an unknown value with its number and the likely cause. Not part of the template, so
  // that the texts exist once.
  void RefuseEnum(const char* field, int value);

  std::vector<Segment> path_;  // from the message down to the current field
  absl::Status status_;
};

}  // namespace switchyard
