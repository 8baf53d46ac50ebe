// Edges of one layer: a source that talks to workers of two kinds in the same step.
#include "worker/source/p2p/bound_plan.h"

#include <cstring>
#include <map>
#include <vector>

#include "gmock/gmock.h"

#include "core/format/wire_format.h"
#include "tests/testing/fake_device.h"
#include "tests/worker/source/p2p/runner_fixture.h"
#include "worker/device/host/host_codec.h"
#include "worker/routing/request_codec.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FakeDevice;
using testing::kHidden;
using testing::MakeTestPlan;
using testing::ReadFrame;
using testing::ReadRequest;
using testing::RunnerFixture;
using testing::ScriptedLink;
using testing::TestBatch;

const std::map<DeviceKind, DispatchDtype> kWireOf = {{DeviceKind::kCpu, DispatchDtype::kFp8},
                                                     {DeviceKind::kAscend, DispatchDtype::kInt8}};

// Worker "a" is a CPU that takes FP8 rows, "b" an NPU that takes INT8 rows.
Plan TwoKinds(DispatchMode mode) {
  Plan plan = MakeTestPlan(1, {"a", "b"}, mode);
  plan.workers[1].device = DeviceKind::kAscend;
  const std::vector<DispatchConfig> all = plan.configs;
  plan.configs.clear();
  for (const DispatchConfig& config : all) {
    for (const auto& [kind, dtype] : kWireOf) {
      plan.configs.push_back(config);
      plan.configs.back().edge.worker = kind;
      plan.configs.back().wire_dtype = dtype;
    }
  }
  return plan;
}

class BoundPlanTest : public RunnerFixture {
 protected:
  // The frame's rows and scales are what the codec of `dtype` makes of the tokens it names.
  void ExpectRows(const std::vector<std::byte>& frame, const RequestGeometry& geometry,
                  const std::vector<std::byte>& metadata, const TestBatch& batch) {
    SY_ASSERT_OK_AND_ASSIGN(const auto codec, device_->MakeCodec({.format = geometry.format}));
    const FrameLayout layout = LayoutOfRequest(geometry);
    EXPECT_EQ(frame.size(), layout.frame_bytes);
    std::vector<std::uint32_t> words(metadata.size() / sizeof(std::uint32_t));
    std::memcpy(words.data(), metadata.data(), metadata.size());
    RequestView view;
    SY_ASSERT_OK(ParseRequestMetadata(words, geometry, &view));
    std::vector<const Bf16*> rows;
    for (std::uint32_t r = 0; r < view.rows(); ++r) {
      rows.push_back(batch.x.data() + std::size_t{view.token(r)} * kHidden);
    }
    const RowBytes row = RowBytesOf(codec->format(), kHidden);
    std::vector<std::byte> data(rows.size() * static_cast<std::size_t>(row.data));
    std::vector<std::byte> scales(rows.size() * static_cast<std::size_t>(row.scales));
    AsHostCodec(*codec).Encode(rows, kHidden, data.data(), scales.data());
    EXPECT_EQ(std::memcmp(frame.data() + layout.rows_begin, data.data(), data.size()), 0);
    EXPECT_EQ(std::memcmp(frame.data() + layout.scales_begin, scales.data(), scales.size()), 0);
  }
};

// R127: each worker gets rows in the format of its edge, and no byte more.
TEST_F(BoundPlanTest, EachEdgeOfAStepHasItsOwnWireDtype) {
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    const Plan plan = TwoKinds(mode);
    OpenReady(plan);
    const TestBatch batch(9, 5);

    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));

    for (std::int32_t w = 0; w < 2; ++w) {
      SCOPED_TRACE(::testing::Message() << DispatchModeName(mode) << " worker " << w);
      const ScriptedLink* link = LinkOf(plan, static_cast<std::size_t>(w));
      ASSERT_FALSE(link->sent.empty());
      const PlacementMap placement(plan.layers[0], testing::kExperts, 2);
      for (const ScriptedLink::Sent& sent : link->sent) {
        const ReadRequest request = ReadFrame(sent.frame, plan, w);
        EXPECT_EQ(request.header.format.dtype,
                  kWireOf.at(plan.workers[static_cast<std::size_t>(w)].device));
        ExpectRows(
            sent.frame,
            {.mode = mode,
             .format = request.header.format,
             .rows = request.header.rows,
             .hidden = kHidden,
             .top_k = testing::kTopK,
             .local_slots = static_cast<std::int32_t>(placement.OnWorker(WorkerOrdinal{w}).size())},
            request.metadata, batch);
      }
    }
    // Given up: the workers of this test answer BF16 rows alone.
    EXPECT_THAT(Take(ticket), FailsWith(absl::StatusCode::kCancelled, Reason::kUnspecified));
  }
}

TEST_F(BoundPlanTest, EdgesOfOneStepHaveOneMode) {
  Plan plan = TwoKinds(DispatchMode::kNormal);
  plan.configs[1].mode = DispatchMode::kLowLatency;

  EXPECT_THAT(MakeBoundPlan({plan, HashOf(plan)}, {}, *device_),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  OpenSessionRequest one_mode;
  one_mode.mode = DispatchMode::kNormal;
  SY_EXPECT_OK(MakeBoundPlan({plan, HashOf(plan)}, one_mode, *device_));
}

TEST_F(BoundPlanTest, TakesTheLeastOfTheEdgesBounds) {
  Plan plan = TwoKinds(DispatchMode::kLowLatency);
  plan.configs[0].max_tokens_per_step = 0;
  plan.configs[1].max_tokens_per_step = 48;
  plan.configs[2].max_tokens_per_step = 32;

  SY_ASSERT_OK_AND_ASSIGN(const auto binding, MakeBoundPlan({plan, HashOf(plan)}, {}, *device_));

  EXPECT_EQ(binding->FindLayer(LayerId{0})->max_tokens_per_step, 48);
  EXPECT_EQ(binding->FindLayer(LayerId{1})->max_tokens_per_step, 32);
}

TEST_F(BoundPlanTest, RefusesAWireDtypeThatTheSourceCannotWrite) {
  const Plan plan = TwoKinds(DispatchMode::kNormal);
  const FakeDevice device;

  EXPECT_THAT(MakeBoundPlan({plan, HashOf(plan)}, {}, device),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported));
}

}  // namespace
}  // namespace switchyard
