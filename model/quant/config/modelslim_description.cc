#include "model/quant/config/modelslim_description.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"

namespace switchyard {
namespace {

constexpr absl::string_view kFile = "quant_model_description.json";
constexpr absl::string_view kWeight = ".weight";
constexpr std::int32_t kGroupSizeMax = 65'536;
constexpr std::int32_t kGroupSizeDefault = 256;

}  // namespace

// The events of nlohmann's SAX parser; each returns false to stop it, after setting status_.
class ModelSlimHandler {
 public:
  ModelSlimHandler(const ModelSlimLimits& limits, ModelSlimDescription& out)
      : limits_(limits), out_(out) {}

  [[nodiscard]] const absl::Status& status() const { return status_; }

  // The names and signatures below are those that nlohmann::json::sax_parse calls.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Other("null"); }
  bool boolean(bool /*value*/) { return Other("a boolean"); }
  bool number_integer(std::int64_t /*value*/) { return Other("a negative number"); }
  bool number_float(double /*value*/, const std::string& /*text*/) { return Other("a fraction"); }
  bool number_unsigned(std::uint64_t value) {
    if (depth_ != 1 || key_ != "group_size") return Other("a number");
    if (out_.group_size_.has_value()) return Fail("it is given twice");
    if (value > kGroupSizeMax) return Other("a larger number");
    out_.group_size_ = static_cast<std::int32_t>(value);
    return true;
  }
  bool binary(std::vector<std::uint8_t>& /*value*/) { return Other("binary data"); }
  bool string(std::string& value) {
    if (depth_ != 1 || !absl::EndsWith(key_, kWeight)) return Other("a string");
    return AddModule(value);
  }
  bool key(std::string& value) {
    // Only the outermost object names tensors.
    if (depth_ != 1) return true;
    key_ = std::move(value);
    if (key_.size() > limits_.name_bytes_max) return Fail("its name is too long");
    if (absl::EndsWith(key_, ".weight_scale_second")) out_.second_scales_ = true;
    return true;
  }
  bool start_object(std::size_t /*elements*/) { return Open("an object", true); }
  bool start_array(std::size_t /*elements*/) { return Open("a list", false); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    key_.clear();
    return Fail(absl::StrCat("it is not JSON at byte ", position - 1));
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  bool Fail(absl::string_view what) {
    status_ = BadConfig(key_.empty() ? std::string(kFile) : PrintableName(key_), what);
    return false;
  }

  // Any other value: ignored, except where a type or the group size is expected.
  bool Other(absl::string_view found) {
    if (depth_ == 0) return Fail("the text is not a JSON object");
    if (depth_ == 1 && absl::EndsWith(key_, kWeight)) {
      return Fail(absl::StrCat("it must be the name of a type, found ", found));
    }
    if (depth_ == 1 && key_ == "group_size") {
      return Fail(
          absl::StrCat("it must be a whole number in [0, ", kGroupSizeMax, "], found ", found));
    }
    return true;
  }

  bool Open(absl::string_view found, bool object) {
    if (depth_ == 0 && !object) return Fail("the text is not a JSON object");
    if (depth_ > 0 && !Other(found)) return false;
    if (depth_ == limits_.depth_max) {
      return Fail(absl::StrCat("it is nested deeper than ", limits_.depth_max, " levels"));
    }
    ++depth_;
    return true;
  }

  bool Close() {
    --depth_;
    return true;
  }

  // Types are few and repeat for every tensor, so a module keeps a byte and not a string.
  bool AddModule(const std::string& type) {
    if (out_.modules_.size() == limits_.modules_max) {
      return Fail(absl::StrCat("the file has more than ", limits_.modules_max, " weights"));
    }
    auto at = std::find(out_.types_.begin(), out_.types_.end(), type);
    if (at == out_.types_.end()) {
      if (out_.types_.size() == limits_.types_max || type.size() > limits_.name_bytes_max) {
        return Fail(absl::StrCat("the file has more than ", limits_.types_max,
                                 " types, or one with too long a name"));
      }
      at = out_.types_.insert(at, type);
    }
    out_.modules_.push_back({std::string(absl::StripSuffix(key_, kWeight)),
                             static_cast<std::uint8_t>(at - out_.types_.begin())});
    return true;
  }

  const ModelSlimLimits& limits_;
  ModelSlimDescription& out_;
  absl::Status status_;
  std::string key_;  // of the outermost object
  std::size_t depth_ = 0;
};

absl::StatusOr<ModelSlimDescription> ModelSlimDescription::Parse(absl::string_view text,
                                                                 const ModelSlimLimits& limits) {
  if (text.size() > limits.file_bytes_max) {
    return BadConfig(kFile, absl::StrCat("its ", text.size(), " bytes are above the limit of ",
                                         limits.file_bytes_max));
  }
  if (FindInvalidUtf8(text) != text.size()) return BadConfig(kFile, "it is not UTF-8");
  ModelSlimDescription out;
  ModelSlimHandler handler(limits, out);
  if (!nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &handler)) {
    return handler.status();
  }
  // Duplicates are found once all names are sorted: a set while reading would double the memory.
  std::sort(out.modules_.begin(), out.modules_.end(),
            [](const Module& a, const Module& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(out.modules_.begin(), out.modules_.end(),
                         [](const Module& a, const Module& b) { return a.name == b.name; });
  if (twice != out.modules_.end()) {
    return BadConfig(PrintableName(absl::StrCat(twice->name, kWeight)), "it is given twice");
  }
  return out;
}

const std::string* ModelSlimDescription::TypeOf(absl::string_view module) const {
  const auto at = std::lower_bound(
      modules_.begin(), modules_.end(), module,
      [](const Module& entry, absl::string_view wanted) { return entry.name < wanted; });
  return at != modules_.end() && at->name == module ? &types_[at->type] : nullptr;
}

std::int32_t ModelSlimDescription::group_size() const {
  return group_size_.value_or(second_scales_ ? kGroupSizeDefault : 0);
}

}  // namespace switchyard
