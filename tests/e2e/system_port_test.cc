// The system port of real processes: what probes and Prometheus see of a coordinator and a worker
// from their start to the coordinator's death.
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

#include "client/client.h"
#include "switchyard/v1/coordinator.pb.h"
#include "tests/e2e/batch.h"
#include "tests/e2e/system_ports.h"
#include "tests/services/health_check.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::Batch;
using ::testing::HasSubstr;
using testing::HealthOf;
using testing::HttpReply;
using testing::HttpRequest;
using testing::RunStep;

constexpr Duration kLong = seconds(60);
constexpr std::int32_t kLayer = 0;

class SystemPortTest : public testing::SystemPorts {
 protected:
  static v1::GetLoadResponse LoadOf(const std::string& system) {
    v1::GetLoadResponse load;
    const HttpReply reply = HttpRequest(system, "/api/v1/load?deployment=local");
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(reply.body, &load).ok()) << reply.body;
    return load;
  }
  // The steps whose times the coordinator knows, over all workers and intervals.
  static std::uint64_t StepsOfLoad(const std::string& system) {
    std::uint64_t steps = 0;
    const v1::GetLoadResponse load = LoadOf(system);
    for (const v1::LoadSample& sample : load.samples()) {
      for (const v1::WorkerLoad& worker : sample.workers()) {
        for (const v1::WorkTimes& times : worker.times()) {
          for (const std::uint64_t bucket : times.step().buckets()) steps += bucket;
        }
      }
    }
    return steps;
  }
  // The rows that the coordinator knows to have been served, over all experts and intervals.
  static std::uint64_t RowsOfLoad(const std::string& system) {
    std::uint64_t rows = 0;
    const v1::GetLoadResponse load = LoadOf(system);
    for (const v1::LoadSample& sample : load.samples()) {
      for (std::size_t i = 0; i + 4 <= sample.rows().size(); i += 4) {
        for (std::size_t byte = 0; byte < 4; ++byte) {
          rows += std::uint64_t{static_cast<std::uint8_t>(sample.rows()[i + byte])} << (8 * byte);
        }
      }
    }
    return rows;
  }
};

TEST_F(SystemPortTest, ShowsAWorkerFromItsStartToTheCoordinatorsDeath) {
  SY_ASSERT_OK_AND_ASSIGN(Running coordinator, StartCoordinator());
  EXPECT_EQ(HttpRequest(coordinator.system, "/livez").code, 200);
  EXPECT_EQ(HttpRequest(coordinator.system, "/readyz").body, "ok\n") << "it needs no worker";
  EXPECT_EQ(HealthOf(coordinator.endpoint, ""), testing::kServing);
  EXPECT_EQ(HealthOf(coordinator.endpoint, "switchyard.coordinator"), testing::kServing);

  SY_ASSERT_OK_AND_ASSIGN(const Running worker, StartWorker(coordinator.endpoint));
  EXPECT_EQ(HttpRequest(worker.system, "/livez").code, 200);
  const HttpReply not_ready = HttpRequest(worker.system, "/readyz");
  EXPECT_EQ(not_ready.code, 503);
  EXPECT_THAT(not_ready.body, HasSubstr("no deployment uses this worker"));
  EXPECT_EQ(HealthOf(worker.endpoint, ""), testing::kServing);
  EXPECT_EQ(HealthOf(worker.endpoint, "switchyard.worker"), testing::kNotServing);

  Apply(coordinator.endpoint);
  EXPECT_TRUE(WaitUntil([&] { return HttpRequest(worker.system, "/readyz").code == 200; }));
  EXPECT_TRUE(WaitUntil(
      [&] { return HealthOf(worker.endpoint, "switchyard.worker") == testing::kServing; }));
  EXPECT_EQ(Value(worker.system, "moe_plan_epoch{deployment=\"local\"}"), 1);
  EXPECT_EQ(Value(coordinator.system, "moe_plan_epoch{deployment=\"local\"}"), 1);
  EXPECT_GT(Value(worker.system, "moe_weight_bytes"), 1e6);
  EXPECT_EQ(Value(coordinator.system,
                  "moe_plan_transitions_total{deployment=\"local\",result=\"served\"}"),
            1);
  EXPECT_EQ(Value(coordinator.system, "moe_workers{state=\"live\",device=\"cpu\"}"), 1);

  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectTo(coordinator.endpoint));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, kLong));
  Batch batch(5, 3);
  SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  const double rows = Value(worker.system, "moe_rows_total{via=\"attachment\"}");
  const double frames = Value(worker.system, "moe_frames_total{direction=\"in\"}");
  EXPECT_GT(rows, 0);
  for (int i = 0; i < 3; ++i) SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  EXPECT_EQ(Value(worker.system, "moe_rows_total{via=\"attachment\"}"), 4 * rows);
  EXPECT_GE(Value(worker.system, "moe_frames_total{direction=\"in\"}"), frames + 3);
  EXPECT_EQ(Value(worker.system, "moe_requests_total{answer=\"error\"}"), 0);
  EXPECT_EQ(Value(coordinator.system, "moe_sessions_open{deployment=\"local\"}"), 1);

  coordinator.process->Signal(SIGKILL);
  SY_ASSERT_OK(coordinator.process->Wait(kLong));
  // Longer than a lease.
  const TimePoint until = SteadyClock().Now() + seconds(4);
  while (SteadyClock().Now() < until) {
    ASSERT_EQ(HttpRequest(worker.system, "/readyz").code, 200);
    ASSERT_EQ(HttpRequest(worker.system, "/livez").code, 200);
    SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  }
  EXPECT_EQ(HealthOf(worker.endpoint, "switchyard.worker"), testing::kServing);
}

