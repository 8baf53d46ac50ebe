#include "core/resolve/dtype_option.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "core/base/error.h"
#include "core/base/suggest.h"

namespace switchyard {

std::optional<DispatchDtype> ChosenDtype(DtypeChoice choice) {
  if (choice == DtypeChoice::kAuto) return std::nullopt;
  // DtypeChoice is DispatchDtype shifted by one, with auto in front; the header keeps them in step.
  return static_cast<DispatchDtype>(static_cast<int>(choice) - 1);
}

absl::string_view DtypeChoiceName(DtypeChoice choice) {
  const std::optional<DispatchDtype> dtype = ChosenDtype(choice);
  return dtype ? DispatchDtypeName(*dtype) : "auto";
}

absl::StatusOr<std::optional<DispatchDtype>> ParseDtypeChoice(absl::string_view text,
                                                              absl::string_view where) {
  if (text == "auto") return std::optional<DispatchDtype>();
  const std::optional<DispatchDtype> dtype = DispatchDtypeFromName(text);
  if (dtype) return dtype;
  const std::string near = NearestWord(text, {"auto", "bf16", "fp8", "int8", "nvfp4"});
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat(where, ": \"", text, "\" is not a wire dtype",
                                near.empty() ? "" : absl::StrCat("; did you mean \"", near, "\"?"),
                                " (known: auto, bf16, fp8, int8, nvfp4)"),
                   {{"field", std::string(where)}, {"dtype", std::string(text)}});
}

absl::StatusOr<OptionSpelling> SpellingOfDtypeOption(absl::string_view name) {
  absl::string_view stem = name;
  absl::ConsumePrefix(&stem, "--");
  const std::string plain = absl::StrReplaceAll(stem, {{"-", "_"}});
  if (plain == kDtypeOption) return OptionSpelling::kCurrent;
  if (plain == absl::StrCat("deepep_", kDtypeOption)) return OptionSpelling::kDeprecated;
  // The drafts' own spellings, one of them with a typing error; they are refused by name, because
  // some are too far from the right one to be found by distance.
  const bool draft = absl::StrContains(plain, "dispather") ||
                     plain == "deepep_dispatch_output_dtype" || plain == "dispatch_output_dtype";
  const bool near = NearestWord(plain, {kDtypeOption}) == kDtypeOption ||
                    NearestWord(plain, {absl::StrCat("deepep_", kDtypeOption)}) != "";
  if (!draft && !near) return OptionSpelling::kUnrelated;
  const bool flag = absl::StartsWith(name, "--");
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat(name, " is misspelled; write ", flag ? kDtypeFlag : kDtypeOption),
                   {{"field", std::string(name)}});
}

std::string DeprecatedSpellingText(absl::string_view name) {
  return absl::StrCat(name, " is deprecated; write ",
                      absl::StartsWith(name, "--") ? kDtypeFlag : kDtypeOption, " instead");
}

std::string DeprecatedBf16VariableText() {
  return absl::StrCat(kBf16Variable, " is deprecated; write ", kDtypeFlag, " bf16 instead");
}

std::string DeprecatedNpuInt8VariableText() {
  return absl::StrCat(
      kNpuInt8Variable, " is deprecated and decides only where a layer's scheme is ",
      "unknown; write ", kDtypeOption, ": int8 for phase prefill in the deployment file instead");
}

}  // namespace switchyard
