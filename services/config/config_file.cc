#include "services/config/config_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/duration.pb.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "core/resolve/dtype_option.h"
#include "services/config/yaml_text.h"
#include "services/convert/enum_words.h"
#include "services/convert/plan.h"

namespace switchyard {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::uint32_t kIntegerMax = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t kLongMax = std::numeric_limits<std::int64_t>::max();

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

// Fills messages from one file by their descriptors, so that a new field needs no code here.
class Filler {
 public:
  Filler(std::string file, ConfigWords words) : file_(std::move(file)), words_(words) {}

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
        const std::string known = DidYouMean(NearestKey(key, keys), keys);
        return words_ == ConfigWords::kSecret
                   ? Bad(item.first, path, absl::StrCat("there is no such key here", known))
                   : Bad(item.first, child, absl::StrCat("no such key", known));
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
    return BadConfigAt(file_, LineOf(node), path, what);
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
        // The limit is that of the coordinator, whose error could not name the line.
        const auto value = WholeNumber(node, kIntegerMax);
        if (!value) return NoWholeNumber(node, path, kIntegerMax);
        return Set(at, &google::protobuf::Reflection::SetUInt32,
                   &google::protobuf::Reflection::AddUInt32, field, message,
                   static_cast<std::uint32_t>(*value));
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        const auto value = WholeNumber(node, kLongMax);
        if (!value) return NoWholeNumber(node, path, kLongMax);
        return Set(at, &google::protobuf::Reflection::SetUInt64,
                   &google::protobuf::Reflection::AddUInt64, field, message, *value);
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
    const auto value = node.IsScalar() ? ParseDuration(node.Scalar()) : std::nullopt;
    if (!value) {
      return Bad(node, path,
                 Quoted(node, absl::StrCat(" is not a duration; examples: ", kDurationExamples)));
    }
    google::protobuf::Duration duration;
    EncodeTime(*value, &duration);
    message->CopyFrom(duration);
    return absl::OkStatus();
  }

  // SimpleAtoi also accepts signs and spaces, which would be surprising in a file.
  static std::optional<std::uint64_t> WholeNumber(const YAML::Node& node, std::uint64_t most) {
    const std::string& text = node.Scalar();
    std::uint64_t value = 0;
    const bool decimal = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    if (!decimal || !absl::SimpleAtoi(text, &value) || value > most) return std::nullopt;
    return value;
  }
  absl::Status NoWholeNumber(const YAML::Node& node, const std::string& path, std::uint64_t most) {
    return Bad(node, path, Quoted(node, absl::StrCat(" is not a whole number from 0 to ", most)));
  }
  [[nodiscard]] std::string Quoted(const YAML::Node& node, const std::string& what) const {
    if (words_ == ConfigWords::kSecret) return absl::StrCat("the value", what);
    return absl::StrCat("\"", node.IsScalar() ? node.Scalar() : "...", "\"", what);
  }

  const std::string file_;
  const ConfigWords words_;
};

// yaml-cpp throws when a node is read, not only when it is parsed.
absl::Status FillFrom(const YAML::Node& node, const std::string& file, Message* message,
                      ConfigWords words = ConfigWords::kShown) {
  try {
    return Filler(file, words).Fill(node, "", message);
  } catch (const YAML::Exception& error) {
    return BadConfigAt(file, error.mark.line + 1, "",
                       words == ConfigWords::kSecret ? "is not as YAML needs it" : error.msg);
  }
}

// A checkpoint is a path, unless it names another source, as "synthetic:..." does.
bool IsRelativePath(absl::string_view checkpoint) {
  const std::size_t end = checkpoint.find_first_of("/:");
  const bool other_source = end != absl::string_view::npos && checkpoint[end] == ':';
  return !checkpoint.empty() && checkpoint[0] != '/' && !other_source;
}

// A relative path means nothing to the coordinator and its workers, whose folders are others. It is
// resolved against the file's folder, as in most tools whose files name files.
absl::Status ResolveCheckpoint(const YAML::Node& document, const std::string& path,
                               v1::DeploymentSpec* spec) {
  if (!IsRelativePath(spec->checkpoint())) return absl::OkStatus();
  if (path == kStdin) {
    return BadConfigAt(NameOfFile(path), LineOf(document["checkpoint"]), "checkpoint",
                       absl::StrCat("\"", spec->checkpoint(),
                                    "\" is relative, and standard input has no folder; give the "
                                    "absolute path on the coordinator's and the workers' hosts"));
  }
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::absolute(path, error).parent_path() / spec->checkpoint();
  spec->set_checkpoint(folder.lexically_normal().string());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadConfigText(const std::string& text, const std::string& file, Message* message,
                            ConfigWords words) {
  // Several documents in one file are an error except for deployments, where each is one.
  SY_ASSIGN_OR_RETURN(const std::vector<YAML::Node> documents,
                      ParseYaml(text, file, /*quote=*/words == ConfigWords::kShown));
  if (documents.empty()) return BadConfigAt(file, 1, "", "is empty");
  if (documents.size() > 1) {
    return BadConfigAt(file, LineOf(documents[1]), "", "has more than one document");
  }
  return FillFrom(documents.front(), file, message, words);
}

std::optional<std::string> EnvironmentVariable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

absl::StatusOr<std::vector<v1::DeploymentSpec>> ReadDeployments(const std::string& path) {
  SY_ASSIGN_OR_RETURN(const std::string text, ReadConfigBytes(path));
  const std::string file = NameOfFile(path);
  SY_ASSIGN_OR_RETURN(const std::vector<YAML::Node> documents, ParseYaml(text, file));
  if (documents.empty()) return BadConfigAt(file, 1, "", "is empty");
  std::vector<v1::DeploymentSpec> deployments;
  std::map<std::string, int> lines;  // of the names
  for (const YAML::Node& document : documents) {
    v1::DeploymentSpec& spec = deployments.emplace_back();
    SY_RETURN_IF_ERROR(FillFrom(document, file, &spec));
    SY_RETURN_IF_ERROR(ResolveCheckpoint(document, path, &spec));
    if (spec.name().empty()) continue;  // the coordinator says what a name must be
    // Otherwise the second would change what the first has just applied.
    const int line = LineOf(document["name"]);
    const auto [first, is_new] = lines.emplace(spec.name(), line);
    if (!is_new) {
      return BadConfigAt(
          file, line, "name",
          absl::StrCat("\"", spec.name(), "\" is the name of the deployment at line ",
                       first->second, " already; give each a name of its own"));
    }
  }
  return deployments;
}

}  // namespace switchyard
