// The byte vocabulary: 256 tokens, one for each byte. The example needs no tokenizer library this
// way. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace switchyard::qwen3_moe {

inline constexpr std::int32_t kByteVocabulary = 256;

// kUnimplemented (UNSUPPORTED) unless `vocab` is the number of bytes.
absl::Status CheckByteVocabulary(std::size_t vocab);

// One token for each byte of `text`.
std::vector<std::int32_t> EncodeBytes(absl::string_view text);
// The inverse. REQUIRES: each id is in [0, 256).
std::string DecodeBytes(std::span<const std::int32_t> ids);

// Makes text safe for a terminal: keeps printable ASCII, newline and tab, and shows every other
// byte as \xHH, because a model can generate control sequences.
std::string Printable(absl::string_view bytes);

}  // namespace switchyard::qwen3_moe
