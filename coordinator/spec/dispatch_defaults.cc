#include "coordinator/spec/dispatch_defaults.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// The words that SGLang's EnvBool takes, so that a variable means the same here as there.
constexpr std::array<const char*, 4> kYes{"1", "true", "yes", "y"};
constexpr std::array<const char*, 5> kNo{"0", "false", "no", "n", ""};

absl::Status Bad(absl::string_view field, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat(field, ": ", what), {{"field", std::string(field)}});
}

// Where the flag is set; empty: it is not. An unknown word is an error and not "no": ignored
// silently, the flag would change which rows are quantized.
absl::StatusOr<std::string> ReadFlag(EnvironmentLookup environment, const char* name) {
  const std::optional<std::string> value = environment(name);
  if (!value) return std::string();
  // Blanks and case are ignored, as they come from shell scripts and manifests.
  const std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(*value));
  if (std::find(kNo.begin(), kNo.end(), word) != kNo.end()) return std::string();
  if (std::find(kYes.begin(), kYes.end(), word) != kYes.end()) {
    return std::string("the coordinator's environment");
  }
  return Bad(name, absl::StrCat("\"", *value,
                                "\" is neither yes (1, true, yes, y) nor no (0, "
                                "false, no, n); unset it and write ",
                                kDtypeFlag, " instead"));
}

absl::StatusOr<DtypeChoice> ReadChoice(const std::string& text, absl::string_view where) {
  SY_ASSIGN_OR_RETURN(const std::optional<DispatchDtype> dtype, ParseDtypeChoice(text, where));
  if (!dtype) return DtypeChoice::kAuto;
  // DtypeChoice is kAuto followed by the wire dtypes in their order.
  return static_cast<DtypeChoice>(static_cast<int>(*dtype) + 1);
}

}  // namespace

DeprecatedFlags DispatchDefaults::Flags() const {
  DeprecatedFlags flags;
  // An empty text is "not set" in the stored form; the resolver has an optional for that.
  if (!bf16_dispatch_flag.empty()) flags.bf16_dispatch = bf16_dispatch_flag;
  if (!npu_normal_int8_flag.empty()) flags.npu_normal_int8 = npu_normal_int8_flag;
  return flags;
}

absl::StatusOr<ReadDispatchDefaults> MakeDispatchDefaults(EnvironmentLookup environment,
                                                          const DispatchOptions& options) {
  ReadDispatchDefaults read;
  // Two spellings of one option could contradict each other, and neither has precedence.
  if (options.dispatcher_output_dtype && options.deepep_dispatcher_output_dtype) {
    return Bad(kDeprecatedDtypeFlag, absl::StrCat("is the old spelling of ", kDtypeFlag,
                                                  ", which is given too; remove it"));
  }
  if (options.dispatcher_output_dtype) {
    SY_ASSIGN_OR_RETURN(read.defaults.dispatcher_output_dtype,
                        ReadChoice(*options.dispatcher_output_dtype, kDtypeFlag));
  }
  if (options.deepep_dispatcher_output_dtype) {
    SY_ASSIGN_OR_RETURN(read.defaults.dispatcher_output_dtype,
                        ReadChoice(*options.deepep_dispatcher_output_dtype, kDeprecatedDtypeFlag));
    read.warnings.push_back(
        {WarningId::kDeprecatedOption, DeprecatedSpellingText(kDeprecatedDtypeFlag)});
  }
  DispatchDefaults& defaults = read.defaults;
  // The variables are deprecated but not ignored: they change decisions, with a warning, as
  // long as they are set.
  SY_ASSIGN_OR_RETURN(defaults.bf16_dispatch_flag, ReadFlag(environment, kBf16Variable));
  SY_ASSIGN_OR_RETURN(defaults.npu_normal_int8_flag, ReadFlag(environment, kNpuInt8Variable));
  if (!defaults.bf16_dispatch_flag.empty()) {
    read.warnings.push_back({WarningId::kDeprecatedBf16Flag, DeprecatedBf16VariableText()});
  }
  if (!defaults.npu_normal_int8_flag.empty()) {
    read.warnings.push_back({WarningId::kDeprecatedNpuInt8Flag, DeprecatedNpuInt8VariableText()});
  }
  return read;
}

absl::Status CheckOptionName(absl::string_view name) {
  if (!absl::StartsWith(name, "--")) return absl::OkStatus();  // a value
  return SpellingOfDtypeOption(name.substr(0, name.find('='))).status();
}

}  // namespace switchyard
