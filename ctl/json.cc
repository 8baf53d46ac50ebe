#include "ctl/json.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "services/convert/enum_words.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/error.pb.h"

namespace switchyard::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::int64_t kNanosPerSecond = 1'000'000'000;

// The value of a field (index -1) or of one element of a repeated field (index >= 0). Reflection
// has different getters for the two.
class Value {
 public:
  Value(const Message& message, const FieldDescriptor& field, int index)
      : message_(message), field_(field), index_(index) {}

  [[nodiscard]] Json AsJson() const {
    switch (field_.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return ToJson(index_ < 0 ? Get(&Reflection::GetMessage, nullptr)
                                 : At<const Message&>(&Reflection::GetRepeatedMessage));
      case FieldDescriptor::CPPTYPE_ENUM:
        // A value that this version does not know prints as its number.
        return EnumWord(*field_.enum_type(), index_ < 0
                                                 ? Get(&Reflection::GetEnumValue)
                                                 : At<int>(&Reflection::GetRepeatedEnumValue));
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string text = index_ < 0 ? Get(&Reflection::GetString)
                                            : At<std::string>(&Reflection::GetRepeatedString);
        // Bytes are hashes and ids here, which people compare in hexadecimal.
        return field_.type() == FieldDescriptor::TYPE_BYTES ? absl::BytesToHexString(text) : text;
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        return index_ < 0 ? Get(&Reflection::GetBool) : At<bool>(&Reflection::GetRepeatedBool);
      default:
        return Number();
    }
  }

 private:
  // Calls a getter of Reflection, for a field (Get) or for an element (At).
  template <typename Result, typename... More>
  Result Get(Result (Reflection::*get)(const Message&, const FieldDescriptor*, More...) const,
             More... more) const {
    return (message_.GetReflection()->*get)(message_, &field_, more...);
  }
  const Message& Get(const Message& (Reflection::*get)(const Message&, const FieldDescriptor*,
                                                       google::protobuf::MessageFactory*) const,
                     google::protobuf::MessageFactory* factory) const {
    return (message_.GetReflection()->*get)(message_, &field_, factory);
  }
  template <typename Result>
  Result At(Result (Reflection::*get)(const Message&, const FieldDescriptor*, int) const) const {
    return (message_.GetReflection()->*get)(message_, &field_, index_);
  }

  [[nodiscard]] Json Number() const {
    switch (field_.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return index_ < 0 ? Get(&Reflection::GetInt32) : At(&Reflection::GetRepeatedInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        return index_ < 0 ? Get(&Reflection::GetInt64) : At(&Reflection::GetRepeatedInt64);
      case FieldDescriptor::CPPTYPE_UINT32:
        return index_ < 0 ? Get(&Reflection::GetUInt32) : At(&Reflection::GetRepeatedUInt32);
      case FieldDescriptor::CPPTYPE_UINT64:
        return index_ < 0 ? Get(&Reflection::GetUInt64) : At(&Reflection::GetRepeatedUInt64);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return index_ < 0 ? Get(&Reflection::GetFloat) : At(&Reflection::GetRepeatedFloat);
      default:
        return index_ < 0 ? Get(&Reflection::GetDouble) : At(&Reflection::GetRepeatedDouble);
    }
  }

  const Message& message_;
  const FieldDescriptor& field_;
  const int index_;
};

}  // namespace

std::string DurationText(Duration time) {
  const std::int64_t seconds = time.count() / kNanosPerSecond;
  const std::int64_t nanos = time.count() % kNanosPerSecond;
  if (nanos == 0) return absl::StrCat(seconds, "s");
  std::string fraction = absl::StrFormat("%09d", nanos);
  // Trailing zeros carry no information and would hide the precision that was configured.
  fraction.erase(fraction.find_last_not_of('0') + 1);
  return absl::StrCat(seconds, ".", fraction, "s");
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  const absl::Time at = absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", at, absl::UTCTimeZone());
}

Json ToJson(const absl::Status& status) {
  return {{"code", absl::StatusCodeToString(status.code())},
          {"reason", std::string(ReasonName(ReasonOf(status)))},
          {"message", std::string(status.message())},
          {"metadata", MetadataOf(status)}};
}

Json ToJson(const Message& message) {
  // These three types have a text form of their own in our files and errors.
  if (const auto* time = dynamic_cast<const google::protobuf::Duration*>(&message)) {
    return DurationText(Duration(time->seconds() * kNanosPerSecond + time->nanos()));
  }
  if (const auto* time = dynamic_cast<const google::protobuf::Timestamp*>(&message)) {
    return TimeText(*time);
  }
  if (const auto* status = dynamic_cast<const v1::Status*>(&message)) {
    return ToJson(StatusFromProto(*status));
  }
  const Reflection& reflection = *message.GetReflection();
  Json json = Json::object();
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(f);
    if (field.is_repeated()) {
      Json& list = json[field.name()] = Json::array();
      for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
        list.push_back(Value(message, field, i).AsJson());
      }
      continue;
    }
    // A scalar is printed even if it has its default; a missing message or enum is omitted.
    const bool may_be_unset = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE ||
                              field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
    if (may_be_unset && !reflection.HasField(message, &field)) continue;
    json[field.name()] = Value(message, field, -1).AsJson();
  }
  return json;
}

std::string Print(const Json& json) {
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

}  // namespace switchyard::ctl
