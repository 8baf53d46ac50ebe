// Names of proto enum values for people: in lower case and without the prefix that all values of a
// type share ("low_latency" for DISPATCH_MODE_LOW_LATENCY). Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace switchyard {

// "" for the value that means "not set".
std::string EnumWord(const google::protobuf::EnumValueDescriptor& value);
// The same for a number. Returns the number as text if this version does not know it.
std::string EnumWord(const google::protobuf::EnumDescriptor& type, int number);
// The words of all values except "not set", in order.
std::vector<std::string> EnumWords(const google::protobuf::EnumDescriptor& type);

template <typename Proto>
std::string EnumWord(Proto value) {
  return EnumWord(*google::protobuf::GetEnumDescriptor<Proto>(), static_cast<int>(value));
}

}  // namespace switchyard
