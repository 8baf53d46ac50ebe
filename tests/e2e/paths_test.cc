// One layer by two ways: experts in the very process that takes the step, and experts behind rings.
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/processes.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::CalcDiff;
using testing::ReferenceOf;
using testing::RunStep;

constexpr double kPooledDiffMax = 1.5e-5;
constexpr std::int32_t kLayer = 2;

class PathsTest : public testing::Processes {
 protected:
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(Client& client, DispatchMode mode) {
    OpenSessionRequest order;
    order.phase = Phase::kMixed;
    order.mode = mode;
    return client.OpenWhenReady(order, testing::kReadyTimeout);
  }
  // How rows went to the only worker, by the worker's account, and that some did.
  static std::string PathOf(MoeSession& session) {
    const auto report = session.Report(testing::kReadyTimeout);
    SY_EXPECT_OK(report.status());
    if (!report.ok() || report->workers.size() != 1) return "no worker";
    if (report->workers[0].attachments.size() != 1) return "no attachment";
    EXPECT_GT(report->workers[0].attachments[0].rows, 0U);
    return report->workers[0].attachments[0].path;
  }
};

// R125: the experts of a gateway's own process, then the same experts over rings, and back: not a
// bit differs, whichever came first, and both are the layer of the definition.
TEST_F(PathsTest, LocalExpertsThenRingsAndBackGiveTheSameBits) {
  Deploy(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto gateway, Connect("gateway"));
  SY_ASSERT_OK_AND_ASSIGN(const auto direct, Connect("tcp"));
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto local, Open(*gateway, mode));
    SY_ASSERT_OK_AND_ASSIGN(const auto rings, Open(*direct, mode));
    std::vector<float> first;
    for (MoeSession* session : {local.get(), rings.get(), local.get(), rings.get()}) {
      Batch batch(19, 41);
      SY_ASSERT_OK(RunStep(*session, batch, kLayer));

      EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), kPooledDiffMax);
      if (first.empty()) first = batch.y;
      EXPECT_EQ(std::memcmp(batch.y.data(), first.data(), first.size() * sizeof(float)), 0)
          << DispatchModeName(mode);
    }
    EXPECT_EQ(PathOf(*local), "inproc");
    EXPECT_EQ(PathOf(*rings), "messages");
  }
}

// A directory for the sockets over which rings are passed: mapped where both sides have it, and
// otherwise messages with the reason, or a refusal where memory must be shared.
TEST_F(PathsTest, SharesMemoryThroughADirectoryThatBothSidesHave) {
  const testing::TempDir dir;
  LocalDeploymentOptions options;
  options.worker_flags = {"--ring-dir", dir.path()};
  Deploy(1, std::move(options));
  const auto open = [this](Client& client) {
    OpenSessionRequest order;
    order.phase = Phase::kMixed;
    order.mode = DispatchMode::kLowLatency;
    return client.OpenWhenReady(order, testing::kReadyTimeout);
  };
  const auto status_of = [](MoeSession& session) {
    return session.Report(testing::kReadyTimeout)->status.attachments.at(0);
  };
  const auto path = [&](const std::string& ring_dir) {
    return Connect("auto", WithRingDir(ring_dir));
  };
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto shares, path(dir.path()));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, open(*shares));
    EXPECT_EQ(status_of(*session).request_path, "mapped");
    EXPECT_EQ(status_of(*session).reply_path, "mapped");
    Batch batch(3, 41);
    SY_ASSERT_OK(RunStep(*session, batch, kLayer));
    EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), kPooledDiffMax);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "the client's socket";

  const testing::TempDir other;
  SY_ASSERT_OK_AND_ASSIGN(const auto elsewhere, path(other.path()));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, open(*elsewhere));
  EXPECT_EQ(status_of(*session).request_path, "messages");
  EXPECT_EQ(status_of(*session).reply_path, "messages");
  EXPECT_THAT(status_of(*session).why_messages,
              ::testing::HasSubstr("both processes need the same shared directory (--ring-dir)"));
  Batch batch(3, 41);
  SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), kPooledDiffMax);
  SY_ASSERT_OK_AND_ASSIGN(const auto must, Connect("shm", WithRingDir(other.path())));
  const auto refused = open(*must);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("--ring-dir"));

  EXPECT_FALSE(path(dir.path() + "/missing").ok());
}

// Workers and a client that poll longer than the pauses between steps: several callers of one
// client take turns at its transport, get the bits that sleeping callers get, and close.
TEST_F(PathsTest, PollingInsteadOfSleepingChangesNothing) {
  LocalDeploymentOptions options;
  options.worker_flags = {"--busy-poll", "100ms"};
  Deploy(2, std::move(options));
  SY_ASSERT_OK_AND_ASSIGN(const auto sleeping, Connect("shm"));
  SY_ASSERT_OK_AND_ASSIGN(const auto other, Open(*sleeping, DispatchMode::kLowLatency));
  Batch expected(3, 41);
  SY_ASSERT_OK(RunStep(*other, expected, kLayer));
  EXPECT_LE(CalcDiff(expected.y, ReferenceOf(expected, kLayer)), kPooledDiffMax);
  for (const char* path : {"shm", "tcp", "gateway"}) {
    ClientOptions busy;
    busy.busy_poll = std::chrono::milliseconds(100);
    SY_ASSERT_OK_AND_ASSIGN(const auto polling, Connect(path, busy));
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&] {
        SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*polling, DispatchMode::kLowLatency));
        for (int step = 0; step < 20; ++step) {
          Batch batch(3, 41);
          SY_ASSERT_OK(RunStep(*session, batch, kLayer));
          ASSERT_EQ(batch.y, expected.y) << path;
        }
      });
    }
  }
}

}  // namespace
}  // namespace switchyard
