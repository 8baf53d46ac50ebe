// Random batches for the shipped model, and what they must give.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "client/moe_session.h"
#include "core/rng.h"
#include "model/checkpoint.h"
#include "model/expert_weights.h"
#include "tests/reference/moe_reference.h"

namespace switchyard::testing {

inline constexpr char kShippedModel[] = SWITCHYARD_SOURCE_DIR "/models/sqlite-moe-7m";
inline constexpr std::int32_t kHidden = 256;
inline constexpr std::int32_t kTopK = 4;
inline constexpr std::int32_t kExperts = 16;

// A batch with its memory: distinct ids in each row, y poisoned.
struct Batch {
  Batch(std::int32_t token_count, std::uint64_t seed) : tokens(token_count) {
    SeededRng rng(seed);
    for (std::int32_t t = 0; t < tokens; ++t) {
      for (std::int32_t i = 0; i < kHidden; ++i) {
        x.push_back(FloatToBf16(static_cast<float>(rng.Uniform() * 4 - 2)));
      }
      std::set<std::int32_t> used;
      for (std::int32_t k = 0; k < kTopK; ++k) {
        auto id = static_cast<std::int32_t>(rng.Below(kExperts));
        while (!used.insert(id).second) id = static_cast<std::int32_t>(rng.Below(kExperts));
        ids.push_back(id);
        weights.push_back(static_cast<float>(rng.Uniform()) / 2);
      }
    }
    y.assign(x.size(), std::numeric_limits<float>::quiet_NaN());
  }
  StepRequest Request(std::int32_t layer) {
    return RequestOf({.layer = LayerId{layer},
                      .hidden = kHidden,
                      .top_k = kTopK,
                      .x = x,
                      .ids = ids,
                      .weights = weights,
                      .y = y.data()});
  }
  std::int32_t tokens;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

// Submits and waits.
inline absl::Status RunStep(MoeSession& session, Batch& batch, std::int32_t layer) {
  const auto ticket = session.Submit(batch.Request(layer));
  if (!ticket.ok()) return ticket.status();
  return session.Wait(*ticket);
}

// In double, from the shipped checkpoint.
inline std::vector<double> ReferenceOf(const Batch& batch, std::int32_t layer) {
  const auto checkpoint = Checkpoint::Open(kShippedModel);
  std::vector<ExpertWeights> experts;
  for (std::int32_t e = 0; e < kExperts; ++e) {
    experts.push_back(*LoadExpert(**checkpoint, LayerId{layer}, ExpertId{e}));
  }
  std::vector<ExpertWeightsView> views;
  for (const ExpertWeights& expert : experts) {
    views.push_back({expert.gate, expert.up, expert.down});
  }
  return ReferenceMoeLayer(ShapeOf((*checkpoint)->config()), views,
                           {batch.x, batch.ids, batch.weights});
}

}  // namespace switchyard::testing
