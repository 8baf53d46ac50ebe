#include "services/config/config_file.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/duration.pb.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/suggest.h"
#include "core/resolve/dtype_option.h"
#include "services/convert/enum_words.h"
#include "services/convert/plan.h"
#include "yaml-cpp/yaml.h"

namespace switchyard {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Far more than any deployment needs; the YAML parser takes a multiple of it in memory.
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

absl::Status BadConfig(const std::string& file, int line, const std::string& field,
                       const std::string& what) {
  const std::string colon = field.empty() ? "" : ": ";
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat(file, ":", line, ": ", field, colon, what),
                   {{"file", file}, {"line", absl::StrCat(line)}, {"field", field}});
}

std::vector<std::string> KeysOf(const Descriptor& type) {
  std::vector<std::string> keys;
  for (int i = 0; i < type.field_count(); ++i) keys.push_back(type.field(i)->name());
  return keys;
}

// The known key that is most similar to `key`. Earlier spellings of the dtype option need a special
// case, because they differ from the current one in most letters.
std::string NearestKey(const std::string& key, const std::vector<std::string>& known) {
  const bool has_dtype = std::find(known.begin(), known.end(), kDtypeOption) != known.end();
  const auto spelling = SpellingOfDtypeOption(key);
  if (has_dtype && (!spelling.ok() || *spelling == OptionSpelling::kDeprecated)) {
    return kDtypeOption;
  }
  return NearestWord(key, known);
}

// The list of known keys follows even a near match, because it also documents the other keys.
std::string DidYouMean(const std::string& nearest, const std::vector<std::string>& known) {
  return absl::StrCat(nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"),
                      " (known: ", absl::StrJoin(known, ", "), ")");
}

// Parses "20s", "1.5s" or "300ms". False for anything else, including negative values.
bool ParseDuration(const std::string& text, Duration* out) {
  const std::size_t unit_at = text.find_first_not_of("0123456789.");
  if (unit_at == std::string::npos || unit_at == 0) return false;
  const std::string unit = text.substr(unit_at);
  const double nanos = unit == "h"    ? 3600e9
                       : unit == "m"  ? 60e9
                       : unit == "s"  ? 1e9
                       : unit == "ms" ? 1e6
                       : unit == "us" ? 1e3
                                      : 0;
  double number = 0;
  constexpr double kNanosMax = 9e18;  // just below the range of the 64-bit nanoseconds in Duration
  if (nanos == 0 || !absl::SimpleAtod(text.substr(0, unit_at), &number)) return false;
  if (number * nanos > kNanosMax) return false;
  // Rounded, because 0.3 s is not exact in binary.
  *out = Duration(static_cast<std::int64_t>(number * nanos + 0.5));
  return true;
}

// Fills messages from one file by their descriptors, so that a new field needs no code here.
class Filler {
 public:
  explicit Filler(std::string file) : file_(std::move(file)) {}

  absl::Status Fill(const YAML::Node& node, const std::string& path, Message* message) {
    if (!node.IsMap()) return Bad(node, path, "needs keys and values");
    const Descriptor& type = *message->GetDescriptor();
    std::set<std::string> seen;
    for (const auto& item : node) {
      if (!item.first.IsScalar()) return Bad(item.first, path, "a key must be a single word");
      const std::string& key = item.first.Scalar();
      const std::string child = path.empty() ? key : absl::StrCat(path, ".", key);
      const FieldDescriptor* field = type.FindFieldByName(key);
      if (field == nullptr) {
        const std::vector<std::string> keys = KeysOf(type);
        return Bad(item.first, child,
                   absl::StrCat("no such key", DidYouMean(NearestKey(key, keys), keys)));
      }
      // yaml-cpp accepts a duplicate key and keeps one of the values.
      if (!seen.insert(key).second) return Bad(item.first, child, "is given twice");
      if (item.second.IsNull()) return Bad(item.first, child, "has no value");
      SY_RETURN_IF_ERROR(field->is_repeated() ? FillList(item.second, child, *field, message)
                                              : FillOne(item.second, child, *field, message));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Bad(const YAML::Node& node, const std::string& path, const std::string& what) {
    return BadConfig(file_, node.Mark().line + 1, path, what);
  }

  absl::Status FillList(const YAML::Node& node, const std::string& path,
                        const FieldDescriptor& field, Message* message) {
    if (!node.IsSequence()) return Bad(node, path, "needs a list");
    std::size_t index = 0;
    for (const YAML::Node& item : node) {
      SY_RETURN_IF_ERROR(FillOne(item, absl::StrCat(path, "[", index++, "]"), field, message));
    }
    return absl::OkStatus();
  }

  // Sets the field, or appends to it if it is a list.
  absl::Status FillOne(const YAML::Node& node, const std::string& path,
                       const FieldDescriptor& field, Message* message) {
    const google::protobuf::Reflection& at = *message->GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Message* child =
          field.is_repeated() ? at.AddMessage(message, &field) : at.MutableMessage(message, &field);
      const bool is_duration = field.message_type() == google::protobuf::Duration::descriptor();
      return is_duration ? FillDuration(node, path, child) : Fill(node, path, child);
    }
    if (!node.IsScalar()) return Bad(node, path, "needs a single value");
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return Set(at, &google::protobuf::Reflection::SetString,
                   &google::protobuf::Reflection::AddString, field, message, node.Scalar());
      case FieldDescriptor::CPPTYPE_UINT32: {
        std::uint32_t value = 0;
        // SimpleAtoi also accepts signs and spaces, which would be surprising in a file.
        if (!IsDecimal(node) || !absl::SimpleAtoi(node.Scalar(), &value)) {
          return Bad(node, path, Quoted(node, " is not a whole number from 0 to 4294967295"));
        }
        return Set(at, &google::protobuf::Reflection::SetUInt32,
                   &google::protobuf::Reflection::AddUInt32, field, message, value);
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        if (node.Scalar() != "true" && node.Scalar() != "false") {
          return Bad(node, path, Quoted(node, " is neither true nor false"));
        }
        return Set(at, &google::protobuf::Reflection::SetBool,
                   &google::protobuf::Reflection::AddBool, field, message, node.Scalar() == "true");
      case FieldDescriptor::CPPTYPE_ENUM:
        return FillEnum(node, path, field, message);
      default:
        return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                         absl::StrCat(file_, ": ", path, ": fields of type ", field.type_name(),
                                      " are not supported; add them to services/config"));
    }
  }

