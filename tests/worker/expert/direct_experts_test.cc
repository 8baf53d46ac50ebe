#include "worker/expert/direct_experts.h"

#include <thread>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

#include "core/base/status_macros.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"

namespace switchyard {
namespace {

using testing::ExpectedAnswer;
using testing::FailsWith;
using testing::FakeDevice;
using testing::kPoison;
using testing::LayerOf;
using testing::MakeChunk;
using testing::MakePlan;
using testing::MakeStaged;
using testing::MakeTestStep;
using testing::TestChunk;
using testing::TestLayer;
using testing::TestStep;

constexpr SessionId kSession{.high = 3, .low = 4};
constexpr DispatchMode kModes[] = {DispatchMode::kNormal, DispatchMode::kLowLatency};

// A step's chunk for worker 1.
struct Direct {
  Plan plan;
  TestLayer layer;
  TestStep step;
  std::unique_ptr<TestChunk> chunk;

  OwnChunk Chunk(SessionId session = kSession) {
    return {.deployment = plan.deployment,
            .session = session,
            .epoch = plan.epoch,
            .hash = HashOf(plan),
            .layer = layer.placement.layer,
            .mode = step.plan.mode,
            .format = kBf16Format,
            .count = static_cast<std::uint32_t>(chunk->planned.size()),
            .rows = reinterpret_cast<const std::byte*>(chunk->rows.data()),
            .metadata = std::as_bytes(std::span(chunk->words)),
            .out = chunk->out.data()};
  }
  [[nodiscard]] OwnBinding Binding(SessionId session = kSession, Duration deadline = {}) const {
    return {.deployment = plan.deployment,
            .session = session,
            .epoch = plan.epoch,
            .hash = HashOf(plan),
            .step_deadline = deadline};
  }
  [[nodiscard]] std::vector<Bf16> Expected() const {
    return ExpectedAnswer(layer, step, WorkerOrdinal{1}, *chunk);
  }
};

Direct MakeDirect(std::uint64_t seed, std::uint64_t epoch, DispatchMode mode) {
  SeededRng rng(seed);
  Direct direct{.plan = MakePlan(epoch, 2), .layer = {}, .step = {}, .chunk = {}};
  direct.layer = LayerOf(direct.plan, LayerId{0});
  direct.step = MakeTestStep(rng, direct.layer, 7, mode, 0.0);
  direct.chunk = MakeChunk(direct.layer, direct.step, WorkerOrdinal{1}, 0,
                           direct.step.plan.workers[1].rows.size());
  return direct;
}

class DirectExpertsTest : public ::testing::Test {
 protected:
  DirectExpertsTest()
      : direct_(*DirectExperts::Create({.worker_id = "w1",
                                        .device = &device_,
                                        .batch = {.pairs_max = 16},
                                        .times = times_,
                                        .clock = &clock_})),
        experts_(*direct_) {
    Activate(1);
  }
  // Runs a chunk to its end.
  absl::Status Run(const OwnChunk& chunk) {
    SY_ASSIGN_OR_RETURN(const auto run, experts_.Start(chunk));
    while (!run->done()) std::this_thread::yield();
    return run->Finish();
  }
  void Activate(std::uint64_t epoch) {
    experts_.Activate(MakeStaged(1, MakePlan(epoch, 2), &device_).runtime);
  }

