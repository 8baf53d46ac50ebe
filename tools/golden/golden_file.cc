#include "tools/golden/golden_file.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"

namespace switchyard::qwen3_moe {
namespace {

absl::Status Refuse(const SafetensorsFile& file, Reason reason, absl::string_view tensor,
                    absl::string_view what) {
  const std::string printable = PrintableName(tensor);
  return MakeError(absl::StatusCode::kInvalidArgument, reason,
                   absl::StrCat("golden file ", file.path(),
                                tensor.empty() ? "" : ", tensor " + printable, ": ", what),
                   {{"file", file.path()}, {"tensor", printable}});
}

// The expected type of a tensor: n >= 1 rows of shape `row` (empty: scalars).
struct Wanted {
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<std::size_t> row;
};

absl::Status CheckTensor(const SafetensorsFile& file, const TensorInfo& tensor,
                         const Wanted& wanted) {
  if (tensor.dtype != wanted.dtype) {
    return Refuse(file, Reason::kBadDtype, tensor.name,
                  absl::StrCat("dtype is ", TensorDtypeName(tensor.dtype), ", not ",
                               TensorDtypeName(wanted.dtype)));
  }
  const bool fits = tensor.shape.size() == 1 + wanted.row.size() && tensor.shape[0] > 0 &&
                    std::equal(wanted.row.begin(), wanted.row.end(), tensor.shape.begin() + 1,
                               [](std::size_t want, std::int64_t have) {
                                 return static_cast<std::int64_t>(want) == have;
                               });
  if (!fits) {
    return Refuse(file, Reason::kBadShape, tensor.name,
                  absl::StrCat("shape is [", absl::StrJoin(tensor.shape, ", "), "], not [n",
                               wanted.row.empty() ? "" : ", ", absl::StrJoin(wanted.row, ", "),
                               "] with n of 1 or more"));
  }
  return absl::OkStatus();
}

// REQUIRES: `tensor` has passed CheckTensor as F32. A NaN is refused here, because comparing with
// it would fail for any answer.
absl::StatusOr<std::vector<float>> ReadFloats(const SafetensorsFile& file,
                                              const TensorInfo& tensor) {
  std::vector<float> values(tensor.bytes / sizeof(float));
  SY_RETURN_IF_ERROR(file.Read(tensor, std::as_writable_bytes(std::span(values))));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return Refuse(file, Reason::kBadRequest, tensor.name,
                    absl::StrCat("element ", i, " is not a finite number"));
    }
  }
  return values;
}

// REQUIRES: `tensor` has passed CheckTensor as I32.
absl::StatusOr<std::vector<std::int32_t>> ReadIds(const SafetensorsFile& file,
                                                  const TensorInfo& tensor, std::size_t vocab) {
  std::vector<std::int32_t> ids(tensor.bytes / sizeof(std::int32_t));
  SY_RETURN_IF_ERROR(file.Read(tensor, std::as_writable_bytes(std::span(ids))));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= vocab) {
      return Refuse(
          file, Reason::kBadRequest, tensor.name,
          absl::StrCat("element ", i, " is ", ids[i], "; the vocabulary is 0 to ", vocab - 1));
    }
  }
  return ids;
}

