// The history by itself, and what a coordinator takes into it.
#include "coordinator/history/load_history.h"

#include <chrono>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MakeSpec;

constexpr TimePoint kStart{seconds(50)};
const WallTime kWall{milliseconds(1'700'000'000'000)};

LoadShape AShape() { return {.layers = {LayerId{2}, LayerId{5}}, .experts = 3}; }

LoadReport AReport(std::vector<ExpertLoad> experts, const std::string& deployment = "demo") {
  return {.deployment = deployment, .epoch = Epoch{1}, .experts = std::move(experts)};
}

TEST(LoadHistoryTest, AddsUpWorkersWithinAnInterval) {
  LoadHistory history({}, kStart);

  history.Add(AShape(), "w0",
              AReport({{LayerId{2}, ExpertId{0}, 10}, {LayerId{5}, ExpertId{2}, 1}}),
              kStart + milliseconds(500), kWall);
  history.Add(AShape(), "w1", AReport({{LayerId{2}, ExpertId{0}, 5}}), kStart + milliseconds(1500),
              kWall);
  history.Add(AShape(), "w0", AReport({{LayerId{5}, ExpertId{1}, 7}}), kStart + milliseconds(2100),
              kWall + seconds(2));

  const LoadView view = history.View("demo", {}, kStart + milliseconds(3500));
  EXPECT_EQ(view.shape, AShape());
  EXPECT_EQ(view.first, 1U);
  EXPECT_EQ(view.last, 2U);
  ASSERT_EQ(view.samples.size(), 2U);
  EXPECT_THAT(view.samples[0]->rows, ElementsAre(15, 0, 0, 0, 0, 1));
  EXPECT_EQ(view.samples[0]->duration, seconds(2));
  EXPECT_EQ(view.samples[0]->begin, kWall - milliseconds(500));
  ASSERT_EQ(view.samples[0]->workers.size(), 2U);
  EXPECT_EQ(view.samples[0]->workers[0].id, "w0");
  EXPECT_THAT(view.samples[0]->workers[0].rows, ElementsAre(10, 1));
  EXPECT_THAT(view.samples[0]->workers[1].rows, ElementsAre(5, 0));
  EXPECT_THAT(view.samples[1]->rows, ElementsAre(0, 0, 0, 0, 7, 0));
  EXPECT_EQ(view.samples[1]->duration, milliseconds(1500));  // it still runs
}

TEST(LoadHistoryTest, IgnoresWhatTheModelDoesNotHave) {
  LoadHistory history({}, kStart);

  history.Add(AShape(), "w0",
              AReport({{LayerId{3}, ExpertId{0}, 1},
                       {LayerId{2}, ExpertId{3}, 1},
                       {LayerId{2}, ExpertId{-1}, 1},
                       {LayerId{9}, ExpertId{0}, 1},
                       {LayerId{2}, ExpertId{1}, 0xFFFFFFFFU},
                       {LayerId{2}, ExpertId{1}, 5}}),
              kStart, kWall);

  const LoadView view = history.View("demo", {}, kStart);
  ASSERT_EQ(view.samples.size(), 1U);
  EXPECT_THAT(view.samples[0]->rows, ElementsAre(0, 0xFFFFFFFFU, 0, 0, 0, 0));
}

TEST(LoadHistoryTest, SelectsByNumber) {
  LoadHistory history({}, kStart);
  for (int i = 0; i < 10; ++i) {
    history.Add(AShape(), "w0", AReport({{LayerId{2}, ExpertId{0}, 1}}), kStart + i * seconds(4),
                kWall);
  }
  const auto numbers = [&](const LoadQuery& query) {
    std::vector<std::uint64_t> all;
    for (const auto& one : history.View("demo", query, kStart + seconds(40)).samples) {
      all.push_back(one->number);
    }
    return all;
  };

  EXPECT_THAT(numbers({.after = 13}), ElementsAre(15, 17, 19));
  EXPECT_THAT(numbers({.before = 7}), ElementsAre(1, 3, 5));
  EXPECT_THAT(numbers({.limit = 2}), ElementsAre(17, 19));
  EXPECT_THAT(numbers({.after = 5, .before = 16, .limit = 3}), ElementsAre(11, 13, 15));
  EXPECT_THAT(numbers({.after = 19}), IsEmpty());
}

