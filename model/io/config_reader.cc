#include "model/io/config_reader.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_json.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;
using Keys = ConfigReader::Keys;

// The value at a dotted key; nullptr when it is absent or null, which transformers treats alike.
const Json* FindAt(const Json& root, absl::string_view dotted) {
  const Json* at = &root;
  for (const absl::string_view part : absl::StrSplit(dotted, '.')) {
    if (!at->is_object()) return nullptr;
    const auto it = at->find(std::string(part));
    if (it == at->end()) return nullptr;
    at = &*it;
  }
  return at->is_null() ? nullptr : at;
}

struct Found {
  const char* key = nullptr;
  const Json* value = nullptr;
};

// The value under the spelling that is present; two that disagree are an error.
absl::StatusOr<Found> FindAny(const Json& root, Keys keys) {
  Found found;
  for (const char* key : keys) {
    const Json* value = FindAt(root, key);
    if (value == nullptr) continue;
    if (found.value == nullptr) {
      found = {key, value};
      // Equal values under both spellings are common and harmless.
    } else if (*found.value != *value) {
      return BadConfig(key, absl::StrCat("it contradicts '", found.key,
                                         "', which has the same meaning; remove the wrong one"));
    }
  }
  return found;
}

absl::Status Mistyped(const Found& found, absl::string_view wanted) {
  return BadConfig(found.key,
                   absl::StrCat("it must be ", wanted, ", found a ", found.value->type_name()));
}

absl::StatusOr<std::int32_t> IntOf(const Json& value, absl::string_view key,
                                   ConfigReader::IntRange range) {
  // An unsigned number above INT64_MAX would become negative, and is out of every range.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!fits || value.get<std::int64_t>() < range.min || value.get<std::int64_t>() > range.max) {
    return BadConfig(key, absl::StrCat("it must be a whole number in [", range.min, ", ", range.max,
                                       "], found ", PrintableName(value.dump())));
  }
  return static_cast<std::int32_t>(value.get<std::int64_t>());
}

}  // namespace

// Keeps nlohmann's header, which is slow to compile, out of config_reader.h.
struct ConfigReader::Document {
  Json root;
};

ConfigReader::ConfigReader(std::unique_ptr<Document> document) : document_(std::move(document)) {}
ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader& ConfigReader::operator=(ConfigReader&&) noexcept = default;
ConfigReader::~ConfigReader() = default;

absl::StatusOr<ConfigReader> ConfigReader::Parse(absl::string_view json) {
  absl::StatusOr<Json> root = internal::ParseJsonTree(json);
  if (!root.ok()) return BadConfig("", root.status().message());
  if (!root->is_object()) return BadConfig("", "the text is not a JSON object");
  return ConfigReader(std::make_unique<Document>(Document{*std::move(root)}));
}

bool ConfigReader::Has(Keys keys) const {
  for (const char* key : keys) {
    if (FindAt(document_->root, key) != nullptr) return true;
  }
  return false;
}

absl::StatusOr<std::optional<std::int32_t>> ConfigReader::Int(Keys keys, IntRange range) const {
  SY_ASSIGN_OR_RETURN(const Found found, FindAny(document_->root, keys));
  if (found.value == nullptr) return std::nullopt;
  SY_ASSIGN_OR_RETURN(const std::int32_t value, IntOf(*found.value, found.key, range));
  return value;
}

absl::StatusOr<std::optional<double>> ConfigReader::PositiveNumber(Keys keys) const {
  SY_ASSIGN_OR_RETURN(const Found found, FindAny(document_->root, keys));
  if (found.value == nullptr) return std::nullopt;
  if (!found.value->is_number()) return Mistyped(found, "a number above 0");
  const auto value = found.value->get<double>();
  // A zero or infinite epsilon or theta would make every answer NaN.
  if (!std::isfinite(value) || value <= 0) {
    return BadConfig(found.key, absl::StrCat("it must be a number above 0, found ", value));
  }
  return value;
}

absl::StatusOr<std::optional<bool>> ConfigReader::Bool(Keys keys) const {
  SY_ASSIGN_OR_RETURN(const Found found, FindAny(document_->root, keys));
  if (found.value == nullptr) return std::nullopt;
  // No numbers: Python would take 0 and 1, but a config that has them was not written by
  // transformers.
  if (!found.value->is_boolean()) return Mistyped(found, "true or false");
  return found.value->get<bool>();
}

absl::StatusOr<std::optional<std::string>> ConfigReader::String(Keys keys) const {
  SY_ASSIGN_OR_RETURN(const Found found, FindAny(document_->root, keys));
  if (found.value == nullptr) return std::nullopt;
  if (!found.value->is_string()) return Mistyped(found, "a string");
  return found.value->get<std::string>();
}

absl::StatusOr<std::optional<std::vector<std::int32_t>>> ConfigReader::Ints(Keys keys,
                                                                            IntRange range) const {
  SY_ASSIGN_OR_RETURN(const Found found, FindAny(document_->root, keys));
  if (found.value == nullptr) return std::nullopt;
  std::vector<std::int32_t> values;
  // transformers writes eos_token_id as a number or as a list.
  if (!found.value->is_array()) {
    SY_ASSIGN_OR_RETURN(const std::int32_t value, IntOf(*found.value, found.key, range));
    values.push_back(value);
    return values;
  }
  for (const Json& element : *found.value) {
    SY_ASSIGN_OR_RETURN(const std::int32_t value, IntOf(element, found.key, range));
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<std::optional<std::vector<std::string>>> ConfigReader::Strings(Keys keys) const {
  SY_ASSIGN_OR_RETURN(const Found found, FindAny(document_->root, keys));
  if (found.value == nullptr) return std::nullopt;
  if (!found.value->is_array()) return Mistyped(found, "a list of strings");
  std::vector<std::string> values;
  for (const Json& element : *found.value) {
    if (!element.is_string()) return Mistyped(found, "a list of strings");
    values.push_back(element.get<std::string>());
  }
  return values;
}

absl::Status BadConfig(absl::string_view key, absl::string_view what) {
  if (key.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("model config: ", what));
  }
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("model config, key '", key, "': ", what),
                   {{"key", std::string(key)}});
}

}  // namespace switchyard
