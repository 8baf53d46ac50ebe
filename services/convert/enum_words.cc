#include "services/convert/enum_words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace switchyard {

std::string EnumWord(const google::protobuf::EnumValueDescriptor& value) {
  if (value.number() == 0) return "";
  // The common prefix of all values, e.g. "DISPATCH_MODE_". buf's lint rules guarantee that the
  // first value is named <prefix>UNSPECIFIED.
  const absl::string_view prefix = absl::StripSuffix(value.type()->value(0)->name(), "UNSPECIFIED");
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

std::string EnumWord(const google::protobuf::EnumDescriptor& type, int number) {
  const google::protobuf::EnumValueDescriptor* value = type.FindValueByNumber(number);
  return value == nullptr ? absl::StrCat(number) : EnumWord(*value);
}

std::vector<std::string> EnumWords(const google::protobuf::EnumDescriptor& type) {
  std::vector<std::string> words;
  for (int i = 1; i < type.value_count(); ++i) words.push_back(EnumWord(*type.value(i)));
  return words;
}

}  // namespace switchyard
