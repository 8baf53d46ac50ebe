#include "core/resolve/layer_quant_config.h"

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/suggest.h"
#include "core/resolve/dtype_option.h"

namespace switchyard {
namespace {

constexpr char kGlobalScale[] = "input_global_scale";
constexpr char kBf16Dispatch[] = "bf16_dispatch";

absl::Status Bad(const std::string& key, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("quant config key ", key, ": ", what), {{"field", key}});
}

bool IsNull(const ConfigEntry& entry) {
  return std::holds_alternative<std::monostate>(entry.value);
}

absl::Status ReadGlobalScale(const ConfigEntry& entry, LayerQuantConfig* config) {
  // null counts as absent, but is remembered: the trace says why rule global_scale did not apply.
  config->global_scale_is_null = IsNull(entry);
  if (IsNull(entry)) return absl::OkStatus();
  const double* value = std::get_if<double>(&entry.value);
  // The check is on the FP32 value: a double may be finite and its FP32 rounding not.
  const auto scale = static_cast<float>(value == nullptr ? 0 : *value);
  if (!std::isfinite(scale) || scale <= 0) {
    return Bad(entry.key, "must be null or a finite number above zero");
  }
  config->input_global_scale = scale;
  return absl::OkStatus();
}

absl::Status ReadDtype(const ConfigEntry& entry, LayerQuantConfig* config) {
  if (IsNull(entry)) return absl::OkStatus();
  const std::string* text = std::get_if<std::string>(&entry.value);
  if (text == nullptr) return Bad(entry.key, "must be null or one of bf16, fp8, int8, nvfp4");
  SY_ASSIGN_OR_RETURN(config->dispatcher_output_dtype,
                      ParseDtypeChoice(*text, absl::StrCat("quant config key ", entry.key)));
  if (!config->dispatcher_output_dtype) {
    return Bad(entry.key, "\"auto\" has no effect here; leave the key out");
  }
  return absl::OkStatus();
}

absl::Status ReadBf16Dispatch(const ConfigEntry& entry, LayerQuantConfig* config) {
  const bool* value = std::get_if<bool>(&entry.value);
  if (value == nullptr) return Bad(entry.key, "must be true or false");
  config->bf16_dispatch = *value;
  return absl::OkStatus();
}

// An unknown key is refused, never ignored: a misspelled dtype would silently have no effect.
absl::Status UnknownKey(const std::string& key) {
  const absl::StatusOr<OptionSpelling> spelling = SpellingOfDtypeOption(key);
  std::string near = NearestWord(key, {kGlobalScale, kDtypeOption, kBf16Dispatch});
  if (!spelling.ok() || *spelling == OptionSpelling::kDeprecated) near = kDtypeOption;
  return Bad(key, absl::StrCat("no such key", near.empty() ? "" : "; did you mean ", near,
                               near.empty() ? "" : "?", " (known: ", kGlobalScale, ", ",
                               kDtypeOption, ", ", kBf16Dispatch, ")"));
}

}  // namespace

absl::StatusOr<LayerQuantConfig> ParseLayerQuantConfig(std::span<const ConfigEntry> entries) {
  LayerQuantConfig config;
  std::set<std::string> seen;
  for (const ConfigEntry& entry : entries) {
    if (!seen.insert(entry.key).second) return Bad(entry.key, "is given twice");
    if (entry.key == kGlobalScale) {
      SY_RETURN_IF_ERROR(ReadGlobalScale(entry, &config));
    } else if (entry.key == kDtypeOption) {
      SY_RETURN_IF_ERROR(ReadDtype(entry, &config));
    } else if (entry.key == kBf16Dispatch) {
      SY_RETURN_IF_ERROR(ReadBf16Dispatch(entry, &config));
    } else {
      return UnknownKey(entry.key);
    }
  }
  if (config.bf16_dispatch &&
      config.dispatcher_output_dtype.value_or(DispatchDtype::kBf16) != DispatchDtype::kBf16) {
    return Bad(kBf16Dispatch, absl::StrCat("true contradicts ", kDtypeOption, " ",
                                           DispatchDtypeName(*config.dispatcher_output_dtype),
                                           "; leave one of them out"));
  }
  return config;
}

}  // namespace switchyard
