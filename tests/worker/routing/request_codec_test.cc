#include "worker/routing/request_codec.h"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_routing.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::RandomPlacement;
using testing::RandomRouting;
using testing::Routing;

constexpr std::uint32_t kGarbage = 0xdeadbeefU;

// One worker's rows of a planned step, with everything that a source knows.
struct Planned {
  PlacementMap map;
  Routing routing;
  DispatchPlan plan;

  [[nodiscard]] RequestContent Content(WorkerOrdinal worker) const {
    const WorkerRows& rows = plan.workers[static_cast<std::size_t>(worker.value)];
    return {.rows = rows.rows,
            .slot_counts = rows.slot_counts,
            .worker = worker,
            .top_k = plan.top_k,
            .slot_of_pair = plan.slot_of_pair,
            .worker_of_pair = plan.worker_of_pair,
            .weights = routing.weights};
  }
  [[nodiscard]] RequestGeometry Geometry(WorkerOrdinal worker) const {
    return {.mode = plan.mode,
            .rows = static_cast<std::uint32_t>(
                plan.workers[static_cast<std::size_t>(worker.value)].rows.size()),
            .hidden = 8,
            .top_k = plan.top_k,
            .local_slots = static_cast<std::int32_t>(map.OnWorker(worker).size())};
  }
};

Planned MakePlanned(std::uint64_t seed, DispatchMode mode, std::int32_t top_k = 4) {
  SeededRng rng(seed);
  Planned planned;
  planned.map = PlacementMap(RandomPlacement(rng, 20, 3, 0.3), 20, 3);
  planned.routing = RandomRouting(rng, {31, top_k, 20}, 0.5, 0.1);
  SY_EXPECT_OK(BuildDispatchPlan(planned.routing.batch(), planned.map, mode, &planned.plan));
  return planned;
}

std::size_t Words(const RequestGeometry& geometry) {
  return geometry.mode == DispatchMode::kNormal
             ? geometry.rows * (1 + 2 * static_cast<std::size_t>(geometry.top_k))
             : static_cast<std::size_t>(geometry.local_slots) + 2 * std::size_t{geometry.rows};
}

std::vector<std::uint32_t> Written(const Planned& planned, WorkerOrdinal worker) {
  std::vector<std::uint32_t> words(Words(planned.Geometry(worker)), kGarbage);
  WriteRequestMetadata(planned.plan.mode, planned.Content(worker),
                       std::as_writable_bytes(std::span(words)));
  return words;
}

// R48: local slots and weights of the worker's own experts, -1 and 0 for all others.
TEST(RequestCodecTest, NormalCarriesOnlyTheWorkersOwnExperts) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Planned planned = MakePlanned(seed, DispatchMode::kNormal);
    for (std::int32_t w = 0; w < 3; ++w) {
      const WorkerRows& rows = planned.plan.workers[static_cast<std::size_t>(w)];
      if (rows.rows.empty()) continue;
      const std::vector<std::uint32_t> words = Written(planned, WorkerOrdinal{w});
      RequestView view;

      SY_ASSERT_OK(ParseRequestMetadata(words, planned.Geometry(WorkerOrdinal{w}), &view));

      ASSERT_EQ(view.rows(), rows.rows.size());
      for (std::uint32_t row = 0; row < view.rows(); ++row) {
        EXPECT_EQ(view.token(row), rows.rows[row].token);
        for (std::int32_t k = 0; k < 4; ++k) {
          const std::size_t pair = view.token(row) * 4 + static_cast<std::size_t>(k);
          const bool here = planned.plan.worker_of_pair[pair] == w;
          EXPECT_EQ(view.slot(row, k), here ? planned.plan.slot_of_pair[pair] : -1);
          EXPECT_EQ(view.weight(row, k), here ? planned.routing.weights[pair] : 0.0F);
        }
      }
    }
  }
}

TEST(RequestCodecTest, LowLatencyCarriesCountsTokensAndK) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Planned planned = MakePlanned(seed, DispatchMode::kLowLatency);
    for (std::int32_t w = 0; w < 3; ++w) {
      const WorkerRows& rows = planned.plan.workers[static_cast<std::size_t>(w)];
      if (rows.rows.empty()) continue;
      const std::vector<std::uint32_t> words = Written(planned, WorkerOrdinal{w});
      RequestView view;

      SY_ASSERT_OK(ParseRequestMetadata(words, planned.Geometry(WorkerOrdinal{w}), &view));

      EXPECT_EQ(std::vector(view.slot_counts().begin(), view.slot_counts().end()),
                rows.slot_counts);
      for (std::uint32_t row = 0; row < view.rows(); ++row) {
        EXPECT_EQ(view.token(row), rows.rows[row].token);
        EXPECT_EQ(view.k(row), rows.rows[row].k);
      }
    }
  }
}

