#include "worker/source/p2p/slot_bytes.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/worker/source/p2p/runner_fixture.h"
#include "worker/expert/attach_limits.h"

namespace switchyard {
namespace {

using testing::MakeTestPlan;

constexpr auto kNormal = DispatchMode::kNormal;
constexpr auto kLowLatency = DispatchMode::kLowLatency;
constexpr WorkerOrdinal kFirst{0};

// Two layers and two workers of a model of that width, 16 experts, top-8.
Plan PlanOf(std::int32_t hidden, DispatchMode mode, const std::vector<WireFormat>& layers) {
  Plan plan = MakeTestPlan(1, {"a", "b"}, mode);
  plan.shape = {.hidden = hidden, .intermediate = 16, .experts = 16, .top_k = 8};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    plan.configs[i].wire_dtype = layers[i].dtype;
    plan.configs[i].wire_scale = layers[i].scale;
  }
  return plan;
}

class SlotBytesTest : public ::testing::Test {
 protected:
  StagingBytes SlotsOf(const Plan& plan, std::uint32_t rows, WorkerOrdinal worker = kFirst) {
    auto binding = MakeBoundPlan({plan, HashOf(plan)}, {}, *device_);
    SY_EXPECT_OK(binding.status());
    return binding.ok() ? SlotBytesOf(**binding, worker, rows) : StagingBytes{};
  }
  std::unique_ptr<DeviceBackend> device_ = *CpuBackend::Create({.kernel_family = "portable_fp32"});
};

std::int64_t Padded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// R25, R33, R34. A header of 64 bytes; metadata: normal a word and top-k pairs of words a row,
// low_latency a word for each expert and two for each row; scales; rows. Each part is padded.
TEST_F(SlotBytesTest, GoldenTableOfFormatsWidthsAndModes) {
  struct Row {
    WireFormat format;
    std::int32_t hidden;
    std::int64_t data;    // of a row, in bytes
    std::int64_t scales;  // of a row, in bytes
  };
  for (const Row& row : std::vector<Row>{{kBf16Format, 7168, 14336, 0},
                                         {kFp8Format, 7168, 7168, 224},
                                         {kFp8Ue8m0Format, 7168, 7168, 56},
                                         {kInt8Format, 7168, 7168, 4},
                                         {kNvfp4Format, 7168, 3584, 448},
                                         {kBf16Format, 2048, 4096, 0},
                                         {kFp8Format, 2048, 2048, 64},
                                         {kInt8Format, 2048, 2048, 4},
                                         {kNvfp4Format, 2048, 1024, 128}}) {
    for (const DispatchMode mode : {kNormal, kLowLatency}) {
      const std::int64_t rows = 100;
      const std::int64_t metadata = mode == kNormal ? rows * 4 * (1 + 2 * 8) : 4 * (16 + 2 * rows);
      const std::int64_t request =
          64 + Padded(metadata) + Padded(rows * row.scales) + Padded(rows * row.data);
      const StagingBytes bytes = SlotsOf(PlanOf(row.hidden, mode, {row.format, row.format}), 100);
      EXPECT_EQ(bytes, (StagingBytes{request, 64 + Padded(rows * row.hidden * 2)}))
          << WireFormatName(row.format) << " " << row.hidden << " " << DispatchModeName(mode);
    }
  }
}

// The widest layer decides, whichever comes first; the answer's size is the same for all.
TEST_F(SlotBytesTest, HoldTheWidestLayer) {
  const StagingBytes fp8 = SlotsOf(PlanOf(2048, kNormal, {kFp8Format, kFp8Format}), 64);
  const StagingBytes bf16 = SlotsOf(PlanOf(2048, kNormal, {kBf16Format, kBf16Format}), 64);
  ASSERT_LT(fp8.dispatch, bf16.dispatch);

  EXPECT_EQ(SlotsOf(PlanOf(2048, kNormal, {kFp8Format, kBf16Format}), 64), bf16);
  EXPECT_EQ(SlotsOf(PlanOf(2048, kNormal, {kBf16Format, kFp8Format}), 64), bf16);
  EXPECT_EQ(fp8.combine, bf16.combine);
}

// One edge's dtype does not size the rings toward workers of another kind.
TEST_F(SlotBytesTest, AreOfTheWorkersOwnEdge) {
  Plan plan = PlanOf(2048, kNormal, {kFp8Format, kFp8Format});
  plan.workers[1].device = DeviceKind::kAscend;
  for (std::size_t i = 0; i < 2; ++i) {
    plan.configs.push_back(plan.configs[i]);
    plan.configs.back().edge.worker = DeviceKind::kAscend;
    plan.configs.back().wire_dtype = DispatchDtype::kInt8;
    plan.configs.back().wire_scale = ScaleKind::kNone;
  }

  EXPECT_EQ(SlotsOf(plan, 64), SlotsOf(PlanOf(2048, kNormal, {kFp8Format, kFp8Format}), 64));
  EXPECT_EQ(SlotsOf(plan, 64, WorkerOrdinal{1}),
            SlotsOf(PlanOf(2048, kNormal, {kInt8Format, kInt8Format}), 64));
}

TEST_F(SlotBytesTest, HaveRoomForAnErrorBothWays) {
  const StagingBytes bytes = SlotsOf(PlanOf(32, kLowLatency, {kNvfp4Format, kNvfp4Format}), 1);
  const auto error = static_cast<std::int64_t>(LayoutOfError(kErrorTextMax).frame_bytes);

  EXPECT_GE(bytes.dispatch, error);
  EXPECT_GE(bytes.combine, error);
}

struct ChunkCase {
  const char* what;
  std::int32_t tokens;  // 0: unbounded
  DispatchMode mode;
  std::size_t workers;
  std::uint32_t rows;
};

TEST(ChunkRowsTest, FollowTheBatchTheWorkersAndTheMemory) {
  for (const ChunkCase& c : std::vector<ChunkCase>{
           {"the largest chunk", 0, kNormal, 1, 1024},
           {"the whole batch on one worker", 100, kNormal, 1, 100},
           {"a row for each pair", 100, kLowLatency, 1, 800},
           {"two workers may get it all", 100, kNormal, 2, 100},
           {"twice the share of uniform routing", 128, kLowLatency, 8, 256},
           {"the same, where a token meets a worker once", 128, kNormal, 32, 64},
           {"not so few that messages cost more than rows", 8, kLowLatency, 16, 16},
           {"but no more than the batch has", 1, kLowLatency, 16, 8},
           // 768 MiB by 256 workers, 8 credits and 14336 bytes.
           {"no more than the memory allows", 0, kNormal, 256, 27},
           {"the same for a large batch", 4096, kLowLatency, 256, 27},
           {"a small batch needs less", 512, kLowLatency, 256, 27},
           {"and this one less still", 256, kLowLatency, 256, 16},
       }) {
    SCOPED_TRACE(c.what);
    SessionGrant grant;
    grant.plan.shape = {.hidden = 7168, .intermediate = 16, .experts = 256, .top_k = 8};
    grant.plan.workers.resize(c.workers);
    grant.request.max_tokens = c.tokens;
    grant.request.mode = c.mode;

    EXPECT_EQ(
        ChunkRowsOf(grant,
                    {.rows_max = 1024, .credits = 8, .ring_bytes_max = std::size_t{768} << 20}),
        c.rows);
  }
}

// Workers refuse slots that the grant has no use for; what sources ask for never is that.
TEST_F(SlotBytesTest, AreNeverMoreThanAWorkerAllowsForTheGrant) {
  for (const NamedWireFormat& named : WireFormats()) {
    for (const DispatchMode mode : {kNormal, kLowLatency}) {
      for (const std::int32_t tokens : {1, 7, 128, 8192}) {
        const Plan plan = PlanOf(2048, mode, {named.format, kBf16Format});
        SessionGrant grant;
        grant.plan = plan;
        grant.request.max_tokens = tokens;
        grant.request.mode = mode;
        const StagingBytes slots = SlotsOf(
            plan,
            ChunkRowsOf(grant, {.rows_max = 1U << 20, .credits = 8, .ring_bytes_max = ~0ULL}));
        AttachRequest request;
        request.mode = mode;
        request.max_tokens = tokens;
        request.reply_ring.slot_bytes = static_cast<std::uint32_t>(slots.combine);
        request.request_slot_bytes = static_cast<std::uint32_t>(slots.dispatch);

        SY_EXPECT_OK(CheckRingsOfGrant(request, plan.shape));
      }
    }
  }
}

TEST(ChunkRowsTest, ATokensRowsTravelTogether) {
  SessionGrant grant;
  grant.plan.shape = {.hidden = 7168, .intermediate = 16, .experts = 64, .top_k = 32};
  grant.plan.workers.resize(256);

  EXPECT_EQ(ChunkRowsOf(grant, {.rows_max = 4, .credits = 8, .ring_bytes_max = 1}), 32U);
}

}  // namespace
}  // namespace switchyard
