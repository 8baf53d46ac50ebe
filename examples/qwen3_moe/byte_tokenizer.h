// The byte vocabulary: 256 tokens, a token is a byte.
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

// kUnimplemented (UNSUPPORTED) unless a model with `vocab` tokens has bytes for tokens.
absl::Status CheckByteVocabulary(std::size_t vocab);

std::vector<std::int32_t> EncodeBytes(absl::string_view text);
// Each id is in [0, 256).
std::string DecodeBytes(std::span<const std::int32_t> ids);

// For a terminal: printable ASCII, newline and tab as they are, any other byte as \xHH.
std::string Printable(absl::string_view bytes);

}  // namespace switchyard::qwen3_moe
