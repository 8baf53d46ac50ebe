// A step of random rows for the checkpoints of served_golden.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "client/moe_session.h"
#include "core/rng.h"
#include "tests/e2e/served_golden.h"
#include "tests/testing/random_tensors.h"

namespace switchyard::testing {

// With its memory; y is poisoned.
struct GoldenStep {
  GoldenStep(const ServedGolden& model, std::int32_t token_count, std::uint64_t seed)
      : tokens(token_count), hidden(model.hidden()), top_k(model.top_k()) {
    SeededRng rng(seed);
    x = GaussianBf16(static_cast<std::size_t>(tokens * hidden), 1.0, rng);
    const auto experts = static_cast<std::uint64_t>(model.experts());
    for (std::int32_t t = 0; t < tokens; ++t) {
      const auto first = static_cast<std::int32_t>(rng.Below(experts));
      for (std::int32_t k = 0; k < top_k; ++k) {
        ids.push_back((first + k) % model.experts());
        weights.push_back(static_cast<float>(rng.Uniform()) + 0.25F);
      }
    }
    Poison();
  }
  void Poison() { y.assign(x.size(), std::numeric_limits<float>::quiet_NaN()); }
  StepRequest Request(LayerId layer) {
    StepRequest request;
    request.layer = layer;
    request.tokens = tokens;
    request.x = x.data();
    request.x_stride = hidden;
    request.ids = ids.data();
    request.ids_stride = top_k;
    request.weights = weights.data();
    request.weights_stride = top_k;
    request.top_k = top_k;
    request.y = y.data();
    request.y_stride = hidden;
    return request;
  }

  std::int32_t tokens;
  std::int32_t hidden;
  std::int32_t top_k;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

inline absl::Status RunGoldenStep(MoeSession& session, GoldenStep& step, LayerId layer) {
  step.Poison();
  const auto ticket = session.Submit(step.Request(layer));
  if (!ticket.ok()) return ticket.status();
  return session.Wait(*ticket);
}

// What the one worker of a deployment received for a session.
inline AttachmentCounters CountersOf(MoeSession& session) {
  const auto report = session.Report(std::chrono::seconds(5));
  EXPECT_TRUE(report.ok()) << report.status();
  return report->workers.at(0).attachments.at(0);
}

}  // namespace switchyard::testing