  // The pointers to Reflection's methods let one function serve all types of fields.
  template <typename SetMethod, typename AddMethod, typename T>
  static absl::Status Set(const google::protobuf::Reflection& at, SetMethod set, AddMethod add,
                          const FieldDescriptor& field, Message* message, T value) {
    if (field.is_repeated()) {
      (at.*add)(message, &field, std::move(value));
    } else {
      (at.*set)(message, &field, std::move(value));
    }
    return absl::OkStatus();
  }

  absl::Status FillEnum(const YAML::Node& node, const std::string& path,
                        const FieldDescriptor& field, Message* message) {
    const EnumDescriptor& type = *field.enum_type();
    // "unspecified" is not in the list of words, so a file cannot set it explicitly.
    const std::vector<std::string> words = EnumWords(type);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] != node.Scalar()) continue;
      return Set(*message->GetReflection(), &google::protobuf::Reflection::SetEnum,
                 &google::protobuf::Reflection::AddEnum, field, message,
                 type.value(static_cast<int>(i) + 1));
    }
    return Bad(node, path,
               Quoted(node, absl::StrCat(" is not a valid value",
                                         DidYouMean(NearestWord(node.Scalar(), words), words))));
  }

  absl::Status FillDuration(const YAML::Node& node, const std::string& path, Message* message) {
    Duration value{};
    if (!node.IsScalar() || !ParseDuration(node.Scalar(), &value)) {
      return Bad(node, path,
                 Quoted(node, " is not a duration; examples: 20s, 1.5s, 300ms, 10m, 1h"));
    }
    google::protobuf::Duration duration;
    EncodeTime(value, &duration);
    message->CopyFrom(duration);
    return absl::OkStatus();
  }

  static bool IsDecimal(const YAML::Node& node) {
    return !node.Scalar().empty() &&
           node.Scalar().find_first_not_of("0123456789") == std::string::npos;
  }
  static std::string Quoted(const YAML::Node& node, const std::string& what) {
    return absl::StrCat("\"", node.IsScalar() ? node.Scalar() : "...", "\"", what);
  }

  const std::string file_;
};

absl::StatusOr<std::vector<YAML::Node>> Parse(const std::string& text, const std::string& file) {
  if (text.size() > kFileBytesMax) {
    return BadConfig(file, 1, "", absl::StrCat("has more than ", kFileBytesMax, " bytes"));
  }
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty() || documents.front().IsNull()) {
      return BadConfig(file, 1, "", "is empty");
    }
    return documents;
  } catch (const YAML::Exception& error) {
    return BadConfig(file, error.mark.line + 1, "", absl::StrCat("is not YAML: ", error.msg));
  }
}

// yaml-cpp throws when a node is read, not only when it is parsed.
absl::Status FillFrom(const YAML::Node& node, const std::string& file, Message* message) {
  try {
    return Filler(file).Fill(node, "", message);
  } catch (const YAML::Exception& error) {
    return BadConfig(file, error.mark.line + 1, "", error.msg);
  }
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  // One byte more than the limit, so that Parse can refuse a larger file.
  std::string text(kFileBytesMax + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) {
    return MakeError(
        absl::StatusCode::kNotFound, Reason::kBadConfig,
        absl::StrCat("cannot read ", path, "; check that the file exists and is readable"),
        {{"file", path}});
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

absl::Status ReadConfigText(const std::string& text, const std::string& file, Message* message) {
  // Several documents in one file are an error except for deployments, where each is one.
  SY_ASSIGN_OR_RETURN(const std::vector<YAML::Node> documents, Parse(text, file));
  if (documents.size() > 1) {
    return BadConfig(file, documents[1].Mark().line + 1, "", "has more than one document");
  }
  return FillFrom(documents.front(), file, message);
}

absl::StatusOr<v1::CoordinatorConfig> ReadCoordinatorConfig(const std::string& path) {
  SY_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  v1::CoordinatorConfig config;
  SY_RETURN_IF_ERROR(ReadConfigText(text, path, &config));
  return config;
}

std::optional<std::string> EnvironmentVariable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

absl::StatusOr<std::vector<v1::DeploymentSpec>> ReadDeployments(const std::string& path) {
  SY_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  SY_ASSIGN_OR_RETURN(const std::vector<YAML::Node> documents, Parse(text, path));
  std::vector<v1::DeploymentSpec> deployments;
  for (const YAML::Node& document : documents) {
    SY_RETURN_IF_ERROR(FillFrom(document, path, &deployments.emplace_back()));
  }
  return deployments;
}

}  // namespace switchyard
