// Adds the output of the shared expert, which every token passes, to the sum of the routed experts.
//
// It runs at the source, after combine, once: y is written, never added to, so that repeating a
// step gives the same y. Source: SGLang's Qwen2MoE and DeepSeek-V2 models. Pure;
// thread-safe; one pass over the rows, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace switchyard {

// Rows are tokens, FP32.
struct SharedExpertInputs {
  std::int32_t hidden = 0;
  std::span<const float> routed;  // [T, hidden]: sum of the routed experts, weighted
  float routed_scaling = 1;       // OutputScaling of the router's rule
  std::span<const float> shared;  // [T, hidden]: output of the shared expert
  std::span<const float> gate;    // [T] logits of the shared expert's gate (Qwen); empty: no gate
};

// y [T, hidden] = routed_scaling * routed + sigmoid(gate) * shared; without a gate its factor is 1.
// Errors, before anything is written: kInvalidArgument (BAD_SHAPE) when sizes do not fit together
// or y overlaps an input.
absl::Status AddSharedExpert(const SharedExpertInputs& inputs, std::span<float> y);

}  // namespace switchyard
