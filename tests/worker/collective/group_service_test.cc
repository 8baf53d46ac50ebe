// A worker's part in groups, with sources of the test's own: joining, the order of forming, steps,
// and every way in which a group ends.
#include "worker/collective/expert/group_service.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/resolve/collective_group.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/epoch_testing.h"
#include "worker/collective/group_spec.h"
#include "worker/collective/shared_log.h"
#include "worker/collective/source_rank.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::MakePlan;
using testing::MakeStaged;

constexpr Duration kLong = std::chrono::seconds(20);
constexpr std::int32_t kTokens = 4;

class Source final : public GroupSink {
 public:
  Source(DeviceBackend* device, std::int32_t source, std::int32_t sources, std::uint64_t epoch = 1)
      : Source(device, MakePlan(epoch, 1), source, sources) {}
  Source(DeviceBackend* device, Plan plan, std::int32_t source, std::int32_t sources)
      : device_(device), plan_(std::move(plan)) {
    request.attach.session = {.high = 4, .low = static_cast<std::uint64_t>(source) + 1};
    request.attach.cookie = Cookie{99};
    request.attach.deployment = plan_.deployment;
    request.attach.phase = Phase::kDecode;
    request.attach.mode = DispatchMode::kLowLatency;
    request.attach.epoch = plan_.epoch;
    request.attach.hash = HashOf(plan_);
    request.attach.step_deadline = std::chrono::seconds(5);
    request.attach.max_tokens = kTokens;
    request.group = {.id = {.high = 1, .low = 2}, .source = source, .sources = sources};
    auto facts = ResolveCollective(plan_, {.phase = Phase::kDecode,
                                           .mode = DispatchMode::kLowLatency,
                                           .source = DeviceKind::kCpu,
                                           .max_tokens = kTokens,
                                           .sources = sources});
    SY_EXPECT_OK(facts.status());
    exchange_ = *device->MakeExchange(SpecOf(*facts), facts->workers + source);
    request.key = exchange_->key();
    stream_ = *device->MakeStream({});
    Sign();
  }
  // As streams end.
  ~Source() { Leave(); }
  void Leave() {
    for (const auto& [service, of] : std::exchange(joined_, {})) service->Leave(of);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  void Sign() { request.attach.signature = SignGrant(testing::TestGrantKey(), ClaimsOf(request)); }

  void OnSourceKeys(const SourceKeys& keys) override { source_keys = keys; }
  void OnReady() override { ready = ++ready_workers_ == joined_.size(); }
  void OnGroupEnded(const absl::Status& why) override {
    const MutexLock lock(mutex_);
    ended_ = why;
    changed_.NotifyAll();
  }
  // Why the group has ended; OK if it has not, `within` this time.
  absl::Status Ended(Duration within) {
    const TimePoint until = std::chrono::steady_clock::now() + within;
    const MutexLock lock(mutex_);
    while (!ended_.has_value()) {
      if (!changed_.WaitUntil(mutex_, until)) break;
    }
    return ended_.value_or(absl::OkStatus());
  }

  absl::Status Join(GroupService& service) { return Join(std::vector{&service}); }
  // Of the plan's workers, in their order; that of rank 0 is asked last.
  absl::Status Join(const std::vector<GroupService*>& services) {
    for (auto at = services.rbegin(); at != services.rend(); ++at) {
      auto joined = (*at)->Join(request, this);
      SY_RETURN_IF_ERROR(joined.status());
      member = joined->first;
      joined_.emplace_back(*at, member);
      worker_keys_.insert(worker_keys_.begin(), joined->second.key);
      if (!joined->second.log.empty()) request.logs.push_back(joined->second.log);
      SY_RETURN_IF_ERROR((*at)->Announce(member));
    }
    return absl::OkStatus();
  }
  // Where it shares the rank of a worker.
  absl::Status GiveKeysOfWorkers() {
    const GroupKeys keys{
        .keys = worker_keys_, .log = source_keys->log, .group = source_keys->group};
    SY_ASSIGN_OR_RETURN(log_, SharedLog::Open(keys.log, ""));
    for (const auto& [service, of] : joined_) SY_RETURN_IF_ERROR(service->TakeKeys(of, keys));
    return absl::OkStatus();
  }
  absl::Status GiveKeys() {
    GroupKeys keys{.keys = worker_keys_, .log = source_keys->log, .group = source_keys->group};
    keys.keys.insert(keys.keys.end(), source_keys->keys.begin(), source_keys->keys.end());
    SY_RETURN_IF_ERROR(exchange_->Join(keys.keys, std::chrono::seconds(5)));
    SY_ASSIGN_OR_RETURN(log_, SharedLog::Open(keys.log, ""));
    for (const auto& [service, of] : joined_) SY_RETURN_IF_ERROR(service->TakeKeys(of, keys));
    return absl::OkStatus();
  }
  // Appends a step of the group; it is not this source's part.
  void Append(LayerId layer, std::uint64_t epoch) {
    const std::uint64_t number = log_->log().end();
    const LoggedStep step{
        .group = source_keys->group, .layer = layer, .cover = kTokens, .epoch = epoch};
    ASSERT_EQ(log_->log().Append(number, step), StepLog::Appended::kYes);
  }
  absl::Status MakeStep(LayerId layer) {
    Append(layer, plan_.epoch.value);
    return TakePart(layer);
  }
  // This source's part in the next step, of `layer`, without tokens.
  absl::Status TakePart(LayerId layer) {
    const auto event = stream_->MakeEvent();
    SY_RETURN_IF_ERROR(exchange_->Step(stream_.get(), {.cover = kTokens, .layer = layer}));
    SY_RETURN_IF_ERROR(stream_->Record(event.get()));
    if (!event->Wait(kLong)) return absl::DeadlineExceededError("the step does not end");
    return exchange_->Fault();
  }

  JoinRequest request;
  GroupService::MemberId member = 0;
  std::optional<SourceKeys> source_keys;
  bool ready = false;

 private:
  DeviceBackend* const device_;
  const Plan plan_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<SharedLog> log_;
  std::vector<std::string> worker_keys_;
  std::vector<std::pair<GroupService*, GroupService::MemberId>> joined_;
  std::size_t ready_workers_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> ended_ SY_GUARDED_BY(mutex_);
};

class GroupServiceTest : public ::testing::Test {
 protected:
  GroupServiceTest()
      : device_(*CpuBackend::Create({.kernel_family = "scalar"})),
        experts_(*DirectExperts::Create(
            {.worker_id = "w0", .device = device_.get(), .batch = {.pairs_max = 64}})),
        made_(GroupService::Make({.worker_id = "w0",
                                  .device = device_,
                                  .experts = experts_.get(),
                                  .rng = &rng_,
                                  .ring_dir = {},
                                  .groups_max = 2})),
        service_(*made_) {
    Activate(1);
  }
  ~GroupServiceTest() override { service_.Stop(); }
  void Activate(std::uint64_t epoch) {
    experts_->Activate(MakeStaged(0, MakePlan(epoch, 1), device_.get()).runtime);
  }
  // The worker sees the end of a step after its sources do.
  bool WaitForSteps(std::uint64_t steps) {
    const TimePoint end = SteadyClock().Now() + kLong;
    while (service_.counts().steps.load() < steps && SteadyClock().Now() < end) {
      std::this_thread::yield();
    }
    return service_.counts().steps.load() == steps;
  }
  // One that is ready.
  std::unique_ptr<Source> Formed() {
    auto source = std::make_unique<Source>(device_.get(), 0, 1);
    SY_EXPECT_OK(source->Join(service_));
    SY_EXPECT_OK(source->GiveKeys());
    EXPECT_TRUE(source->ready);
    return source;
  }

