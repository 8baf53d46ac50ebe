// Typed reading of config.json: every error names its key, the value found and the value wanted.
//
// A value may have two spellings (transformers renamed some keys); when both are present they must
// agree. Keys with a dot reach into an object ("rope_parameters.rope_theta"). Immutable,
// thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard {

class ConfigReader {
 public:
  // The spellings of one value, the usual one first.
  using Keys = std::initializer_list<const char*>;

  // Both ends are allowed.
  struct IntRange {
    std::int64_t min = 0;
    std::int64_t max = 0;
  };

  // Errors: kInvalidArgument (BAD_CONFIG) when `json` is not one object, holds a key twice, nests
  // too deep or is larger than 16 MiB.
  static absl::StatusOr<ConfigReader> Parse(absl::string_view json);

  ConfigReader(ConfigReader&&) noexcept;
  ConfigReader& operator=(ConfigReader&&) noexcept;
  ~ConfigReader();

  // True when one of the spellings is present and not null.
  [[nodiscard]] bool Has(Keys keys) const;

  // Each: nullopt when no spelling is present (or it is null); kInvalidArgument (BAD_CONFIG) naming
  // the key when the value has another type, is out of range, or two spellings disagree.
  [[nodiscard]] absl::StatusOr<std::optional<std::int32_t>> Int(Keys keys, IntRange range) const;
  // A finite number above zero; an integer is accepted too.
  [[nodiscard]] absl::StatusOr<std::optional<double>> PositiveNumber(Keys keys) const;
  [[nodiscard]] absl::StatusOr<std::optional<bool>> Bool(Keys keys) const;
  [[nodiscard]] absl::StatusOr<std::optional<std::string>> String(Keys keys) const;
  // Also accepts a single number as a list of one.
  [[nodiscard]] absl::StatusOr<std::optional<std::vector<std::int32_t>>> Ints(Keys keys,
                                                                              IntRange range) const;
  [[nodiscard]] absl::StatusOr<std::optional<std::vector<std::string>>> Strings(Keys keys) const;

 private:
  // Hides the JSON library from the readers of families.
  struct Document;
  explicit ConfigReader(std::unique_ptr<Document> document);

  std::unique_ptr<Document> document_;
};

// kInvalidArgument (BAD_CONFIG) with metadata {key}.
absl::Status BadConfig(absl::string_view key, absl::string_view what);

// Sets `out` from the result of a ConfigReader call. Require fails with `key` in the error when the
// value is missing; Optional then leaves `out` unchanged.
template <typename T>
absl::Status Require(absl::StatusOr<std::optional<T>> value, absl::string_view key, T& out) {
  if (!value.ok()) return value.status();
  if (!value->has_value()) return BadConfig(key, "it is missing");
  out = *std::move(*value);
  return absl::OkStatus();
}
template <typename T>
absl::Status Optional(absl::StatusOr<std::optional<T>> value, T& out) {
  if (!value.ok()) return value.status();
  if (value->has_value()) out = *std::move(*value);
  return absl::OkStatus();
}

}  // namespace switchyard
