#include "quantize/scheme_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/quant_scheme.h"
#include "model/quant/layout/expected_tensors.h"

namespace switchyard {
namespace {

using Form = QuantConfigForm;
using Layout = QuantLayout;

// Nearly all schemes store down like gate and up.
constexpr WriteScheme Alike(const char* name, const char* description, Form form,
                            const ProjectionQuant& quant) {
  return {name, description, form, quant, quant};
}

constexpr ProjectionQuant kFp8Block{.layout = Layout::kFp8Block, .block = {128, 128}};
constexpr ProjectionQuant kFp8BlockUe8m0{
    .layout = Layout::kFp8Block, .block = {128, 128}, .power_of_two_scales = true};
constexpr ProjectionQuant kFp8BlockCompressed{.layout = Layout::kFp8BlockCompressed,
                                              .block = {128, 128}};
constexpr ProjectionQuant kFp8Tensor{.layout = Layout::kFp8Tensor};
constexpr ProjectionQuant kFp8TensorStatic{.layout = Layout::kFp8Tensor, .static_inputs = true};
constexpr ProjectionQuant kFp8Channel{.layout = Layout::kFp8Channel};
constexpr ProjectionQuant kNvfp4ModelOpt{
    .layout = Layout::kNvfp4ModelOpt, .group_size = 16, .static_inputs = true};
constexpr ProjectionQuant kNvfp4Compressed{
    .layout = Layout::kNvfp4Compressed, .group_size = 16, .static_inputs = true};
constexpr ProjectionQuant kW4Afp8{
    .layout = Layout::kW4Afp8, .group_size = 128, .static_inputs = true};
constexpr ProjectionQuant kInt8Channel{.layout = Layout::kInt8Channel};
constexpr ProjectionQuant kModelSlimW8A8{.layout = Layout::kModelSlimW8A8};
constexpr ProjectionQuant kModelSlimW4A8{.layout = Layout::kModelSlimW4A8};
constexpr ProjectionQuant kModelSlimW4A8Group{.layout = Layout::kModelSlimW4A8, .group_size = 128};
constexpr ProjectionQuant kModelSlimW4A4{.layout = Layout::kModelSlimW4A4};
constexpr ProjectionQuant kPackQuantized{.layout = Layout::kPackQuantized, .group_size = 32};
constexpr ProjectionQuant kAwq{.layout = Layout::kAwq, .group_size = 128, .zero_points = true};

constexpr std::array<WriteScheme, 17> kRows{{
    Alike("fp8_block", "FP8, FP32 scale for 128x128 (DeepSeek-V3, Qwen3-FP8)", Form::kFp8,
          kFp8Block),
    Alike("fp8_block_ue8m0", "FP8, power-of-two scale for 128x128 in one byte", Form::kFp8,
          kFp8BlockUe8m0),
    Alike("compressed_tensors_fp8_block", "FP8, FP32 scale for 128x128 in weight_scale",
          Form::kCompressedTensors, kFp8BlockCompressed),
    Alike("fp8_tensor", "FP8, one scale, inputs measured", Form::kFp8, kFp8Tensor),
    Alike("fp8_tensor_static", "FP8, one scale, input scale stored", Form::kFp8, kFp8TensorStatic),
    Alike("compressed_tensors_fp8_channel", "FP8, a scale for each row", Form::kCompressedTensors,
          kFp8Channel),
    Alike("modelopt_nvfp4", "NVFP4, described in config.json", Form::kModelOptFlat, kNvfp4ModelOpt),
    Alike("modelopt_nvfp4_file", "NVFP4, described in hf_quant_config.json", Form::kModelOptFile,
          kNvfp4ModelOpt),
    Alike("compressed_tensors_nvfp4", "NVFP4 with reciprocal global scales",
          Form::kCompressedTensors, kNvfp4Compressed),
    Alike("w4afp8", "INT4 in groups of 128, FP8 inputs", Form::kW4Afp8, kW4Afp8),
    Alike("compressed_tensors_int8", "INT8, a scale for each row", Form::kCompressedTensors,
          kInt8Channel),
    Alike("modelslim_w8a8", "INT8, a scale for each row, for NPUs", Form::kModelSlim,
          kModelSlimW8A8),
    Alike("modelslim_w4a8", "INT4, a scale for each row, INT8 inputs", Form::kModelSlim,
          kModelSlimW4A8),
    Alike("modelslim_w4a8_group", "INT4 in groups of 128, INT8 inputs", Form::kModelSlim,
          kModelSlimW4A8Group),
    {"modelslim_w4a4", "INT4 gate and up, INT8 down", Form::kModelSlim, kModelSlimW4A4,
     kModelSlimW8A8},
    Alike("compressed_tensors_int4", "INT4 in groups of 32, BF16 inputs (Kimi-K2)",
          Form::kCompressedTensors, kPackQuantized),
    Alike("awq", "INT4 in groups of 128 with zero points, BF16 inputs", Form::kAwq, kAwq),
}};

bool Fits(const WriteScheme& scheme, const LayerSizes& sizes) {
  return std::all_of(kAllProjections.begin(), kAllProjections.end(), [&](Projection projection) {
    return ExpectedTensors(scheme.of(projection), projection, sizes.of(projection)).ok();
  });
}

// The row that fits `sizes` and is closest in width of weights; fp8_block fits any size, so there
// always is one.
const WriteScheme& NearestThatFits(const WriteScheme& wanted, const LayerSizes& sizes) {
  const WriteScheme* best = &kRows.front();
  int best_distance = 1'000;
  for (const WriteScheme& row : kRows) {
    // Among equally wide ones prefer a row that needs calibration exactly when the wanted one does.
    const int distance = 10 * std::abs(row.weight_bits() - wanted.weight_bits()) +
                         (row.needs_calibration() == wanted.needs_calibration() ? 0 : 1);
    if (distance >= best_distance || !Fits(row, sizes)) continue;
    best = &row;
    best_distance = distance;
  }
  return *best;
}

bool IsCalled(const WriteScheme& row, absl::string_view layout) {
  return layout.empty() || row.name == layout ||
         QuantLayoutInfoOf(row.gate_up.layout).name == layout;
}

// A prefix is tried last: "fp8" begins several names and is one edit away from none.
absl::Status NoSuch(absl::string_view what, absl::string_view word,
                    const std::vector<std::string>& known) {
  std::string near = NearestWord(word, known);
  if (near.empty()) near = WordBegunBy(word, known);
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrCat("there is no ", what, " \"", word, "\"",
                   near.empty() ? "" : absl::StrCat("; did you mean \"", near, "\"?"),
                   near.empty() ? "; " : " ", "'switchyard-quantize --list' shows all"),
      {{"scheme", std::string(word)}});
}

}  // namespace