// Splits at the last dot, because names may have dots: "p0.l3" is ("p0", "l3"). Without a dot, the
// whole name is the second part.
std::pair<std::string, std::string> SplitLast(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// Sorts a file's tensors into blocks and texts. Checks everything except the values of the blocks,
// which ReadBlock checks.
class Sorter {
 public:
  Sorter(const SafetensorsFile& file, const GoldenShape& shape) : file_(file), shape_(shape) {}

  absl::Status Sort() {
    for (const TensorInfo& tensor : file_.tensors()) SY_RETURN_IF_ERROR(Add(tensor));
    SY_RETURN_IF_ERROR(FinishBlocks());
    return FinishTexts();
  }

  std::vector<GoldenBlock> blocks;
  std::vector<GoldenText> texts;
  std::vector<std::string> ignored;

 private:
  struct Pair {
    const TensorInfo* in = nullptr;
    const TensorInfo* out = nullptr;
  };

  absl::Status Add(const TensorInfo& tensor) {
    const auto [stem, part] = SplitLast(tensor.name);
    const bool in = part == "moe_in";
    if (in || part == "moe_out") {
      SY_RETURN_IF_ERROR(
          CheckTensor(file_, tensor, {.dtype = TensorDtype::kF32, .row = {shape_.hidden}}));
      const auto [name, level] = SplitLast(stem);
      std::int32_t layer = 0;
      // Comparing the text again refuses forms such as "l03" or "l+3", which would name one layer
      // twice.
      if (name.empty() || level.empty() || level[0] != 'l' ||
          !absl::SimpleAtoi(level.substr(1), &layer) || level != absl::StrCat("l", layer)) {
        return Refuse(file_, Reason::kBadRequest, tensor.name,
                      absl::StrCat("its name is not of the form <name>.l<layer>.", part));
      }
      if (layer < 0 || static_cast<std::size_t>(layer) >= shape_.layers) {
        return Refuse(file_, Reason::kUnknownLayer, tensor.name,
                      absl::StrCat("the model has layers 0 to ", shape_.layers - 1));
      }
      Pair& pair = pairs_[{name, LayerId{layer}}];
      (in ? pair.in : pair.out) = &tensor;
      return absl::OkStatus();
    }
    return AddTextPart(tensor, stem, part);
  }

  // Text tensors are read at once, because every check needs them; blocks only when they are
  // checked.
  absl::Status AddTextPart(const TensorInfo& tensor, const std::string& name,
                           const std::string& part) {
    if (part == "logits") {
      SY_RETURN_IF_ERROR(
          CheckTensor(file_, tensor, {.dtype = TensorDtype::kF32, .row = {shape_.vocab}}));
      SY_ASSIGN_OR_RETURN(by_name_[name].logits, ReadFloats(file_, tensor));
    } else if (part == "ids" || part == "greedy") {
      SY_RETURN_IF_ERROR(CheckTensor(file_, tensor, {.dtype = TensorDtype::kI32, .row = {}}));
      SY_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, ReadIds(file_, tensor, shape_.vocab));
      (part == "ids" ? by_name_[name].ids : by_name_[name].greedy) = std::move(ids);
    } else {
      ignored.push_back(tensor.name);
    }
    return absl::OkStatus();
  }

  absl::Status FinishBlocks() {
    for (const auto& [key, pair] : pairs_) {
      const TensorInfo& there = pair.in != nullptr ? *pair.in : *pair.out;
      if (pair.in == nullptr || pair.out == nullptr) {
        return Refuse(file_, Reason::kBadShape, there.name,
                      pair.in == nullptr ? "its moe_in is missing" : "its moe_out is missing");
      }
      if (pair.in->shape != pair.out->shape) {
        return Refuse(file_, Reason::kBadShape, pair.out->name,
                      absl::StrCat("it has ", pair.out->shape[0], " rows, its moe_in has ",
                                   pair.in->shape[0]));
      }
      blocks.push_back({.name = key.first,
                        .layer = key.second,
                        .rows = static_cast<std::size_t>(there.shape[0])});
    }
    return absl::OkStatus();
  }

  absl::Status FinishTexts() {
    bool checkable = !blocks.empty();
    for (auto& [name, text] : by_name_) {
      text.name = name;
      if (!text.ids.empty()) {
        SY_RETURN_IF_ERROR(CheckText(text));
        checkable = checkable || !text.logits.empty() || text.greedy.size() > text.ids.size();
      }
      // A text without ids is kept, so that verify can report that it is not checked.
      texts.push_back(std::move(text));
    }
    if (checkable) return absl::OkStatus();
    return Refuse(file_, Reason::kBadRequest, "",
                  "it has nothing to check; it needs <name>.l<layer>.moe_in with .moe_out, or "
                  "<name>.ids with <name>.logits or <name>.greedy");
  }

  [[nodiscard]] absl::Status CheckText(const GoldenText& text) const {
    const std::size_t rows = text.logits.size() / shape_.vocab;
    if (rows != 0 && rows != text.ids.size()) {
      return Refuse(file_, Reason::kBadShape, text.name + ".logits",
                    absl::StrCat("it has ", rows, " rows for ", text.ids.size(), " ids"));
    }
    const std::size_t longest = std::max(text.ids.size(), text.greedy.size());
    if (longest > shape_.positions) {
      return Refuse(file_, Reason::kBadShape,
                    text.name + (longest == text.ids.size() ? ".ids" : ".greedy"),
                    absl::StrCat("it has ", longest, " tokens; the model has ", shape_.positions,
                                 " positions"));
    }
    if (!text.greedy.empty() &&
        (text.greedy.size() < text.ids.size() ||
         !std::equal(text.ids.begin(), text.ids.end(), text.greedy.begin()))) {
      return Refuse(file_, Reason::kBadRequest, text.name + ".greedy",
                    absl::StrCat("it does not start with ", text.name, ".ids"));
    }
    return absl::OkStatus();
  }

  const SafetensorsFile& file_;
  const GoldenShape shape_;
  std::map<std::pair<std::string, LayerId>, Pair> pairs_;
  std::map<std::string, GoldenText> by_name_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GoldenFile>> GoldenFile::Open(const std::string& path,
                                                             const GoldenShape& shape) {
  SY_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  Sorter sorter(*file, shape);
  SY_RETURN_IF_ERROR(sorter.Sort());
  auto golden = std::unique_ptr<GoldenFile>(new GoldenFile(std::move(file)));
  golden->blocks_ = std::move(sorter.blocks);
  golden->texts_ = std::move(sorter.texts);
  golden->ignored_ = std::move(sorter.ignored);
  return golden;
}

absl::StatusOr<GoldenBlockData> GoldenFile::ReadBlock(const GoldenBlock& block) const {
  const std::string base = absl::StrCat(block.name, ".l", block.layer.value);
  GoldenBlockData data;
  SY_ASSIGN_OR_RETURN(data.in, ReadFloats(*file_, *file_->Find(base + ".moe_in")));
  SY_ASSIGN_OR_RETURN(data.out, ReadFloats(*file_, *file_->Find(base + ".moe_out")));
  return data;
}

}  // namespace switchyard::qwen3_moe
