#include "model/io/config_json.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/utf8.h"
#include "model/io/checkpoint_error.h"

namespace switchyard::internal {
namespace {

using Json = nlohmann::json;

// Builds the tree as nlohmann's own builder does, with two more checks: a bounded depth, so that
// code that walks the tree cannot exhaust the stack, and no key twice, because readers disagree on
// which value wins.
class TreeBuilder {
 public:
  TreeBuilder(Json& root, std::size_t depth_max) : root_(root), depth_max_(depth_max) {}

  [[nodiscard]] const absl::Status& status() const { return status_; }

  // The names and signatures below are those that nlohmann::json::sax_parse calls.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Put(Json(nullptr)); }
  bool boolean(bool value) { return Put(Json(value)); }
  bool number_integer(std::int64_t value) { return Put(Json(value)); }
  bool number_unsigned(std::uint64_t value) { return Put(Json(value)); }
  bool number_float(double value, const std::string& /*text*/) { return Put(Json(value)); }
  bool string(std::string& value) { return Put(Json(std::move(value))); }
  bool binary(std::vector<std::uint8_t>& /*value*/) { return Fail("binary data"); }
  bool key(std::string& value) {
    if (open_.back()->contains(value)) {
      return Fail(absl::StrCat("the key '", PrintableName(value), "' twice in one object"));
    }
    key_ = std::move(value);
    return true;
  }
  bool start_object(std::size_t /*elements*/) { return Open(Json::object()); }
  bool start_array(std::size_t /*elements*/) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& /*error*/) {
    return Fail(absl::StrCat("invalid JSON at byte ", position - 1));
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  // Puts `value` at the place of the next value.
  Json& Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return slot;
  }

  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (open_.size() >= depth_max_) return Fail(absl::StrCat("more than ", depth_max_, " levels"));
    open_.push_back(&Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  bool Fail(absl::string_view what) {
    status_ = absl::InvalidArgumentError(absl::StrCat("the text holds ", what));
    return false;
  }

  Json& root_;
  const std::size_t depth_max_;
  absl::Status status_;
  std::vector<Json*> open_;  // from the root down; a container does not move while it is open
  std::string key_;
};

}  // namespace

absl::StatusOr<Json> ParseJsonTree(absl::string_view text, const JsonTreeLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("its ", text.size(), " bytes are above the limit of ", limits.bytes_max));
  }
  if (FindInvalidUtf8(text) != text.size()) return absl::InvalidArgumentError("it is not UTF-8");
  if (text.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("it holds a NUL byte");
  }
  Json root;
  TreeBuilder builder(root, limits.depth_max);
  if (!Json::sax_parse(text.data(), text.data() + text.size(), &builder)) return builder.status();
  return root;
}

}  // namespace switchyard::internal