int WriteScheme::weight_bits() const { return QuantLayoutInfoOf(gate_up.layout).weight_bits; }

std::span<const WriteScheme> WriteSchemes() { return kRows; }

absl::StatusOr<const WriteScheme*> FindWriteScheme(absl::string_view name,
                                                   absl::string_view layout) {
  std::vector<std::string> names;
  std::vector<std::string> layouts;  // of the rows of that name
  for (const WriteScheme& row : kRows) {
    const char* scheme = QuantSchemeInfoOf(row.scheme()).name;
    names.emplace_back(row.name);
    names.emplace_back(scheme);
    if (name != row.name && name != scheme) continue;
    // A row's name and a scheme's name may be equal; the rows are sorted so that the row comes
    // first.
    if (IsCalled(row, layout)) return &row;
    layouts.emplace_back(row.name);
    layouts.emplace_back(QuantLayoutInfoOf(row.gate_up.layout).name);
  }
  if (layouts.empty()) return NoSuch("scheme", name, names);
  return NoSuch(absl::StrCat("layout of scheme ", name), layout, layouts);
}

absl::Status BadOption(absl::string_view option, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("--", option, ": ", what), {{"key", std::string(option)}});
}

ProjectionSize LayerSizes::of(Projection projection) const {
  if (projection == Projection::kDown) return {hidden, intermediate};
  return {intermediate, hidden};
}

absl::Status CheckSizes(const WriteScheme& scheme, Projection projection, const LayerSizes& sizes,
                        absl::string_view module) {
  const auto expected = ExpectedTensors(scheme.of(projection), projection, sizes.of(projection));
  if (expected.ok()) return absl::OkStatus();
  const std::string tensor = absl::StrCat(module, ".weight");
  absl::Status refused = Annotate(expected.status(), tensor);
  refused = WithMetadata(refused, "scheme", scheme.name);
  refused = WithMetadata(refused, "tensor", tensor);
  return WithMetadata(Annotate(refused, absl::StrCat("scheme ", scheme.name,
                                                     " does not fit (the nearest that "
                                                     "does: --scheme ",
                                                     NearestThatFits(scheme, sizes).name, ")")),
                      "fits", NearestThatFits(scheme, sizes).name);
}

}  // namespace switchyard
