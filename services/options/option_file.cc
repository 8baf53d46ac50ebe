#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "core/base/suggest.h"
#include "services/config/yaml_text.h"
#include "services/options/read_options.h"

namespace switchyard {
namespace {

class OptionFileReader {
 public:
  OptionFileReader(const OptionTable& table, const std::string& path)
      : table_(table), file_(NameOfFile(path)) {
    std::error_code error;
    folder_ = std::filesystem::absolute(path, error).parent_path().string();
  }

  absl::Status Read(const YAML::Node& document) {
    if (!document.IsMap()) return Bad(document, "", "needs sections, each with keys and values");
    std::set<std::string> seen;
    for (const auto& item : document) {
      if (!item.first.IsScalar()) return Bad(item.first, "", "a section must be a single word");
      const std::string& name = item.first.Scalar();
      if (!IsSection(name)) return NoSuchSection(item.first, name);
      if (!seen.insert(name).second) return Bad(item.first, name, "is given twice");
      // A section whose keys are all commented out.
      if (item.second.IsNull()) continue;
      SY_RETURN_IF_ERROR(ReadSection(name, item.second));
    }
    return absl::OkStatus();
  }

  std::vector<GivenOption> Take() { return std::move(given_); }

 private:
  [[nodiscard]] absl::Status Bad(const YAML::Node& node, absl::string_view field,
                                 absl::string_view what) const {
    return BadConfigAt(file_, LineOf(node), field, what);
  }

  [[nodiscard]] bool IsSection(absl::string_view name) const {
    for (const OptionSection& section : table_.sections) {
      if (section.name == name) return true;
    }
    return false;
  }

  // A key of a section often stands at the top, as flags have no sections.
  [[nodiscard]] absl::Status NoSuchSection(const YAML::Node& node, const std::string& name) const {
    for (const OptionSection& section : table_.sections) {
      if (table_.Find(absl::StrCat(section.name, ".", name)) == nullptr) continue;
      return Bad(node, name, absl::StrCat("belongs into the section \"", section.name, "\""));
    }
    std::vector<std::string> known;
    for (const OptionSection& section : table_.sections) known.push_back(section.name);
    return Bad(node, name,
               absl::StrCat("no such section", DidYouMean(NearestWord(name, known), known)));
  }

  absl::Status ReadSection(const std::string& section, const YAML::Node& node) {
    if (!node.IsMap()) return Bad(node, section, "needs keys and values");
    for (const auto& item : node) {
      if (!item.first.IsScalar()) return Bad(item.first, section, "a key must be a single word");
      const std::string& name = item.first.Scalar();
      const std::string key = absl::StrCat(section, ".", name);
      const Option* option = table_.Find(key);
      if (option == nullptr) return NoSuchKey(item.first, section, name);
      // yaml-cpp accepts a duplicate key and keeps one of the values.
      if (!seen_.insert(key).second) return Bad(item.first, key, "is given twice");
      GivenOption given{key, {}, absl::StrCat(file_, ":", LineOf(item.first))};
      if (item.second.IsNull()) return Bad(item.first, key, "has no value");
      SY_RETURN_IF_ERROR(ReadValues(*option, item.second, &given.values));
      given_.push_back(std::move(given));
    }
    return absl::OkStatus();
  }

  [[nodiscard]] absl::Status NoSuchKey(const YAML::Node& node, const std::string& section,
                                       const std::string& name) const {
    const std::string prefix = section + ".";
    const std::string key = prefix + name;
    std::vector<std::string> known;
    for (const Option& option : table_.options) {
      if (option.key.compare(0, prefix.size(), prefix) == 0) {
        known.push_back(option.key.substr(prefix.size()));
      } else if (option.key.substr(option.key.find('.') + 1) == name) {
        return Bad(node, key, absl::StrCat("no such key; did you mean \"", option.key, "\"?"));
      }
    }
    return Bad(node, key, absl::StrCat("no such key", DidYouMean(NearestWord(name, known), known)));
  }

  absl::Status ReadValues(const Option& option, const YAML::Node& node,
                          std::vector<std::string>* values) {
    if (node.IsSequence() && option.list) {
      for (const YAML::Node& item : node) {
        if (!item.IsScalar()) return Bad(item, option.key, "needs single words in its list");
        values->push_back(InFile(option, item.Scalar()));
      }
      return absl::OkStatus();
    }
    if (!node.IsScalar()) {
      return Bad(node, option.key, option.list ? "needs a word or a list" : "needs a single value");
    }
    values->push_back(InFile(option, node.Scalar()));
    return absl::OkStatus();
  }

  [[nodiscard]] std::string InFile(const Option& option, const std::string& value) const {
    return option.in_file == nullptr ? value : option.in_file(value, folder_);
  }

  const OptionTable& table_;
  const std::string file_;
  std::string folder_;
  std::set<std::string> seen_;
  std::vector<GivenOption> given_;
};

}  // namespace

absl::StatusOr<std::vector<GivenOption>> ReadOptionFile(const OptionTable& table,
                                                        const std::string& path) {
  SY_ASSIGN_OR_RETURN(const std::string text, ReadConfigBytes(path));
  const std::string file = NameOfFile(path);
  SY_ASSIGN_OR_RETURN(const std::vector<YAML::Node> documents, ParseYaml(text, file));
  // A file whose keys are all commented out.
  if (documents.empty()) return std::vector<GivenOption>{};
  if (documents.size() > 1) {
    return BadConfigAt(file, LineOf(documents[1]), "", "has more than one document");
  }
  OptionFileReader reader(table, path);
  try {
    SY_RETURN_IF_ERROR(reader.Read(documents.front()));
    // yaml-cpp throws when a node is read, not only when it is parsed.
  } catch (const YAML::Exception& error) {
    return BadConfigAt(file, error.mark.line + 1, "", error.msg);
  }
  return reader.Take();
}

}  // namespace switchyard