// Each pair of a token and an expert is a row, and none is lost on its way to the live page.
TEST_F(SystemPortTest, TheLoadOfExpertsReachesTheCoordinator) {
  SY_ASSERT_OK_AND_ASSIGN(const Running coordinator, StartCoordinator());
  SY_ASSERT_OK_AND_ASSIGN(const Running worker, StartWorker(coordinator.endpoint));
  Apply(coordinator.endpoint);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectTo(coordinator.endpoint));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, kLong));
  Batch batch(5, 3);
  EXPECT_EQ(RowsOfLoad(coordinator.system), 0U);

  std::uint64_t steps = 0;
  const TimePoint end = SteadyClock().Now() + seconds(3);  // of several reports
  while (SteadyClock().Now() < end) {
    SY_ASSERT_OK(RunStep(*session, batch, kLayer));
    ++steps;
  }

  const std::uint64_t rows = steps * batch.ids.size();
  EXPECT_TRUE(WaitUntil([&] { return RowsOfLoad(coordinator.system) == rows; }, seconds(10)))
      << RowsOfLoad(coordinator.system) << " of " << rows;
  EXPECT_TRUE(WaitUntil([&] { return StepsOfLoad(coordinator.system) == steps; }, seconds(10)))
      << StepsOfLoad(coordinator.system) << " of " << steps;
}

// A kubelet has to tell this from a coordinator that is dead, and workers have to join meanwhile.
TEST_F(SystemPortTest, ACoordinatorIsReadyWhileItReadsTheCheckpointsOfItsFirstStart) {
  const std::string file = folder_.Write(
      "big.yaml",
      "name: big\n"
      "checkpoint: 'synthetic:hidden=1024,intermediate=1024,experts=64,top_k=4,layers=64'\n");
  SY_ASSERT_OK_AND_ASSIGN(
      ChildProcess process,
      ChildProcess::Spawn(
          {absl::StrCat(SWITCHYARD_BIN_DIR, "/switchyard-coordinator"), "--store", "memory",
           "--listen", "127.0.0.1:0", "--system-port", "0", "--deployment", file},
          folder_.Join("log")));
  SY_ASSERT_OK_AND_ASSIGN(const std::string system, process.WaitForLine("system ", kLong));

  EXPECT_EQ(HttpRequest(system, "/livez").code, 200);

  SY_ASSERT_OK(process.WaitForLine("ready ", kLong));

  EXPECT_EQ(Value(system, "moe_deployments{state=\"reading\"}"), 1);
  EXPECT_EQ(HttpRequest(system, "/readyz").code, 200);
  // At any moment, and not when it has read.
  process.Signal(SIGTERM);
  const absl::StatusOr<int> status = process.Wait(seconds(5));
  SY_ASSERT_OK(status.status());
  EXPECT_EQ(*status, 0);
}

TEST_F(SystemPortTest, IdleAndBrokenClientsDisturbNoStep) {
  SY_ASSERT_OK_AND_ASSIGN(const Running coordinator, StartCoordinator());
  SY_ASSERT_OK_AND_ASSIGN(const Running worker, StartWorker(coordinator.endpoint));
  Apply(coordinator.endpoint);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectTo(coordinator.endpoint));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, kLong));
  Batch batch(5, 4);

  std::vector<std::unique_ptr<testing::HttpConnection>> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(std::make_unique<testing::HttpConnection>(worker.system));
    [[maybe_unused]] const bool sent =
        i % 2 == 0 || strangers.back()->Send(std::string("\x16\x03\x01 garbage\r\n"));
    SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  }
  EXPECT_EQ(HttpRequest(worker.system, "/readyz", "GET", seconds(1)).code, 200);
  EXPECT_EQ(HttpRequest(worker.system, "/metrics", "HEAD", seconds(1)).code, 200);
  EXPECT_EQ(HttpRequest(worker.system, "/switchyard.v1.ExpertService/GetStatus", "POST").code, 405);
}

}  // namespace
}  // namespace switchyard
