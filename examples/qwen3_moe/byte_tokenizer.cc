#include "examples/qwen3_moe/byte_tokenizer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard::qwen3_moe {

absl::Status CheckByteVocabulary(std::size_t vocab) {
  if (vocab == static_cast<std::size_t>(kByteVocabulary)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("the model has ", vocab,
                                " tokens; text needs a model whose vocabulary is the 256 bytes"));
}

std::vector<std::int32_t> EncodeBytes(absl::string_view text) {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string DecodeBytes(std::span<const std::int32_t> ids) {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) text.push_back(static_cast<char>(id));
  return text;
}

std::string Printable(absl::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    if ((c >= ' ' && c <= '~') || c == '\n' || c == '\t') {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace switchyard::qwen3_moe