TEST(RequestCodecTest, TakesUnalignedMemoryToWriteTo) {
  const Planned planned = MakePlanned(4, DispatchMode::kNormal);
  const std::vector<std::uint32_t> aligned = Written(planned, WorkerOrdinal{1});
  std::vector<std::byte> memory(aligned.size() * 4 + 1, std::byte{0xa5});

  WriteRequestMetadata(DispatchMode::kNormal, planned.Content(WorkerOrdinal{1}),
                       std::span(memory).subspan(1));

  EXPECT_EQ(std::memcmp(memory.data() + 1, aligned.data(), aligned.size() * 4), 0);
}

TEST(RequestCodecTest, KeepsWeightsThatAreNotNumbers) {
  Planned planned = MakePlanned(5, DispatchMode::kNormal);
  for (float& weight : planned.routing.weights) weight = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::uint32_t> words = Written(planned, WorkerOrdinal{0});
  RequestView view;

  SY_ASSERT_OK(ParseRequestMetadata(words, planned.Geometry(WorkerOrdinal{0}), &view));

  for (std::int32_t k = 0; k < view.top_k(); ++k) {
    if (view.slot(0, k) >= 0) {
      EXPECT_NE(view.weight(0, k), view.weight(0, k));
    }
  }
}

TEST(RequestCodecTest, RefusesSlotsOutsideTheWorkerNamingTheRow) {
  const Planned planned = MakePlanned(6, DispatchMode::kNormal);
  const RequestGeometry geometry = planned.Geometry(WorkerOrdinal{1});
  ASSERT_GT(geometry.rows, 2U);
  for (const std::int32_t bad : {-2, geometry.local_slots, INT32_MAX, INT32_MIN}) {
    std::vector<std::uint32_t> words = Written(planned, WorkerOrdinal{1});
    words[2 * 9 + 1 + 2 * 3] = static_cast<std::uint32_t>(bad);  // row 2, k 3
    RequestView view;

    const absl::Status status = ParseRequestMetadata(words, geometry, &view);

    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kFrame));
    EXPECT_EQ(MetadataOf(status).at("row"), "2");
  }
}

TEST(RequestCodecTest, RefusesCountsThatDoNotSumToTheRows) {
  const Planned planned = MakePlanned(7, DispatchMode::kLowLatency);
  const RequestGeometry geometry = planned.Geometry(WorkerOrdinal{2});
  for (const std::uint32_t wrong : {1U, 0xffffffffU, 0x80000000U}) {
    std::vector<std::uint32_t> words = Written(planned, WorkerOrdinal{2});
    words[0] += wrong;  // Also where 32 bits of sum would come out right again.
    RequestView view;

    EXPECT_THAT(ParseRequestMetadata(words, geometry, &view),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kFrame));
  }
  std::vector<std::uint32_t> wraps = Written(planned, WorkerOrdinal{2});
  wraps[0] += 0x80000000U;
  wraps[1] += 0x80000000U;
  RequestView view;
  EXPECT_THAT(ParseRequestMetadata(wraps, geometry, &view),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kFrame));
}

TEST(RequestCodecTest, RefusesKOutsideTheTopKNamingTheRow) {
  const Planned planned = MakePlanned(8, DispatchMode::kLowLatency);
  const RequestGeometry geometry = planned.Geometry(WorkerOrdinal{0});
  std::vector<std::uint32_t> words = Written(planned, WorkerOrdinal{0});
  words[static_cast<std::size_t>(geometry.local_slots) + 1] = 4;  // row 0
  RequestView view;

  const absl::Status status = ParseRequestMetadata(words, geometry, &view);

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kFrame));
  EXPECT_EQ(MetadataOf(status).at("row"), "0");
}

TEST(RequestCodecTest, RefusesNoRowsAndSizesThatDoNotFit) {
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    const Planned planned = MakePlanned(9, mode);
    RequestGeometry geometry = planned.Geometry(WorkerOrdinal{0});
    std::vector<std::uint32_t> words = Written(planned, WorkerOrdinal{0});
    RequestView view;
    words.pop_back();
    EXPECT_THAT(ParseRequestMetadata(words, geometry, &view),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kFrame));
    geometry.rows = 0;
    EXPECT_THAT(ParseRequestMetadata({words.data(), Words(geometry)}, geometry, &view),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kFrame));
  }
}

}  // namespace
}  // namespace switchyard
