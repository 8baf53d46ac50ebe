// Implementation of the quant config readers: one JSON object, read strictly. Every error names
// the whole path of the key. Not for others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace switchyard::internal {

// Borrows `object`, which must be an object and outlive the view and everything that it returns.
class JsonView {
 public:
  JsonView(const nlohmann::json& object, std::string path)
      : object_(&object), path_(std::move(path)) {}

  // null is told apart from absent, because some keys mean different things by the two.
  enum class Presence : std::uint8_t { kAbsent, kNull, kPresent };
  [[nodiscard]] Presence PresenceOf(const char* key) const;
  // Present and not null.
  [[nodiscard]] bool Has(const char* key) const { return PresenceOf(key) == Presence::kPresent; }
  // "quantization_config.config_groups.group_0.weights".
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string PathOf(absl::string_view key) const;
  [[nodiscard]] std::vector<std::string> keys() const;
  // True when both views hold the same JSON, whatever their paths.
  [[nodiscard]] bool Equals(const JsonView& other) const { return *object_ == *other.object_; }

  // Each: nullopt when the key is absent or null; kInvalidArgument (BAD_CONFIG) naming the path
  // when the value has another type or is out of range.
  template <typename T>
  using Found = absl::StatusOr<std::optional<T>>;
  [[nodiscard]] Found<std::int32_t> Int(const char* key, std::int64_t min, std::int64_t max) const;
  [[nodiscard]] Found<bool> Bool(const char* key) const;
  [[nodiscard]] Found<std::string> String(const char* key) const;
  [[nodiscard]] Found<std::vector<std::string>> Strings(const char* key) const;
  // A list of numbers, each in [min, max].
  [[nodiscard]] Found<std::vector<std::int32_t>> Ints(const char* key, std::int64_t min,
                                                      std::int64_t max) const;
  [[nodiscard]] Found<JsonView> Object(const char* key) const;

  // kInvalidArgument (BAD_CONFIG) naming the first key that is neither among `known` nor `more` and
  // is not null, with the right spelling where it is known.
  [[nodiscard]] absl::Status OnlyKeys(std::span<const char* const> known,
                                      std::span<const char* const> more = {}) const;
  // kInvalidArgument (BAD_CONFIG) unless the key is absent, null, false, or an empty list or
  // object: a config may name a feature that is switched off.
  [[nodiscard]] absl::Status MustBeOff(const char* key, absl::string_view why) const;

 private:
  // nullptr when the key is absent or null.
  [[nodiscard]] const nlohmann::json* Find(const char* key) const;
  [[nodiscard]] absl::Status Mistyped(absl::string_view key, const nlohmann::json& value,
                                      absl::string_view wanted) const;

  const nlohmann::json* object_;
  std::string path_;
};

// kUnimplemented (UNSUPPORTED) with metadata {key}: well-formed, but not served.
absl::Status UnsupportedConfig(absl::string_view key, absl::string_view what);

}  // namespace switchyard::internal
