#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/error.h"
#include "model/experts/moe_outline.h"
#include "model/model_config.h"
#include "model/safetensors/safetensors_header.h"
#include "model/safetensors/safetensors_index.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/targets.h"

namespace switchyard::fuzz {
namespace {

// Small enough for the fuzzer to reach.
constexpr SafetensorsLimits kLimits{
    .dims_max = 8, .depth_max = 8, .tensors_max = 16, .metadata_entries_max = 16};

}  // namespace

void FuzzSafetensorsHeader(absl::string_view input) {
  if (input.size() < 2) return;
  const auto low = static_cast<std::uint8_t>(input[0]);
  const auto high = static_cast<std::uint8_t>(input[1]);
  const std::uint64_t data_bytes = low + 256U * high;
  const absl::string_view json = input.substr(2);
  const auto header =
      ParseSafetensorsHeader({.json = json, .data_bytes = data_bytes, .file = "f"}, kLimits);
  if (!header.ok()) {
    Check(ReasonOf(header.status()) == Reason::kCheckpoint, "a refusal has its reason");
    Check(MetadataOf(header.status()).contains("kind"), "a refusal has a kind");
    return;
  }
  std::uint64_t end = 8 + json.size();
  for (const TensorInfo& tensor : header->tensors) {
    Check(tensor.file_offset == end, "tensors follow each other");
    Check(tensor.shape.size() <= kLimits.dims_max, "dims stay within their limit");
    std::uint64_t bits = TensorDtypeBits(tensor.dtype);
    for (const std::int64_t dim : tensor.shape) bits *= static_cast<std::uint64_t>(dim);
    Check(bits == tensor.bytes * 8, "shape and dtype give the bytes");
    end += tensor.bytes;
  }
  Check(end == 8 + json.size() + data_bytes, "tensors fill the file");
}

void FuzzSafetensorsIndex(absl::string_view json) {
  const auto index = ParseSafetensorsIndex(json, "i", {.entries_max = 16, .files_max = 4});
  if (!index.ok()) {
    Check(ReasonOf(index.status()) == Reason::kCheckpoint, "a refusal has its reason");
    return;
  }
  Check(std::is_sorted(index->files.begin(), index->files.end()), "files are sorted");
  for (const std::string& file : index->files) {
    Check(file.find('/') == std::string::npos && file != "..", "files stay in the folder");
  }
  for (const SafetensorsIndex::Entry& entry : index->entries) {
    Check(entry.file < index->files.size(), "entries name a file");
  }
}

namespace {

void ReadOutline(absl::string_view json) {
  const auto outline = ParseMoeOutline(json);
  if (!outline.ok()) {
    Check(MetadataOf(outline.status()).contains("key"), "a refusal names its key");
    return;
  }
  Check(outline->shape.experts > 0 && outline->shape.top_k <= outline->shape.experts,
        "top_k is in [0, experts]");
  Check(!outline->moe_layers.empty() && outline->moe_layers.back().value < outline->layers,
        "layers with experts are layers");
}

}  // namespace

void FuzzModelConfig(absl::string_view json) {
  ReadOutline(json);
  const auto config = ParseModelConfig(json);
  if (!config.ok()) {
    const Reason reason = ReasonOf(config.status());
    Check(reason == Reason::kBadConfig || reason == Reason::kUnsupported,
          "a refusal has its reason");
    return;
  }
  const MoeShape shape = ShapeOf(*config);
  Check(shape.hidden > 0 && shape.intermediate > 0, "sizes are above 0");
  Check(shape.top_k > 0 && shape.top_k <= shape.experts, "top_k is in [1, experts]");
  Check(std::int64_t{shape.hidden} * shape.intermediate <= kExpertTensorValuesMax,
        "an expert's tensor can be allocated");
  const std::vector<LayerId> layers = MoeLayersOf(*config);
  Check(!layers.empty() && layers.back().value < config->layers + config->draft_layers,
        "layers with experts are layers or drafts");
  Check(std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end(),
        "layers with experts ascend");
  if (!config->decoder.has_value()) return;
  Check(config->decoder->heads % config->decoder->kv_heads == 0,
        "heads share key-value heads evenly");
  Check(config->decoder->rope_theta > 0 && config->decoder->rms_norm_eps > 0, "reals are above 0");
}

}  // namespace switchyard::fuzz
