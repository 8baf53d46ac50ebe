#include "model/io/json_view.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"

namespace switchyard::internal {
namespace {

using Json = nlohmann::json;

// As many elements as an exclusion list may have names (name_patterns.h).
constexpr std::size_t kElementsMax = 65'536;

bool Contains(std::span<const char* const> keys, absl::string_view key) {
  return std::any_of(keys.begin(), keys.end(), [key](const char* known) { return key == known; });
}

absl::StatusOr<std::int32_t> IntOf(const Json& value, absl::string_view path, std::int64_t min,
                                   std::int64_t max) {
  // An unsigned number above INT64_MAX would become negative, and is out of every range.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!fits || value.get<std::int64_t>() < min || value.get<std::int64_t>() > max) {
    const std::string found =
        value.is_number() ? value.dump() : absl::StrCat("a value of type ", value.type_name());
    return BadConfig(path, absl::StrCat("it must be a whole number in [", min, ", ", max,
                                        "], found ", PrintableName(found)));
  }
  return static_cast<std::int32_t>(value.get<std::int64_t>());
}

}  // namespace

const Json* JsonView::Find(const char* key) const {
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

JsonView::Presence JsonView::PresenceOf(const char* key) const {
  const auto it = object_->find(key);
  if (it == object_->end()) return Presence::kAbsent;
  return it->is_null() ? Presence::kNull : Presence::kPresent;
}

std::string JsonView::PathOf(absl::string_view key) const {
  // A key may be empty, but a path never is, so that every error names something.
  const std::string shown = key.empty() ? "''" : PrintableName(key);
  return path_.empty() ? shown : absl::StrCat(path_, ".", shown);
}

std::vector<std::string> JsonView::keys() const {
  std::vector<std::string> keys;
  for (const auto& item : object_->items()) keys.push_back(item.key());
  return keys;
}

absl::Status JsonView::Mistyped(absl::string_view key, const Json& value,
                                absl::string_view wanted) const {
  return BadConfig(PathOf(key), absl::StrCat("it must be ", wanted, ", found a value of type ",
                                             value.type_name()));
}

JsonView::Found<std::int32_t> JsonView::Int(const char* key, std::int64_t min,
                                            std::int64_t max) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  SY_ASSIGN_OR_RETURN(const std::int32_t number, IntOf(*value, PathOf(key), min, max));
  return number;
}

JsonView::Found<bool> JsonView::Bool(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return Mistyped(key, *value, "true or false");
  return value->get<bool>();
}

JsonView::Found<std::string> JsonView::String(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Mistyped(key, *value, "a string");
  return value->get<std::string>();
}

JsonView::Found<std::vector<std::string>> JsonView::Strings(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return Mistyped(key, *value, "a list of strings");
  if (value->size() > kElementsMax) {
    return BadConfig(PathOf(key), absl::StrCat("it has more than ", kElementsMax, " elements"));
  }
  std::vector<std::string> strings;
  strings.reserve(value->size());
  for (const Json& element : *value) {
    if (!element.is_string()) return Mistyped(key, element, "a list of strings");
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

JsonView::Found<std::vector<std::int32_t>> JsonView::Ints(const char* key, std::int64_t min,
                                                          std::int64_t max) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || value->size() > kElementsMax) {
    return Mistyped(key, *value, "a list of whole numbers");
  }
  std::vector<std::int32_t> numbers;
  for (const Json& element : *value) {
    SY_ASSIGN_OR_RETURN(const std::int32_t number, IntOf(element, PathOf(key), min, max));
    numbers.push_back(number);
  }
  return numbers;
}

JsonView::Found<JsonView> JsonView::Object(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return Mistyped(key, *value, "an object");
  return JsonView(*value, PathOf(key));
}

absl::Status JsonView::OnlyKeys(std::span<const char* const> known,
                                std::span<const char* const> more) const {
  for (const auto& item : object_->items()) {
    const std::string& key = item.key();
    if (Contains(known, key) || Contains(more, key)) continue;
    // Drafts of SGLang's pull request 22822 used these spellings.
    if (absl::StartsWith(key, "dispather") || key == "dispatch_output_dtype") {
      return BadConfig(PathOf(key),
                       "there is no such key; it is spelled 'dispatcher_output_dtype'");
    }
    // Writers list options that they do not use as null, and each version has new ones.
    if (item.value().is_null()) continue;
    return BadConfig(PathOf(key),
                     "there is no such key; it may change what the weights mean, so "
                     "remove it or use a newer version");
  }
  return absl::OkStatus();
}

// Writers spell "off" as null, false, an empty list or an empty object.
absl::Status JsonView::MustBeOff(const char* key, absl::string_view why) const {
  const Json* value = Find(key);
  if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return absl::OkStatus();
  if ((value->is_object() || value->is_array()) && value->empty()) return absl::OkStatus();
  return UnsupportedConfig(PathOf(key), why);
}

absl::Status UnsupportedConfig(absl::string_view key, absl::string_view what) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("model config, key '", key, "': ", what),
                   {{"key", std::string(key)}});
}

}  // namespace switchyard::internal
