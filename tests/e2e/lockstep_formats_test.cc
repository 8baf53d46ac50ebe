// Layers whose rows travel in formats of their own, in lockstep: each step has that of its layer.
#include <memory>
#include <utility>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/format/wire_format.h"
#include "tests/e2e/golden_step.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/served_golden.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::GoldenStep;
using testing::RunGoldenStep;
using testing::ServedGolden;

constexpr std::int32_t kTokens = 19;
constexpr double kRoundingMax = 1e-4;
constexpr double kFp8Max = 9e-4;  // R56, for rows in FP8

class LockstepFormatsTest : public testing::Processes {
 protected:
  void Serve(const ServedGolden& model, std::int32_t workers, LocalDeploymentOptions options = {}) {
    options.checkpoint = model.path();
    Deploy(workers, std::move(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, Connect("auto"));
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(
      DispatchMode mode, BindingChoice binding,
      DispatchDtype combine_dtype = DispatchDtype::kBf16) {
    OpenSessionRequest order;
    order.phase = Phase::kMixed;
    order.mode = mode;
    order.max_tokens = 64;
    order.binding = binding;
    order.combine_dtype = combine_dtype;
    return client_->OpenWhenReady(order, testing::kReadyTimeout);
  }
  static WireFormat FormatOf(MoeSession& session, LayerId layer) {
    const auto grant = session.Grant();
    const DispatchConfig* const config =
        grant.ok() ? grant->plan.FindConfig(layer, Phase::kMixed, Edge{}) : nullptr;
    EXPECT_NE(config, nullptr);
    return config == nullptr ? WireFormat{} : config->format();
  }

  std::unique_ptr<Client> client_;
};

// A draft layer without a quant config, beside layers in FP8.
TEST_F(LockstepFormatsTest, ADraftInBf16BesideLayersInFp8) {
  const ServedGolden model("fp8_block", /*draft=*/true);
  Serve(model, 1);
  for (const DispatchMode mode : {DispatchMode::kLowLatency, DispatchMode::kNormal}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto p2p, Open(mode, BindingChoice::kP2p));
    SY_ASSERT_OK_AND_ASSIGN(const auto group, Open(mode, BindingChoice::kCollective));
    EXPECT_EQ(FormatOf(*group, LayerId{0}), kFp8Format);
    EXPECT_EQ(FormatOf(*group, LayerId{1}), kBf16Format);
    for (const std::int32_t layer : {0, 1, 1, 0}) {
      GoldenStep direct(model, kTokens, 5);
      SY_ASSERT_OK(RunGoldenStep(*p2p, direct, LayerId{layer}));
      GoldenStep step(model, kTokens, 5);
      SY_ASSERT_OK(RunGoldenStep(*group, step, LayerId{layer}));
      if (mode == DispatchMode::kLowLatency) {
        EXPECT_EQ(step.y, direct.y) << "layer " << layer;
      }
      // In normal mode each expert's row is rounded before the worker's sum, which p2p does not do.
      EXPECT_LE(testing::CalcDiff(step.y, direct.y), kRoundingMax);
    }
  }
}

// Scales are relative to a number of the layer, which all ranks take from the plan.
TEST_F(LockstepFormatsTest, Nvfp4WithTheGlobalScaleOfItsLayer) {
  const ServedGolden model("nvfp4_modelopt_flat");
  LocalDeploymentOptions options;
  options.mode = "low_latency";
  options.dispatcher_output_dtype = "nvfp4";
  Serve(model, 2, std::move(options));
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, Open(DispatchMode::kLowLatency, BindingChoice::kP2p));
  SY_ASSERT_OK_AND_ASSIGN(const auto group,
                          Open(DispatchMode::kLowLatency, BindingChoice::kCollective));
  ASSERT_EQ(FormatOf(*group, LayerId{0}), kNvfp4Format);
  for (int number = 0; number < 3; ++number) {
    GoldenStep direct(model, kTokens, 5);
    SY_ASSERT_OK(RunGoldenStep(*p2p, direct, LayerId{0}));
    GoldenStep step(model, kTokens, 5);
    SY_ASSERT_OK(RunGoldenStep(*group, step, LayerId{0}));
    EXPECT_EQ(step.y, direct.y);
  }
}

// A session asks for it: half of the bytes on the way back, and FP8's rounding on top.
TEST_F(LockstepFormatsTest, SumsInFp8) {
  const ServedGolden model("fp8_block_compressed");
  Serve(model, 2);
  constexpr auto kFp8 = DispatchDtype::kFp8;
  SY_ASSERT_OK_AND_ASSIGN(const auto exact,
                          Open(DispatchMode::kNormal, BindingChoice::kCollective));
  SY_ASSERT_OK_AND_ASSIGN(const auto coarse,
                          Open(DispatchMode::kNormal, BindingChoice::kCollective, kFp8));
  for (int number = 0; number < 3; ++number) {
    GoldenStep direct(model, kTokens, 5);
    SY_ASSERT_OK(RunGoldenStep(*exact, direct, LayerId{0}));
    GoldenStep step(model, kTokens, 5);
    SY_ASSERT_OK(RunGoldenStep(*coarse, step, LayerId{0}));
    EXPECT_NE(step.y, direct.y);
    EXPECT_LE(testing::CalcDiff(step.y, direct.y), kFp8Max);
  }
  for (const auto& [mode, binding] : {std::pair(DispatchMode::kNormal, BindingChoice::kP2p),
                                      std::pair(DispatchMode::kNormal, BindingChoice::kAuto)}) {
    const auto refused = Open(mode, binding, kFp8);
    EXPECT_THAT(refused.status(),
                testing::FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  }
  EXPECT_THAT(Open(DispatchMode::kLowLatency, BindingChoice::kCollective, kFp8).status(),
              testing::FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
