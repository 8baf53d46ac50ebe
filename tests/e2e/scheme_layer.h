// A layer of a quantized checkpoint as brute force reads it.
#pragma once

#include <vector>

#include "gtest/gtest.h"

#include "model/checkpoint.h"
#include "model/expert_weights.h"
#include "model/quant/layout/dequantize.h"
#include "tests/reference/scheme_reference.h"

namespace switchyard::testing {

inline std::vector<double> DoublesOf(const RawProjection& projection) {
  const std::vector<float> values = Dequantize(projection);
  return {values.begin(), values.end()};
}

// The layer's experts; `wire` is left as BF16.
inline SchemeMoe SchemeLayerOf(const Checkpoint& checkpoint, LayerId layer) {
  SchemeMoe moe;
  const LayerExperts& experts = *checkpoint.FindExperts(layer);
  for (std::int32_t e = 0; e < checkpoint.config().experts; ++e) {
    const auto raw = experts.Load(e);
    EXPECT_TRUE(raw.ok()) << raw.status();
    const auto served = LoadExpert(checkpoint, layer, ExpertId{e});
    EXPECT_TRUE(served.ok()) << served.status();
    moe.experts.push_back({DoublesOf(raw->of(Projection::kGate)),
                           DoublesOf(raw->of(Projection::kUp)),
                           DoublesOf(raw->of(Projection::kDown)), served->inputs, served->middle});
  }
  return moe;
}

}  // namespace switchyard::testing