  SystemRng rng_;
  std::shared_ptr<CpuBackend> device_;
  std::unique_ptr<DirectExperts> experts_;
  std::shared_ptr<GroupService> made_;
  GroupService& service_;
};

TEST_F(GroupServiceTest, SourcesHearOfEachOtherAndAreReadyTogether) {
  Source first(device_.get(), 0, 2);
  Source second(device_.get(), 1, 2);
  SY_ASSERT_OK(second.Join(service_));
  EXPECT_FALSE(second.source_keys.has_value()) << "the other has not joined";
  SY_ASSERT_OK(first.Join(service_));
  ASSERT_TRUE(first.source_keys.has_value());
  EXPECT_EQ(first.source_keys->keys,
            (std::vector<std::string>{first.request.key, second.request.key}));
  EXPECT_EQ(second.source_keys, first.source_keys);

  SY_ASSERT_OK(first.GiveKeys());
  EXPECT_FALSE(first.ready) << "the second does not look at the log yet";
  SY_ASSERT_OK(second.GiveKeys());
  EXPECT_TRUE(first.ready);
  EXPECT_TRUE(second.ready);

  for (int step = 0; step < 3; ++step) {
    first.Append(LayerId{step % 2}, 1);
    std::thread other([&] { SY_EXPECT_OK(second.TakePart(LayerId{step % 2})); });
    SY_EXPECT_OK(first.TakePart(LayerId{step % 2}));
    other.join();
  }
  EXPECT_EQ(service_.groups_open(), 1U);
  EXPECT_TRUE(WaitForSteps(3));
  EXPECT_EQ(service_.counts().failed.load(), 0U);
  EXPECT_EQ(service_.counts().step.Counts().count(), 3U);
  EXPECT_EQ(service_.counts().exchange.peer_wait.Counts().count(), 3U);
  EXPECT_EQ(service_.counts().exchange.rows.load(), 0U) << "no source had a token";
  first.Leave();
  EXPECT_EQ(service_.groups_open(), 0U);
  EXPECT_THAT(second.Ended(kLong), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_TRUE(first.Ended(Duration::zero()).ok()) << "it has left by itself";
}

TEST_F(GroupServiceTest, WhoWasNotGrantedItsPlaceIsRefused) {
  Source source(device_.get(), 0, 2);
  source.request.group.source = 1;  // another place than the signed one
  EXPECT_THAT(source.Join(service_),
              FailsWith(absl::StatusCode::kUnauthenticated, Reason::kBadGrant));
  source.request.group = {};
  EXPECT_THAT(source.Join(service_),
              FailsWith(absl::StatusCode::kUnauthenticated, Reason::kBadGrant));
  EXPECT_FALSE(experts_->IsBound("demo", Epoch{1})) << "nothing stays";

  Source stale(device_.get(), 0, 1, 7);
  EXPECT_THAT(stale.Join(service_),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
}

// Ids of sessions are no secret: who knows one can neither bind nor release anything.
TEST_F(GroupServiceTest, AStrangerWithTheIdOfASessionDoesItNoHarm) {
  auto source = Formed();
  Source stranger(device_.get(), 0, 1);  // of the same session
  stranger.request.attach.signature = {};
  EXPECT_THAT(stranger.Join(service_),
              FailsWith(absl::StatusCode::kUnauthenticated, Reason::kBadGrant));
  source->Append(LayerId{0}, 1);
  SY_EXPECT_OK(source->TakePart(LayerId{0}));
  // Nor a second stream of its own.
  Source again(device_.get(), 0, 1);
  EXPECT_THAT(again.Join(service_), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  source->Append(LayerId{1}, 1);
  SY_EXPECT_OK(source->TakePart(LayerId{1}));
}

TEST_F(GroupServiceTest, SourcesThatDoNotFitAreRefusedAndTheGroupGoesOn) {
  Source first(device_.get(), 0, 2);
  SY_ASSERT_OK(first.Join(service_));
  Source again(device_.get(), 0, 2);
  EXPECT_THAT(again.Join(service_), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  Source other(device_.get(), 1, 2);
  other.request.attach.max_tokens = 2;
  other.Sign();
  EXPECT_THAT(other.Join(service_),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  Source beyond(device_.get(), 1, 2);
  beyond.request.group.id.low = 77;
  beyond.request.group.source = 2;
  beyond.Sign();
  EXPECT_THAT(beyond.Join(service_),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));

  Source second(device_.get(), 1, 2);
  SY_EXPECT_OK(second.Join(service_));
  EXPECT_TRUE(first.source_keys.has_value());
}

TEST_F(GroupServiceTest, GroupsAreBounded) {
  std::vector<std::unique_ptr<Source>> sources;
  for (std::uint64_t g = 0; g < 3; ++g) {
    sources.push_back(std::make_unique<Source>(device_.get(), 0, 1));
    sources.back()->request.group.id.low = 10 + g;
    sources.back()->Sign();
  }
  SY_ASSERT_OK(sources[0]->Join(service_));
  SY_ASSERT_OK(sources[1]->Join(service_));
  EXPECT_THAT(sources[2]->Join(service_),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions));
  sources[0]->Leave();
  SY_EXPECT_OK(sources[2]->Join(service_));
}

// The number is what a source says, and a step in the log reaches the group that has it.
TEST_F(GroupServiceTest, TheNumberOfAnotherGroupIsRefusedAndThatGroupGoesOn) {
  const auto source = Formed();
  Source other(device_.get(), 0, 1);
  other.request.group.id.low = 77;
  other.Sign();
  SY_ASSERT_OK(other.Join(service_));
  other.source_keys->group = source->source_keys->group;

  EXPECT_THAT(other.GiveKeys(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));

  ASSERT_NO_FATAL_FAILURE(source->Append(LayerId{0}, 1));
  SY_EXPECT_OK(source->TakePart(LayerId{0}));
  EXPECT_TRUE(WaitForSteps(1));
}

TEST_F(GroupServiceTest, AStepOfAnEpochOrALayerThatItLacksEndsTheGroup) {
  auto source = Formed();
  source->Append(LayerId{0}, 9);
  const absl::Status epoch = source->Ended(kLong);
  EXPECT_THAT(epoch, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));

  source = Formed();
  source->Append(LayerId{40}, 1);
  EXPECT_THAT(source->Ended(kLong), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  EXPECT_FALSE(experts_->IsBound("demo", Epoch{1}));
  EXPECT_EQ(service_.counts().failed.load(), 2U);
}

// The source has appended a step and never takes part.
TEST_F(GroupServiceTest, ASourceThatStandsStillEndsTheGroupInItsDeadline) {
  auto source = std::make_unique<Source>(device_.get(), 0, 1);
  source->request.attach.step_deadline = std::chrono::milliseconds(100);
  SY_ASSERT_OK(source->Join(service_));
  SY_ASSERT_OK(source->GiveKeys());
  source->Append(LayerId{0}, 1);

  const absl::Status ended = source->Ended(kLong);

  EXPECT_THAT(ended, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(std::string(ended.message()), HasSubstr("rank 1, step 0"));
  EXPECT_EQ(service_.counts().failed.load(), 1U);
  EXPECT_EQ(service_.counts().steps.load(), 0U);
}

// Its stream ends, which is evidence: other groups of the worker do not wait for the deadline.
TEST_F(GroupServiceTest, ASourceThatLeavesIsWaitedForNoLonger) {
  auto source = Formed();
  source->Append(LayerId{0}, 1);
  const auto begun = std::chrono::steady_clock::now();
  source->Leave();
  auto other = std::make_unique<Source>(device_.get(), 0, 1);
  other->request.group.id.low = 5;
  other->Sign();
  SY_ASSERT_OK(other->Join(service_));
  SY_ASSERT_OK(other->GiveKeys());
  other->Append(LayerId{1}, 1);

  SY_EXPECT_OK(other->TakePart(LayerId{1}));

  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(4))
      << "the deadline is 5 s";
}

TEST_F(GroupServiceTest, AnEpochIsBoundAndReleasedOnTheStream) {
  auto source = Formed();
  Activate(2);
  SY_ASSERT_OK(service_.Bind(source->member, {.epoch = Epoch{2}, .hash = HashOf(MakePlan(2, 1))}));
  EXPECT_THAT(service_.Bind(source->member, {.epoch = Epoch{3}, .hash = {}}),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  source->Append(LayerId{1}, 2);
  SY_EXPECT_OK(source->TakePart(LayerId{1}));
  service_.Release(source->member, {Epoch{1}});
  EXPECT_FALSE(experts_->IsBound("demo", Epoch{1}));
  source->Append(LayerId{1}, 2);
  SY_EXPECT_OK(source->TakePart(LayerId{1}));
  source->Leave();
  EXPECT_FALSE(experts_->IsBound("demo", Epoch{2}));
}

// One in the process of this worker has no key and no rank of its own.
TEST_F(GroupServiceTest, ASourceThatSharesTheRankMakesTheWorkersPartItself) {
  Source source(device_.get(), 0, 1);
  source.request.group.hosts = {"w0"};
  source.Sign();
  EXPECT_THAT(source.Join(service_),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest))
      << "it has a key";
  source.request.key.clear();
  SY_ASSERT_OK(source.Join(service_));
  const GroupId id = source.request.group.id;
  EXPECT_THAT(service_.RankOf(id, Epoch{1}, [] {}).status(),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost))
      << "it is not formed";
  ASSERT_TRUE(source.source_keys.has_value());
  EXPECT_TRUE(source.source_keys->keys.empty());
  SY_ASSERT_OK(source.GiveKeysOfWorkers());
  SY_ASSERT_OK_AND_ASSIGN(const auto rank, service_.RankOf(id, Epoch{1}, [] {}));

  std::unique_ptr<DeviceEvent> event;
  const auto step = [&](LayerId layer) {
    return rank->Use([&](RankTurn& turn) {
      event = turn.stream().MakeEvent();
      const LoggedStep wanted{.group = rank->group(), .layer = layer, .cover = 1, .epoch = 1};
      SY_RETURN_IF_ERROR(turn.MakeStep(wanted, {}, TimePoint::min()).status());
      return turn.stream().Record(event.get());
    });
  };
  SY_ASSERT_OK(step(LayerId{0}));
  ASSERT_TRUE(event->Wait(kLong));
  SY_EXPECT_OK(rank->exchange().Fault());
  EXPECT_EQ(rank->steps(), 1U);
  EXPECT_TRUE(WaitForSteps(1));

  // A step that it never joins is made without it, after a millisecond.
  source.Append(LayerId{1}, 1);
  EXPECT_TRUE(WaitForSteps(2));
  EXPECT_EQ(rank->steps(), 2U);

  EXPECT_THAT(step(LayerId{40}), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  EXPECT_THAT(source.Ended(kLong), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  EXPECT_THAT(step(LayerId{0}), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  service_.Stop();
  EXPECT_THAT(step(LayerId{0}), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(service_.RankOf(id, Epoch{1}, [] {}).status(),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(GroupServiceTest, AWorkerThatEndsTellsItsSources) {
  auto source = Formed();
  service_.Stop();
  EXPECT_THAT(source->Ended(kLong), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  Source late(device_.get(), 0, 1);
  EXPECT_THAT(late.Join(service_), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

// A worker as a process has it.
class Worker {
 public:
  explicit Worker(std::int32_t number)
      : number_(number),
        experts_(*DirectExperts::Create({.worker_id = absl::StrCat("w", number),
                                         .device = device_.get(),
                                         .batch = {.pairs_max = 64}})),
        made_(GroupService::Make({.worker_id = absl::StrCat("w", number),
                                  .device = device_,
                                  .experts = experts_.get(),
                                  .rng = &rng_,
                                  .ring_dir = {}})),
        service(*made_) {}
  ~Worker() { service.Stop(); }
  void Activate(const Plan& plan) {
    experts_->Activate(MakeStaged(number_, plan, device_.get()).runtime);
  }
  DeviceBackend* device() { return device_.get(); }

 private:
  const std::int32_t number_;
  SystemRng rng_;
  std::shared_ptr<CpuBackend> device_ = *CpuBackend::Create({.kernel_family = "scalar"});
  std::unique_ptr<DirectExperts> experts_;
  std::shared_ptr<GroupService> made_;

 public:
  GroupService& service;
};

// Of worker w1 alone.
Plan PlanOfTheSecond(std::uint64_t epoch) {
  Plan plan = MakePlan(epoch, 1);
  plan.workers[0].id = "w1";
  plan.workers[0].incarnation = testing::IncarnationOf(1);
  return plan;
}

// As when the first worker of a plan leaves and comes back while steps go on.
TEST(GroupsOfTwoWorkersTest, ThoseOfANewPlanFormBesideThoseOfTheFormerOne) {
  auto first = std::make_unique<Worker>(0);
  Worker second(1);
  const Plan both = MakePlan(1, 2);
  first->Activate(both);
  second.Activate(both);
  auto before = std::make_unique<Source>(second.device(), both, 0, 1);
  SY_ASSERT_OK(before->Join({&first->service, &second.service}));
  SY_ASSERT_OK(before->GiveKeys());
  ASSERT_TRUE(before->ready);
  SY_EXPECT_OK(before->MakeStep(LayerId{0}));

  second.Activate(PlanOfTheSecond(2));
  Source alone(second.device(), PlanOfTheSecond(2), 0, 1);
  SY_ASSERT_OK(alone.Join(second.service));
  SY_ASSERT_OK(alone.GiveKeys());
  ASSERT_TRUE(alone.ready);
  EXPECT_NE(alone.source_keys->group, before->source_keys->group);
  SY_EXPECT_OK(before->MakeStep(LayerId{1}));
  SY_EXPECT_OK(alone.MakeStep(LayerId{1}));

  before.reset();
  first.reset();  // with the socket under which the log was offered first
  SY_EXPECT_OK(alone.MakeStep(LayerId{0}));

  Worker again(0);
  const Plan later = MakePlan(3, 2);
  again.Activate(later);
  second.Activate(later);
  Source after(second.device(), later, 0, 1);
  SY_ASSERT_OK(after.Join({&again.service, &second.service}));
  SY_ASSERT_OK(after.GiveKeys());
  ASSERT_TRUE(after.ready);
  SY_EXPECT_OK(alone.MakeStep(LayerId{0}));
  SY_EXPECT_OK(after.MakeStep(LayerId{0}));
  alone.Leave();
  SY_EXPECT_OK(after.MakeStep(LayerId{1}));
  EXPECT_EQ(again.service.groups_open(), 1U);
  EXPECT_EQ(second.service.groups_open(), 1U);
}

TEST(GroupsOfTwoWorkersTest, WorkersOfGroupsThatWereFormedApartMakeNone) {
  Worker first(0);
  Worker second(1);
  first.Activate(MakePlan(1, 1));
  second.Activate(PlanOfTheSecond(2));
  Source of_first(first.device(), MakePlan(1, 1), 0, 1);
  Source of_second(first.device(), PlanOfTheSecond(2), 0, 1);
  SY_ASSERT_OK(of_first.Join(first.service));
  SY_ASSERT_OK(of_first.GiveKeys());
  SY_ASSERT_OK(of_second.Join(second.service));
  SY_ASSERT_OK(of_second.GiveKeys());
  const Plan both = MakePlan(3, 2);
  first.Activate(both);
  second.Activate(both);
  auto of_both = std::make_unique<Source>(first.device(), both, 0, 1);

  EXPECT_THAT(of_both->Join({&first.service, &second.service}),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported));

  SY_EXPECT_OK(of_first.MakeStep(LayerId{0}));
  SY_EXPECT_OK(of_second.MakeStep(LayerId{0}));
  of_both.reset();
  of_first.Leave();
  of_both = std::make_unique<Source>(first.device(), both, 0, 1);
  SY_ASSERT_OK(of_both->Join({&first.service, &second.service}));
  SY_ASSERT_OK(of_both->GiveKeys());
  SY_EXPECT_OK(of_both->MakeStep(LayerId{1}));
  SY_EXPECT_OK(of_second.MakeStep(LayerId{1}));
}

// It may be in another group since it said what it follows.
TEST(GroupsOfTwoWorkersTest, AWorkerThatHasChosenAnotherLogMeanwhileAsksToTryAgain) {
  Worker first(0);
  Worker second(1);
  second.Activate(PlanOfTheSecond(2));
  const Plan both = MakePlan(3, 2);
  first.Activate(both);
  second.Activate(both);
  Source of_both(first.device(), both, 0, 1);
  SY_ASSERT_OK(of_both.Join({&first.service, &second.service}));
  Source of_second(first.device(), PlanOfTheSecond(2), 0, 1);
  SY_ASSERT_OK(of_second.Join(second.service));
  SY_ASSERT_OK(of_second.GiveKeys());

  EXPECT_THAT(of_both.GiveKeys(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));

  SY_EXPECT_OK(of_second.MakeStep(LayerId{0}));
}

}  // namespace
}  // namespace switchyard
