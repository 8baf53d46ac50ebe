// The whole system in one process: the real coordinator, real workers and a real client, joined by
// the loopback transport, on the shipped model, against the double reference.
#include <cstring>
#include <limits>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "deploy/local/in_process_deployment.h"
#include "model/checkpoint.h"
#include "model/expert_weights.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/moe_reference.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::FailsWith;

constexpr char kModel[] = SWITCHYARD_SOURCE_DIR "/models/sqlite-moe-7m";
constexpr std::int32_t kHidden = 256;
constexpr std::int32_t kTopK = 4;
constexpr std::int32_t kExperts = 16;

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
    StepRequest request;
    request.layer = LayerId{layer};
    request.tokens = tokens;
    request.x = x.data();
    request.x_stride = kHidden;
    request.ids = ids.data();
    request.ids_stride = kTopK;
    request.weights = weights.data();
    request.weights_stride = kTopK;
    request.top_k = kTopK;
    request.y = y.data();
    request.y_stride = kHidden;
    return request;
  }
  std::int32_t tokens;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

std::vector<double> Reference(const Batch& batch, std::int32_t layer) {
  const auto checkpoint = Checkpoint::Open(kModel);
  std::vector<ExpertWeights> experts;
  for (std::int32_t e = 0; e < kExperts; ++e) {
    experts.push_back(*LoadExpert(**checkpoint, LayerId{layer}, ExpertId{e}));
  }
  std::vector<ExpertWeightsView> views;
  for (const ExpertWeights& expert : experts) {
    views.push_back({expert.gate, expert.up, expert.down});
  }
  return testing::ReferenceMoeLayer(ShapeOf((*checkpoint)->config()), views,
                                    {batch.x, batch.ids, batch.weights});
}

class LoopbackTest : public ::testing::Test {
 protected:
  void Deploy(std::int32_t workers) {
    InProcessOptions options;
    options.checkpoint = kModel;
    options.workers = workers;
    options.logger = &logger_;
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(DispatchMode mode) {
    OpenSessionOrder order;
    order.phase = Phase::kMixed;
    order.mode = mode;
    return client_->OpenWhenReady(order, std::chrono::seconds(20));
  }
  static absl::Status Run(MoeSession& session, Batch& batch, std::int32_t layer) {
    const auto ticket = session.Submit(batch.Request(layer));
    if (!ticket.ok()) return ticket.status();
    return session.Wait(*ticket);
  }

  Logger logger_{"test", LogLevel::kWarn};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;  // goes before the deployment
};

TEST_F(LoopbackTest, BothModesEqualTheReference) {
  Deploy(3);
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(mode));
    Batch batch(40, 7);

    SY_ASSERT_OK(Run(*session, batch, 2));

    EXPECT_LE(CalcDiff(batch.y, Reference(batch, 2)), 1.5e-5) << DispatchModeName(mode);
  }
}

TEST_F(LoopbackTest, LowLatencyIsBitEqualForEveryPlacement) {
  std::vector<float> first;
  for (const std::int32_t workers : {1, 2, 3, 4, 5}) {
    client_.reset();
    deployment_.reset();
    Deploy(workers);
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
    Batch batch(33, 11);
    SY_ASSERT_OK(Run(*session, batch, 1));
    if (first.empty()) first = batch.y;

    EXPECT_EQ(std::memcmp(batch.y.data(), first.data(), first.size() * sizeof(float)), 0)
        << workers << " workers";
  }
}

// R43
TEST_F(LoopbackTest, AlternatingModesFiftyTimesGivesIdenticalResults) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto normal, Open(DispatchMode::kNormal));
  SY_ASSERT_OK_AND_ASSIGN(const auto low_latency, Open(DispatchMode::kLowLatency));
  std::vector<float> first_normal;
  std::vector<float> first_low_latency;
  for (int round = 0; round < 50; ++round) {
    Batch one(5, 3);
    SY_ASSERT_OK(Run(*normal, one, 0));
    Batch two(5, 3);
    SY_ASSERT_OK(Run(*low_latency, two, 0));
    if (round == 0) {
      first_normal = one.y;
      first_low_latency = two.y;
    }
    ASSERT_EQ(one.y, first_normal) << round;
    ASSERT_EQ(two.y, first_low_latency) << round;
  }
}

// R67
TEST_F(LoopbackTest, ADeadWorkerIsNamedAndTheSessionGoesOnBitEqualAfterTheReplan) {
  Deploy(3);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
  Batch before(20, 5);
  SY_ASSERT_OK(Run(*session, before, 3));

  deployment_->KillWorker(1);

  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Batch after(20, 5);
  absl::Status status = Run(*session, after, 3);
  while (!status.ok() && std::chrono::steady_clock::now() < until) {
    ASSERT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(MetadataOf(status).at("worker"), "w1") << status;
    EXPECT_EQ(MetadataOf(status).at("layer"), "3");
    status = Run(*session, after, 3);
  }
  SY_ASSERT_OK(status);
  EXPECT_EQ(after.y, before.y);
}

TEST_F(LoopbackTest, AJoiningWorkerIsTakenInWhileTheSessionRuns) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
  Batch before(20, 5);
  SY_ASSERT_OK(Run(*session, before, 3));

  SY_ASSERT_OK(deployment_->AddWorker());

  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::size_t workers = 0;
  while (workers < 3 && std::chrono::steady_clock::now() < until) {
    Batch batch(20, 5);
    SY_ASSERT_OK(Run(*session, batch, 3));
    ASSERT_EQ(batch.y, before.y);
    SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
    workers = grant.plan.workers.size();
  }
  EXPECT_EQ(workers, 3U);
}

TEST_F(LoopbackTest, AnUnknownModelIsNotFound) {
  Deploy(1);
  SY_ASSERT_OK(Open(DispatchMode::kNormal));
  OpenSessionOrder order;
  order.model = "no-such-model";

  EXPECT_THAT(client_->Open(order), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

}  // namespace
}  // namespace switchyard