  SteadyClock clock_;
  const std::shared_ptr<ExpertTimes> times_ = std::make_shared<ExpertTimes>();
  FakeDevice device_;
  std::unique_ptr<DirectExperts> direct_;
  DirectExperts& experts_;
};

// As for Attach: a caller that joins a group with a grant that is none hears nothing of what is
// here.
TEST_F(DirectExpertsTest, ACallerWithoutAGrantJoinsNothingAndLearnsNothing) {
  JoinRequest join;
  join.attach = testing::MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  SY_EXPECT_OK(direct_->CheckGranted(join)) << "callers are not known";
  join.attach.caller = "spiffe://d/engine";
  join.attach.signature = SignGrant(testing::TestGrantKey(), ClaimsOf(join));
  SY_EXPECT_OK(direct_->CheckGranted(join));
  join.attach.epoch = Epoch{9};
  SY_EXPECT_OK(direct_->CheckGranted(join)) << "it may hear that its plan is stale";
  JoinRequest other = join;
  other.attach.deployment = "other";
  JoinRequest forged = join;
  forged.attach.signature.bytes[0] ^= 1;

  const absl::Status refused = direct_->CheckGranted(forged);

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
  EXPECT_EQ(absl::StrReplaceAll(direct_->CheckGranted(other).ToString(), {{"other", "demo"}}),
            refused.ToString());
}

// R125
TEST_F(DirectExpertsTest, AnswersAsAnAttachmentWouldAndCountsNoWireBytes) {
  std::uint64_t rows = 0;
  std::uint64_t pairs = 0;
  for (const DispatchMode mode : kModes) {
    Direct direct = MakeDirect(1, 1, mode);
    SY_ASSERT_OK(experts_.Bind(direct.Binding()));
    rows += direct.chunk->planned.size();
    pairs += static_cast<std::uint64_t>(std::count(direct.step.plan.worker_of_pair.begin(),
                                                   direct.step.plan.worker_of_pair.end(), 1));

    SY_ASSERT_OK(Run(direct.Chunk()));

    EXPECT_EQ(direct.chunk->out, direct.Expected());
  }
  const auto counters = experts_.CountersOf(kSession);
  ASSERT_EQ(counters.size(), 1U);
  EXPECT_EQ(counters[0].path, "inproc");
  EXPECT_EQ(counters[0].worker_id, "w1");
  EXPECT_EQ(counters[0].rows, rows);
  EXPECT_EQ(counters[0].request_payload_bytes, 0U);
  EXPECT_EQ(counters[0].reply_payload_bytes, 0U);
  std::uint64_t hits = 0;
  for (const auto& hit : counters[0].hits) hits += hit.rows;
  EXPECT_EQ(hits, pairs);
  EXPECT_EQ(experts_.stats().chunks, 2U);
  EXPECT_EQ(experts_.stats().rows, rows);
  EXPECT_EQ(experts_.stats().failed, 0U);
  for (const DispatchMode mode : kModes) {
    const WorkClass of = WorkClassOf(OwnChunk().phase, mode);
    EXPECT_EQ(times_->Of(of, mode).compute.Counts().count(), 1U);
    EXPECT_EQ(times_->Of(of, mode).rows.Counts().count(), 1U);
  }
  experts_.Close(kSession);
  EXPECT_TRUE(experts_.CountersOf(kSession).empty());
}

TEST_F(DirectExpertsTest, RefusesWhatIsNotCommittedUnderThatHash) {
  Direct later = MakeDirect(2, 2, DispatchMode::kNormal);
  EXPECT_THAT(experts_.Bind(later.Binding()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  Direct first = MakeDirect(2, 1, DispatchMode::kNormal);
  OwnBinding other_hash = first.Binding();
  other_hash.hash.bytes[0] ^= 1;
  EXPECT_THAT(experts_.Bind(other_hash),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  EXPECT_TRUE(experts_.CountersOf(kSession).empty());
}

TEST_F(DirectExpertsTest, RunsOnlyWhatTheSessionBindsUnderThatHash) {
  Direct direct = MakeDirect(2, 1, DispatchMode::kNormal);
  EXPECT_THAT(Run(direct.Chunk()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  SY_ASSERT_OK(experts_.Bind(direct.Binding()));
  OwnChunk chunk = direct.Chunk();
  chunk.hash.bytes[0] ^= 1;
  EXPECT_THAT(Run(chunk), FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  EXPECT_EQ(direct.chunk->out[0], kPoison);
}

TEST_F(DirectExpertsTest, RefusesUnknownLayersAndMetadataThatDoesNotFit) {
  Direct direct = MakeDirect(3, 1, DispatchMode::kNormal);
  SY_ASSERT_OK(experts_.Bind(direct.Binding()));
  OwnChunk chunk = direct.Chunk();
  chunk.layer = LayerId{8};
  EXPECT_THAT(Run(chunk), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));

  chunk = direct.Chunk();
  --chunk.count;
  EXPECT_THAT(Run(chunk), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kFrame));
  EXPECT_EQ(experts_.stats().failed, 2U);
  EXPECT_EQ(experts_.stats().chunks, 0U);
}

TEST_F(DirectExpertsTest, ABoundEpochServesWhileItRetiresAndTakesNobodyNew) {
  Direct direct = MakeDirect(4, 1, DispatchMode::kLowLatency);
  SY_ASSERT_OK(experts_.Bind(direct.Binding()));

  experts_.Retire("demo", Epoch{1});

  EXPECT_TRUE(experts_.IsBound("demo", Epoch{1}));
  SY_EXPECT_OK(Run(direct.Chunk()));
  SY_EXPECT_OK(experts_.Bind(direct.Binding())) << "a repetition";
  EXPECT_THAT(experts_.Bind(direct.Binding({.high = 9, .low = 9})),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  experts_.Release(kSession, Epoch{1});
  EXPECT_FALSE(experts_.IsBound("demo", Epoch{1}));
  EXPECT_THAT(Run(direct.Chunk()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
}

// Chunks of the earlier epoch may still be queued: only a release ends it.
TEST_F(DirectExpertsTest, ARunOnALaterEpochKeepsTheEarlier) {
  Direct first = MakeDirect(5, 1, DispatchMode::kNormal);
  Direct second = MakeDirect(6, 2, DispatchMode::kNormal);
  SY_ASSERT_OK(experts_.Bind(first.Binding()));
  Activate(2);
  SY_ASSERT_OK(experts_.Bind(second.Binding()));

  SY_ASSERT_OK(Run(second.Chunk()));
  SY_ASSERT_OK(Run(first.Chunk()));

  EXPECT_EQ(second.chunk->out, second.Expected());
  EXPECT_EQ(first.chunk->out, first.Expected());
  experts_.Release(kSession, Epoch{1});
  EXPECT_FALSE(experts_.IsBound("demo", Epoch{1}));
  EXPECT_TRUE(experts_.IsBound("demo", Epoch{2}));
  EXPECT_EQ(experts_.CountersOf(kSession)[0].frames, 2U);
}

TEST_F(DirectExpertsTest, SessionsLoseAnEpochThatTheyKeepLongerThanTheirStepsTake) {
  constexpr SessionId kDecode{.high = 3, .low = 5};
  Direct direct = MakeDirect(8, 1, DispatchMode::kNormal);
  SY_ASSERT_OK(experts_.Bind(direct.Binding(kSession, std::chrono::seconds(1))));
  SY_ASSERT_OK(experts_.Bind(direct.Binding(kSession, std::chrono::seconds(30))));
  SY_ASSERT_OK(experts_.Bind(direct.Binding(kDecode, std::chrono::seconds(1))));

  experts_.ReleaseOverdue("demo", Epoch{1}, std::chrono::seconds(29));

  SY_EXPECT_OK(Run(direct.Chunk()));
  EXPECT_THAT(Run(direct.Chunk(kDecode)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kStaleEpoch));
  EXPECT_TRUE(experts_.IsBound("demo", Epoch{1}));
  experts_.ReleaseOverdue("demo", Epoch{1}, std::chrono::seconds(30));
  EXPECT_FALSE(experts_.IsBound("demo", Epoch{1}));
}

TEST_F(DirectExpertsTest, DropUnbindsWhoeverIsBound) {
  Direct direct = MakeDirect(7, 1, DispatchMode::kNormal);
  SY_ASSERT_OK(experts_.Bind(direct.Binding()));

  experts_.Drop("demo", Epoch{1});

  EXPECT_FALSE(experts_.IsBound("demo", Epoch{1}));
  EXPECT_THAT(Run(direct.Chunk()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
}

TEST_F(DirectExpertsTest, SessionsOnSeveralThreadsGetTheirOwnAnswers) {
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([this, t] {
      Direct direct = MakeDirect(10 + t, 1, kModes[t % 2]);
      SY_ASSERT_OK(experts_.Bind(direct.Binding({.high = 1, .low = t})));
      for (int round = 0; round < 30; ++round) {
        std::fill(direct.chunk->out.begin(), direct.chunk->out.end(), kPoison);
        SY_ASSERT_OK(Run(direct.Chunk({.high = 1, .low = t})));
        ASSERT_EQ(direct.chunk->out, direct.Expected());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (std::uint64_t t = 0; t < 3; ++t) {
    EXPECT_EQ(experts_.CountersOf({.high = 1, .low = t})[0].frames, 30U);
  }
}

}  // namespace
}  // namespace switchyard
