// The option that requests a wire dtype, and its spellings.
//
// Its name is dispatcher_output_dtype, with dashes on command lines. The spelling that SGLang 22822
// was merged with still works, with a warning; those of its drafts were never released and are
// refused with the right name. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/format/dtype.h"

namespace switchyard {

inline constexpr char kDtypeOption[] = "dispatcher_output_dtype";
inline constexpr char kDtypeFlag[] = "--dispatcher-output-dtype";
inline constexpr char kDeprecatedDtypeFlag[] = "--deepep-dispatcher-output-dtype";
// Environment variables that stood in the option's place; see DeprecatedFlags in dtype_order.h.
inline constexpr char kBf16Variable[] = "SGLANG_DEEPEP_BF16_DISPATCH";
inline constexpr char kNpuInt8Variable[] = "DEEP_NORMAL_MODE_USE_INT8_QUANT";

// The requested wire dtype. Wire values: append only, in step with DispatchDtype.
enum class DtypeChoice : std::uint8_t { kAuto = 0, kBf16 = 1, kFp8 = 2, kInt8 = 3, kNvfp4 = 4 };
absl::string_view DtypeChoiceName(DtypeChoice choice);         // "auto", "bf16", ...
std::optional<DispatchDtype> ChosenDtype(DtypeChoice choice);  // nullopt: auto

// "auto" (nullopt), "bf16", "fp8", "int8" or "nvfp4". `where` names the key or option in the error.
// Errors: kInvalidArgument (BAD_CONFIG) for any other text, with the nearest value (R10).
absl::StatusOr<std::optional<DispatchDtype>> ParseDtypeChoice(absl::string_view text,
                                                              absl::string_view where);

// kUnrelated: another option altogether.
enum class OptionSpelling : std::uint8_t { kCurrent = 0, kDeprecated = 1, kUnrelated = 2 };
// How `name`, a key or a command line option with its dashes, relates to the option.
// Errors: kInvalidArgument (BAD_CONFIG) for a misspelled one, with the right name (R11).
absl::StatusOr<OptionSpelling> SpellingOfDtypeOption(absl::string_view name);

// The warning, given once, for a deprecated spelling.
std::string DeprecatedSpellingText(absl::string_view name);
// The warning, given once, while one of the variables is set.
std::string DeprecatedBf16VariableText();
std::string DeprecatedNpuInt8VariableText();

}  // namespace switchyard