TEST(LoadHistoryTest, ForgetsWhatIsOldAndWhatIsDeleted) {
  LoadHistory history({.intervals = 3}, kStart);
  for (int i = 0; i < 9; ++i) {
    history.Add(AShape(), "w0", AReport({{LayerId{2}, ExpertId{0}, 1}}), kStart + i * seconds(2),
                kWall);
  }
  EXPECT_EQ(history.View("demo", {}, kStart + seconds(16)).first, 7U);
  EXPECT_EQ(history.View("demo", {}, kStart + seconds(20)).first, 9U);  // nothing came since
  EXPECT_EQ(history.View("demo", {}, kStart + seconds(60)).first, 0U);

  history.KeepOnly([](const std::string&) { return false; });

  EXPECT_THAT(history.View("demo", {}, kStart).samples, IsEmpty());
  EXPECT_EQ(history.bytes(), 0U);
}

TEST(LoadHistoryTest, AnotherModelBeginsAnew) {
  LoadHistory history({}, kStart);
  history.Add(AShape(), "w0", AReport({{LayerId{2}, ExpertId{0}, 1}}), kStart, kWall);
  const LoadShape other{.layers = {LayerId{0}}, .experts = 2};

  history.Add(other, "w0", AReport({{LayerId{0}, ExpertId{1}, 4}}), kStart + seconds(2), kWall);

  const LoadView view = history.View("demo", {}, kStart + seconds(2));
  EXPECT_EQ(view.shape, other);
  ASSERT_EQ(view.samples.size(), 1U);
  EXPECT_THAT(view.samples[0]->rows, ElementsAre(0, 4));
}

WorkTimes Steps(WorkKind kind, int steps) {
  WorkTimes times{.kind = kind};
  for (int i = 0; i < steps; ++i) times.step.Observe(milliseconds(3));
  return times;
}

TEST(LoadHistoryTest, TimesAddUpByWorkerAndKind) {
  LoadHistory history({}, kStart);
  history.Add(AShape(), "w0", AReport({{LayerId{2}, ExpertId{0}, 1}}), kStart, kWall);
  const auto add = [&](const std::string& worker, WorkTimes times, Duration after) {
    history.AddTimes("demo", AShape(), worker, {times}, kStart + after, kWall);
  };

  add("w0", Steps(WorkKind::kDecode, 2), milliseconds(100));
  add("w0", Steps(WorkKind::kDecode, 3), milliseconds(1100));
  add("w0", Steps(WorkKind::kPrefill, 1), milliseconds(1100));
  add("w1", Steps(WorkKind::kLockstep, 4), milliseconds(2100));

  const LoadView view = history.View("demo", {}, kStart + milliseconds(2500));
  ASSERT_EQ(view.samples.size(), 2U);
  EXPECT_THAT(view.samples[0]->workers.at(0).times,
              ElementsAre(Steps(WorkKind::kDecode, 5), Steps(WorkKind::kPrefill, 1)));
  // Without a row.
  EXPECT_THAT(view.samples[1]->workers.at(0).times, ElementsAre(Steps(WorkKind::kLockstep, 4)));
  EXPECT_THAT(view.samples[1]->workers.at(0).rows, ElementsAre(0, 0));
  const std::size_t bytes = history.bytes();
  EXPECT_GT(bytes, 3 * sizeof(WorkTimes));
  history.KeepOnly([](const std::string&) { return false; });
  EXPECT_EQ(history.bytes(), 0U);
}

