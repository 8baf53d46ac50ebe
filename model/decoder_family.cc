#include "model/decoder_family.h"

#include <array>

#include "model/qwen3_moe_config.h"

namespace switchyard {
namespace {

// Deployments need no row here.
constexpr std::array<DecoderFamily, 1> kFamilies{{
    {"qwen3_moe", "Qwen3MoeForCausalLM", &ParseQwen3MoeDecoder},
}};

}  // namespace

std::span<const DecoderFamily> DecoderFamilies() { return kFamilies; }

const DecoderFamily* FindDecoderFamily(absl::string_view model_type) {
  for (const DecoderFamily& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
}

}  // namespace switchyard
