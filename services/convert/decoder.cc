#include "services/convert/decoder.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "services/grpc/grpc_status.h"

namespace switchyard {

void Decoder::Refuse(const char* field, absl::string_view what) {
  // The first error names the cause; later ones are often its consequences.
  if (!ok()) return;
  // The path is built only for an error, because decoding a plan visits thousands of fields.
  std::string path;
  for (const Segment& segment : path_) {
    absl::StrAppend(&path, path.empty() ? "" : ".", segment.field);
    if (segment.index >= 0) absl::StrAppend(&path, "[", segment.index, "]");
  }
  if (field[0] != '\0') absl::StrAppend(&path, ".", field);
  status_ = MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                      absl::StrCat("field ", path, ": ", what), {{"field", path}});
}

void Decoder::RefuseEnum(const char* field, int value) {
  if (value == 0) {
    Refuse(field, "is not set");
  } else {
    Refuse(field, absl::StrCat("value ", value,
                               " is unknown to this version; check that both sides run the same "
                               "version"));
  }
}

void Decoder::Digest(const char* field, const std::string& in, Sha256Digest* out) {
  if (in.size() != out->bytes.size()) {
    return Refuse(field, absl::StrCat("has ", in.size(), " bytes; a SHA-256 digest has 32"));
  }
  std::copy(in.begin(), in.end(), out->bytes.begin());
}

void Decoder::Bytes32(const char* field, const std::string& in, std::array<std::uint8_t, 32>* out) {
  // Its length and not its bytes: it may be a secret.
  if (in.size() != out->size())
    return Refuse(field, absl::StrCat("has ", in.size(), " bytes, not 32"));
  std::copy(in.begin(), in.end(), out->begin());
}

void Decoder::Int(const char* field, std::uint32_t in, std::int32_t* out) {
  if (in > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
    return Refuse(field, absl::StrCat(in, " is above 2147483647"));
  }
  *out = static_cast<std::int32_t>(in);
}

void Decoder::Int(const char* field, std::uint64_t in, std::int64_t* out) {
  if (in > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return Refuse(field, absl::StrCat(in, " is above 9223372036854775807"));
  }
  *out = static_cast<std::int64_t>(in);
}

void Decoder::Time(const char* field, const google::protobuf::Duration& in, Duration* out) {
  constexpr std::int64_t kNanosPerSecond = 1'000'000'000;
  // Less than the maximum by a second, so that adding the nanoseconds cannot overflow.
  const std::int64_t seconds_max = std::numeric_limits<std::int64_t>::max() / kNanosPerSecond - 1;
  if (in.seconds() < 0 || in.seconds() > seconds_max || in.nanos() < 0 ||
      in.nanos() >= kNanosPerSecond) {
    return Refuse(field, absl::StrCat(in.seconds(), " s and ", in.nanos(),
                                      " ns is not a duration from 0 s to 292 years"));
  }
  *out = Duration(in.seconds() * kNanosPerSecond + in.nanos());
}

void Decoder::Error(const char* field, bool present, const v1::Status& in, absl::Status* out) {
  if (!present || in.code() == 0) return Refuse(field, "needs an error with its code");
  *out = StatusFromProto(in);
}

}  // namespace switchyard
