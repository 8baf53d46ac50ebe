#include "model/synthetic_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rng.h"
#include "model/experts/moe_outline.h"
#include "model/io/config_reader.h"

namespace switchyard {
namespace {

constexpr char kKeys[] = "seed, hidden, intermediate, experts, top_k, layers";

// A whole number in [1, max].
absl::StatusOr<std::int32_t> ParseCount(absl::string_view key, absl::string_view text,
                                        std::int32_t max) {
  std::int32_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > max) {
    return BadConfig(key, absl::StrCat("it must be a whole number in [1, ", max, "]"));
  }
  return value;
}

absl::Status SetField(absl::string_view key, absl::string_view text, SyntheticModel& model) {
  if (key == "seed") {
    if (absl::SimpleAtoi(text, &model.seed)) return absl::OkStatus();
    return BadConfig(key, "it must be a whole number below 2^64");
  }
  // The bounds of config.json: products of two fit in 64 bits.
  const std::array<std::tuple<const char*, std::int32_t*, std::int32_t>, 5> counts{{
      {"hidden", &model.shape.hidden, 1 << 24},
      {"intermediate", &model.shape.intermediate, 1 << 24},
      {"experts", &model.shape.experts, 65'536},
      {"top_k", &model.shape.top_k, 65'536},
      {"layers", &model.layers, 4'096},
  }};
  for (const auto& [name, field, max] : counts) {
    if (key != name) continue;
    SY_ASSIGN_OR_RETURN(*field, ParseCount(key, text, max));
    return absl::OkStatus();
  }
  return BadConfig(key, absl::StrCat("a synthetic model has no such key; it has ", kKeys));
}

// The generator's key. Two tensors of any models share one only by chance (2^-64).
std::uint64_t TensorSeed(const SyntheticModel& model, LayerId layer, ExpertId expert,
                         Projection projection) {
  std::uint64_t state = SplitMix64(model.seed + kSplitMix64Step);
  for (const std::int32_t part :
       {layer.value, expert.value, static_cast<std::int32_t>(projection)}) {
    state = SplitMix64(state + kSplitMix64Step + static_cast<std::uint64_t>(part));
  }
  return state;
}

// Uniform odd numbers in (-2^16, 2^16) times one scale: one multiplication and one rounding each,
// so the same bits on every machine. Blocks keep generator and conversion in loops of their own,
// which the compiler vectorizes.
void Fill(std::uint64_t seed, std::int32_t fan_in, std::span<Bf16> out) {
  const auto scale = static_cast<float>(std::sqrt(3.0 / fan_in) / 65'536.0);
  std::array<std::uint64_t, 256> bits{};
  while (!out.empty()) {
    for (std::uint64_t& word : bits) {
      seed += kSplitMix64Step;
      word = SplitMix64(seed);
    }
    const auto lanes = std::bit_cast<std::array<std::int16_t, 4 * bits.size()>>(bits);
    const std::size_t count = std::min(lanes.size(), out.size());
    // Plain pointers: the library's bounds checks would prevent vectorization of the loop.
    const std::int16_t* const from = lanes.data();
    Bf16* const to = out.data();
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = FloatToBf16(static_cast<float>(2 * from[i] + 1) * scale);
    }
    out = out.subspan(count);
  }
}

}  // namespace

absl::StatusOr<SyntheticModel> ParseSyntheticModel(absl::string_view text) {
  if (!absl::StartsWith(text, kSyntheticPrefix)) {
    return BadConfig("", absl::StrCat("a synthetic model begins with '", kSyntheticPrefix, "'"));
  }
  SyntheticModel model;
  std::set<std::string> seen;
  for (const absl::string_view field :
       absl::StrSplit(text.substr(sizeof(kSyntheticPrefix) - 1), ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(field, absl::MaxSplits('=', 1));
    if (!seen.insert(std::string(parts.first)).second) {
      return BadConfig(parts.first, "it is given twice");
    }
    SY_RETURN_IF_ERROR(SetField(parts.first, parts.second, model));
  }
  // Sizes have no sensible default; a forgotten one must not become a model of size one.
  for (const char* key : {"hidden", "intermediate", "experts", "top_k"}) {
    if (!seen.contains(key)) return BadConfig(key, "it is missing");
  }
  if (model.shape.top_k > model.shape.experts) {
    return BadConfig("top_k", absl::StrCat(model.shape.top_k, " is more than the ",
                                           model.shape.experts, " experts"));
  }
  if (std::int64_t{model.shape.hidden} * model.shape.intermediate > kExpertTensorValuesMax) {
    return BadConfig(
        "intermediate",
        absl::StrCat(model.shape.intermediate, " times hidden is more than the ",
                     kExpertTensorValuesMax, " values that an expert's tensor may have"));
  }
  return model;
}

std::string ToString(const SyntheticModel& model) {
  return absl::StrCat(kSyntheticPrefix, "seed=", model.seed, ",hidden=", model.shape.hidden,
                      ",intermediate=", model.shape.intermediate, ",experts=", model.shape.experts,
                      ",top_k=", model.shape.top_k, ",layers=", model.layers);
}

ModelConfig ConfigOf(const SyntheticModel& model) {
  ModelConfig config;
  config.model_type = "synthetic";
  config.architecture = "synthetic";
  config.hidden_size = model.shape.hidden;
  config.layers = model.layers;
  config.experts = model.shape.experts;
  config.top_k = model.shape.top_k;
  config.moe_intermediate = model.shape.intermediate;
  config.dtype = "bfloat16";
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    config.moe_layers.push_back(LayerId{layer});
  }
  return config;
}

absl::StatusOr<ExpertWeights> GenerateExpert(const SyntheticModel& model, LayerId layer,
                                             ExpertId expert) {
  SY_RETURN_IF_ERROR(CheckExpertId(ConfigOf(model), layer, expert));
  const auto elements = static_cast<std::size_t>(model.shape.hidden) *
                        static_cast<std::size_t>(model.shape.intermediate);
  ExpertWeights weights;
  for (const Projection projection : kAllProjections) {
    const std::int32_t fan_in =
        projection == Projection::kDown ? model.shape.intermediate : model.shape.hidden;
    std::vector<Bf16>& values = weights.of(projection);
    values.resize(elements);
    Fill(TensorSeed(model, layer, expert, projection), fan_in, values);
  }
  return weights;
}

absl::StatusOr<WeightManifest> BuildManifest(const SyntheticModel& model,
                                             const ManifestProgress& progress) {
  const std::uint64_t total_bytes = ExpertBytes(ConfigOf(model));
  std::uint64_t done_bytes = 0;
  WeightManifest manifest;
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    for (std::int32_t expert = 0; expert < model.shape.experts; ++expert) {
      SY_ASSIGN_OR_RETURN(const ExpertWeights weights,
                          GenerateExpert(model, LayerId{layer}, ExpertId{expert}));
      for (const Projection projection : kAllProjections) {
        const std::span<const std::byte> bytes = weights.bytes(projection);
        manifest.tensors.push_back({LayerId{layer}, ExpertId{expert}, projection, Sha256(bytes)});
        done_bytes += bytes.size();
      }
      if (progress && !progress(done_bytes, total_bytes)) {
        return absl::CancelledError(
            absl::StrCat(ToString(model), ": hashing of the expert weights was stopped"));
      }
    }
  }
  return manifest;
}

}  // namespace switchyard
