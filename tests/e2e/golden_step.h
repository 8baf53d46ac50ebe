// A step of random rows for the checkpoints of served_golden.h.
#pragma once

#include <chrono>
#include <cstdint>

#include "gtest/gtest.h"

#include "tests/e2e/random_step.h"
#include "tests/e2e/served_golden.h"

namespace switchyard::testing {

struct GoldenStep : RandomStep {
  GoldenStep(const ServedGolden& model, std::int32_t token_count, std::uint64_t seed)
      : RandomStep(MoeShape{model.hidden(), 0, model.experts(), model.top_k()}, token_count, seed) {
  }
};

inline absl::Status RunGoldenStep(MoeSession& session, GoldenStep& step, LayerId layer) {
  return RunStep(session, step, layer);
}

// What the one worker of a deployment received for a session.
inline AttachmentCounters CountersOf(MoeSession& session) {
  const auto report = session.Report(std::chrono::seconds(5));
  EXPECT_TRUE(report.ok()) << report.status();
  return report->workers.at(0).attachments.at(0);
}

}  // namespace switchyard::testing