// Ten minutes of the largest model that the header speaks of, and a bound for more of them.
TEST(LoadHistoryTest, TakesTheMemoryThatItSays) {
  LoadShape shape{.layers = std::vector<LayerId>(61), .experts = 256};
  for (std::int32_t i = 0; i < 61; ++i) shape.layers[static_cast<std::size_t>(i)].value = i;
  const auto fill = [&](LoadHistory* history, const std::string& deployment) {
    for (int i = 0; i < 300; ++i) {
      for (int w = 0; w < 32; ++w) {
        history->Add(shape, absl::StrCat("w", w),
                     AReport({{LayerId{0}, ExpertId{w}, 1}}, deployment), kStart + i * seconds(2),
                     kWall);
        for (const WorkKind kind : {WorkKind::kDecode, WorkKind::kPrefill}) {
          history->AddTimes(deployment, shape, absl::StrCat("w", w), {Steps(kind, 1)},
                            kStart + i * seconds(2), kWall);
        }
      }
    }
  };
  LoadHistory history({}, kStart);

  fill(&history, "a");
  EXPECT_GT(history.bytes(), 26U << 20);
  EXPECT_LT(history.bytes(), 28U << 20);
  for (const char* name : {"b", "c", "d", "e"}) fill(&history, name);

  EXPECT_LE(history.bytes(), std::size_t{64} << 20);
  EXPECT_EQ(history.View("e", {}, kStart + seconds(598)).last, 300U);
}

// Times are of a whole worker, rows are not.
TEST(LoadHistoryTest, ACoordinatorShowsTimesWithTheDeploymentsThatWereServed) {
  Cluster cluster;
  FakeWorker& w0 = cluster.Join("w0");
  FakeWorker& w1 = cluster.Join("w1");
  for (const char* name : {"demo", "idle"}) {
    DeploymentSpec spec = MakeSpec();
    spec.name = name;
    SY_ASSERT_OK(cluster.Apply(spec).status());
  }
  cluster.Advance(seconds(30));
  const LayerId layer = cluster.Deployment().layers.front();
  const auto say = [&](FakeWorker& worker, std::vector<LoadReport> load, int steps) {
    Heartbeat heartbeat = worker.heartbeat;
    heartbeat.load = std::move(load);
    heartbeat.times = {Steps(WorkKind::kLockstep, steps)};
    cluster.Say(worker, heartbeat);
  };

  say(w0, {AReport({{layer, ExpertId{1}, 5}})}, 3);

  ASSERT_EQ(cluster.Load("demo").samples.size(), 1U);
  EXPECT_THAT(cluster.Load("demo").samples[0]->workers.at(0).times,
              ElementsAre(Steps(WorkKind::kLockstep, 3)));
  EXPECT_THAT(cluster.Load("idle").samples, IsEmpty());

  // A GPU in lockstep counts no rows, so that it may be either.
  say(w1, {}, 2);

  ASSERT_EQ(cluster.Load("demo").samples[0]->workers.size(), 2U);
  EXPECT_THAT(cluster.Load("demo").samples[0]->workers[1].times,
              ElementsAre(Steps(WorkKind::kLockstep, 2)));
  ASSERT_EQ(cluster.Load("idle").samples.size(), 1U);
}

TEST(LoadHistoryTest, ACoordinatorKeepsTheLoadOfWorkersThatServe) {
  Cluster cluster;
  FakeWorker& w0 = cluster.Join("w0");
  SY_ASSERT_OK(cluster.Apply(MakeSpec()).status());
  cluster.Advance(seconds(30));
  ASSERT_EQ(cluster.ServingWorkers(), "w0");
  FakeWorker& w1 = cluster.Join("w1");
  cluster.SetDuty("w1", WorkerDuty::kDraining).IgnoreError();
  const LayerId layer = cluster.Deployment().layers.front();
  const auto say = [&](FakeWorker& worker, const std::string& deployment, std::uint32_t rows) {
    Heartbeat heartbeat = worker.heartbeat;
    heartbeat.load = {AReport({{layer, ExpertId{1}, rows}}, deployment)};
    cluster.Say(worker, heartbeat);
  };

  say(w0, "demo", 100);
  ASSERT_EQ(cluster.ServingWorkers(), "w0");
  say(w1, "demo", 1);
  say(w0, "other", 1);

  const LoadView view = cluster.Load("demo");
  ASSERT_EQ(view.samples.size(), 1U);
  const std::vector<std::uint32_t>& rows = view.samples[0]->rows;
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), 0U), 100U);
  EXPECT_THAT(cluster.Load("other").samples, IsEmpty());

  SY_ASSERT_OK(cluster.Delete("demo", /*at_once=*/true).status());
  cluster.Advance(seconds(30));
  EXPECT_THAT(cluster.Load("demo").samples, IsEmpty());
}

}  // namespace
}  // namespace switchyard
