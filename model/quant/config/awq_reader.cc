// quant_method "awq": AutoAWQ's "gemm" layout, INT4 with zero points.
//
//   {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm",
//    "modules_to_not_convert": ["gate"]}
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/quant/config/quant_families.h"

namespace switchyard::internal {
namespace {

constexpr std::array kKeys{"quant_method",   "bits",           "w_bit",   "group_size",
                           "q_group_size",   "zero_point",     "version", "modules_to_not_convert",
                           "ignored_layers", "backend",        "do_fuse", "fuse_max_seq_len",
                           "exllama_config", "modules_to_fuse"};

// One number under either of two spellings (AutoAWQ's own and transformers'), which must not
// disagree.
absl::StatusOr<std::int32_t> EitherInt(const JsonView& view, const char* key, const char* older) {
  SY_ASSIGN_OR_RETURN(const std::optional<std::int32_t> value, view.Int(key, -1, 65'536));
  SY_ASSIGN_OR_RETURN(const std::optional<std::int32_t> other, view.Int(older, -1, 65'536));
  if (value.has_value() && other.has_value() && *value != *other) {
    return BadConfig(view.PathOf(older),
                     absl::StrCat("it contradicts '", key,
                                  "', which has the same meaning; remove the wrong one"));
  }
  if (!value.has_value() && !other.has_value()) {
    return BadConfig(view.PathOf(key), "it is missing");
  }
  return value.has_value() ? *value : *other;
}

absl::Status CheckVersion(const JsonView& view) {
  std::string version = "gemm";
  SY_RETURN_IF_ERROR(Optional(view.String("version"), version));
  if (absl::AsciiStrToLower(version) == "gemm") return absl::OkStatus();
  return UnsupportedConfig(
      view.PathOf("version"),
      absl::StrCat("the layout '", PrintableName(version), "' is not served, only 'gemm'"));
}

absl::Status ReadGroups(const JsonView& view, ProjectionQuant& quant) {
  SY_ASSIGN_OR_RETURN(const std::int32_t bits, EitherInt(view, "bits", "w_bit"));
  if (bits != 4) {
    return UnsupportedConfig(view.PathOf("bits"),
                             absl::StrCat(bits, " bits are not served, only 4"));
  }
  SY_ASSIGN_OR_RETURN(const std::int32_t group, EitherInt(view, "group_size", "q_group_size"));
  if (group == 0) return BadConfig(view.PathOf("group_size"), "it must be above 0, or -1 for K");
  quant.group_size = group < 0 ? 0 : group;
  SY_RETURN_IF_ERROR(
      Require(view.Bool("zero_point"), view.PathOf("zero_point"), quant.zero_points));
  if (quant.zero_points) return absl::OkStatus();
  return UnsupportedConfig(view.PathOf("zero_point"), "only weights with zero points are served");
}

}  // namespace

absl::Status ReadAwq(const QuantSources& sources, QuantConfig& config) {
  const JsonView& view = *sources.quantization_config;
  SY_RETURN_IF_ERROR(view.OnlyKeys(kKeys, DispatchKeyNames()));
  SY_RETURN_IF_ERROR(CheckVersion(view));
  ProjectionQuant quant{.layout = QuantLayout::kAwq};
  SY_RETURN_IF_ERROR(ReadGroups(view, quant));
  SY_RETURN_IF_ERROR(ReadModulesToNotConvert(view, config));
  AddEveryLinear(view, quant, config);
  return ReadDispatchKeys(view, config.dispatch);
}

}  // namespace switchyard::internal
