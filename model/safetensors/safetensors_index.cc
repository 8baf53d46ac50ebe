#include "model/safetensors/safetensors_index.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "model/io/checkpoint_error.h"

namespace switchyard {
namespace {

using Kind = CheckpointErrorKind;

bool IsSafeFileName(absl::string_view name) {
  // A bare name cannot leave the folder; 255 bytes is the limit of file systems.
  return !absl::StrContains(name, '/') && !absl::StrContains(name, absl::string_view("\0", 1)) &&
         name.size() <= 255 && name != ".safetensors" && absl::EndsWith(name, ".safetensors");
}

// The events of nlohmann's SAX parser; each returns false to stop it, after setting status_.
// The shape is {"metadata": {"total_size": n, ...}, "weight_map": {"tensor": "file", ...}, ...}.
class IndexHandler {
 public:
  IndexHandler(const std::string& path, const SafetensorsIndexLimits& limits,
               SafetensorsIndex& index)
      : path_(path), limits_(limits), index_(index) {}

  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] bool map_seen() const { return map_seen_; }
  // Files in the order of their first use, which entries still refer to.
  std::map<std::string, std::uint32_t>& files() { return files_; }

  // The names and signatures below are those that nlohmann::json::sax_parse calls.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Scalar(); }
  bool boolean(bool /*value*/) { return Scalar(); }
  bool number_integer(std::int64_t /*value*/) { return Scalar(); }
  bool number_unsigned(std::uint64_t value) {
    if (AtTotal()) return SetTotal(value);
    return Scalar();
  }
  bool number_float(double value, const std::string& /*text*/) {
    // Some writers count in floating point; up to 2^53 that is exact.
    if (AtTotal() && value >= 0 && value <= 0x1p53 && value == std::floor(value)) {
      return SetTotal(static_cast<std::uint64_t>(value));
    }
    return Scalar();
  }
  bool string(std::string& value) { return InWeightMap() ? AddEntry(value) : Scalar(); }
  bool binary(std::vector<std::uint8_t>& /*value*/) { return Scalar(); }
  bool key(std::string& value) {
    if (depth_ == 1) {
      section_ = value;
      bool& seen = value == "weight_map" ? map_seen_ : metadata_seen_;
      if (value == "weight_map" || value == "metadata") {
        if (std::exchange(seen, true)) {
          return Fail(Kind::kDuplicateKey, absl::StrCat("the index has '", value, "' twice"));
        }
      }
    }
    if (depth_ == 2) key_ = std::move(value);
    return true;
  }
  bool start_object(std::size_t /*elements*/) { return Open(true); }
  bool start_array(std::size_t /*elements*/) { return Open(false); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    status_ =
        MakeCheckpointError(Kind::kJsonError, {.file = path_, .tensor = "", .offset = position - 1},
                            "the index is not valid JSON");
    return false;
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  [[nodiscard]] bool InWeightMap() const { return depth_ == 2 && section_ == "weight_map"; }
  [[nodiscard]] bool AtTotal() const {
    return depth_ == 2 && section_ == "metadata" && key_ == "total_size";
  }

  bool Open(bool object) {
    // A nested value where a scalar or the map is required is refused by Scalar with the right
    // text.
    const bool map_itself = depth_ == 1 && section_ == "weight_map";
    if (InWeightMap() || AtTotal() || (depth_ == 0 && !object) || (map_itself && !object)) {
      return Scalar();
    }
    // Unread fields may nest; the bound keeps a hostile file from exhausting the parser.
    constexpr int kDepthMax = 64;
    if (++depth_ > kDepthMax) return Fail(Kind::kIndexInvalid, "the index nests too deep");
    return true;
  }
  bool Close() {
    --depth_;
    return true;
  }

  // Fails on a value of the wrong type; fields that are not read accept any.
  bool Scalar() {
    if (depth_ == 0) return Fail(Kind::kIndexInvalid, "the index is not a JSON object");
    if (InWeightMap()) {
      return Fail(Kind::kIndexInvalid,
                  absl::StrCat("weight_map must give a file name for '", PrintableName(key_), "'"));
    }
    if (depth_ == 1 && section_ == "weight_map") {
      return Fail(Kind::kIndexInvalid, "weight_map must be an object");
    }
    if (AtTotal()) {
      return Fail(Kind::kIndexInvalid, "metadata.total_size must be a whole number of bytes");
    }
    return true;
  }

  bool SetTotal(std::uint64_t value) {
    if (index_.total_bytes.has_value()) {
      return Fail(Kind::kDuplicateKey, "metadata has 'total_size' twice");
    }
    index_.total_bytes = value;
    return true;
  }

  bool AddEntry(const std::string& file) {
    if (!IsSafeFileName(file)) {
      return Fail(
          Kind::kUnsafeFileName,
          absl::StrCat("the index places '", PrintableName(key_), "' in '", PrintableName(file),
                       "'; shards are bare names that end in .safetensors"));
    }
    if (index_.entries.size() >= limits_.entries_max) {
      return Fail(Kind::kTooManyTensors,
                  absl::StrCat("the index lists more than ", limits_.entries_max, " tensors"));
    }
    // A name is stored once: a million entries share a few hundred files.
    const auto [it, added] = files_.emplace(file, static_cast<std::uint32_t>(files_.size()));
    if (added && files_.size() > limits_.files_max) {
      return Fail(Kind::kIndexInvalid,
                  absl::StrCat("the index names more than ", limits_.files_max, " files"));
    }
    index_.entries.push_back({std::move(key_), it->second});
    return true;
  }

  bool Fail(Kind kind, absl::string_view what) {
    status_ =
        MakeCheckpointError(kind, {.file = path_, .tensor = "", .offset = std::nullopt}, what);
    return false;
  }

  const std::string& path_;
  const SafetensorsIndexLimits& limits_;
  SafetensorsIndex& index_;
  absl::Status status_;
  std::map<std::string, std::uint32_t> files_;
  int depth_ = 0;
  std::string section_;  // key at depth 1
  std::string key_;      // key at depth 2
  bool map_seen_ = false;
  bool metadata_seen_ = false;
};

// Sorts files and entries by name; a tensor that is listed twice is an error.
absl::Status Sort(const std::map<std::string, std::uint32_t>& files, const std::string& path,
                  SafetensorsIndex& index) {
  // Entries refer to files by order of first use until here; the result's order must not depend on
  // it.
  std::vector<std::uint32_t> new_of(files.size());
  for (const auto& [name, old] : files) {
    new_of[old] = static_cast<std::uint32_t>(index.files.size());
    index.files.push_back(name);
  }
  for (SafetensorsIndex::Entry& entry : index.entries) entry.file = new_of[entry.file];
  std::sort(index.entries.begin(), index.entries.end(),
            [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
  const auto twice =
      std::adjacent_find(index.entries.begin(), index.entries.end(),
                         [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice == index.entries.end()) return absl::OkStatus();
  return MakeCheckpointError(Kind::kDuplicateKey,
                             {.file = path, .tensor = twice->tensor, .offset = std::nullopt},
                             "the index lists this tensor twice");
}

}  // namespace

absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view json,
                                                       const std::string& path,
                                                       const SafetensorsIndexLimits& limits) {
  // The JSON library takes a NUL for the end of the text and would ignore everything behind it.
  const std::size_t bad = std::min(FindInvalidUtf8(json), json.find('\0'));
  if (bad < json.size()) {
    return MakeCheckpointError(Kind::kJsonError, {.file = path, .tensor = "", .offset = bad},
                               "the index is not UTF-8 text");
  }
  SafetensorsIndex index;
  IndexHandler handler(path, limits, index);
  if (!nlohmann::json::sax_parse(json.data(), json.data() + json.size(), &handler)) {
    return handler.status();
  }
  if (!handler.map_seen()) {
    return MakeCheckpointError(Kind::kIndexInvalid,
                               {.file = path, .tensor = "", .offset = std::nullopt},
                               "the index has no weight_map");
  }
  SY_RETURN_IF_ERROR(Sort(handler.files(), path, index));
  return index;
}

}  // namespace switchyard
