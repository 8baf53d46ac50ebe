// The driver with its real threads. Waiting is for conditions, each with a generous time-out.
#include "coordinator/driver.h"

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "coordinator/applies.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FailsWith;
using testing::MakeSpec;

const auto kStopped = FailsWith(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost);

// A worker that says yes to everything, on the driver's own thread.
class YesWorker final : public WorkerStreamSink {
 public:
  YesWorker(Driver* driver, const std::string& id, Incarnation incarnation)
      : driver_(driver), id_(id), incarnation_(incarnation) {}
  ~YesWorker() override { Hangup(); }

  void Dial(std::vector<ResidentEpoch> resident = {}) {
    auto stream = driver_->OpenWorkerStream(this);
    SY_ASSERT_OK(stream);
    stream_ = *stream;
    Say(Register{id_, incarnation_, id_ + ":1", testing::MakeCapabilities(), std::move(resident)});
  }
  void Hangup() {
    if (stream_.value != 0) driver_->OnWorkerStreamClosed(std::exchange(stream_, StreamId{}));
  }
  void Say(WorkerMessage message) {
    driver_->OnWorkerMessage(stream_, std::move(message)).IgnoreError();
  }

  void Send(const CoordinatorMessage& message) override {
    if (const auto* prepare = std::get_if<Prepare>(&message)) {
      ++prepares;
      Say(PrepareAck{prepare->plan.deployment, prepare->plan.epoch, prepare->nonce, prepare->hash});
    } else if (const auto* commit = std::get_if<Commit>(&message)) {
      Say(CommitAck{commit->deployment, commit->epoch, commit->hash});
    } else if (const auto* retire = std::get_if<Retire>(&message)) {
      Say(RetireAck{retire->deployment, retire->epoch});
    }
  }
  void Close(const absl::Status& why) override {
    ++closes;
    closed = why;
  }

  std::atomic<int> prepares{0};
  std::atomic<int> closes{0};
  absl::Status closed;

 private:
  Driver* driver_;
  std::string id_;
  Incarnation incarnation_;
  StreamId stream_;
};

class NewsRecorder final : public PlanUpdateSink {
 public:
  void OnPlanUpdate(const std::shared_ptr<const PlanUpdate>& news) override {
    const std::lock_guard lock(mutex_);
    epochs_.push_back(news->plan.epoch.value);
    changed_.notify_all();
  }
  void OnClosed(const absl::Status& why) override {
    const std::lock_guard lock(mutex_);
    closed_ = why;
    changed_.notify_all();
  }
  bool WaitForNews() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(30), [this] { return !epochs_.empty(); });
  }
  std::optional<absl::Status> WaitForClose() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, seconds(30), [this] { return closed_.has_value(); });
    return closed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint64_t> epochs_;
  std::optional<absl::Status> closed_;
};

class DriverTest : public ::testing::Test {
 protected:
  void Start(std::unique_ptr<StateStore> store = std::make_unique<MemoryStore>(),
             DriverOptions options = {}) {
    Driver::Parts parts{std::move(store), check_model, load_model, &clock_, &rng_,
                        &logger_,         &once_};
    auto made = Driver::Create(std::move(options), std::move(parts));
    SY_ASSERT_OK(made);
    driver = *std::move(made);
  }
  absl::StatusOr<DeploymentView> Apply(const DeploymentSpec& spec) {
    auto answer = std::make_shared<std::promise<absl::StatusOr<DeploymentView>>>();
    driver->ApplyDeployment(spec, false, [answer](auto result) { answer->set_value(result); });
    return answer->get_future().get();
  }
  absl::StatusOr<SessionGrant> OpenNow() {
    auto answer = std::make_shared<std::promise<absl::StatusOr<SessionGrant>>>();
    OpenSessionRequest order;
    order.model = "m";
    driver->OpenSession(order, [answer](auto result) { answer->set_value(result); });
    return answer->get_future().get();
  }
  // Until the deployment serves.
  absl::StatusOr<SessionGrant> Open() {
    const TimePoint end = clock_.Now() + seconds(30);
    auto grant = OpenNow();
    while (!grant.ok() && clock_.Now() < end) grant = OpenNow();
    return grant;
  }
  std::unique_ptr<YesWorker> Join(const std::string& id, std::vector<ResidentEpoch> held = {}) {
    auto worker = std::make_unique<YesWorker>(driver.get(), id, Incarnation{1, id.size()});
    worker->Dial(std::move(held));
    return worker;
  }

  ModelChecker check_model = [](const std::string&) { return testing::MakeLayout(); };
  ModelLoader load_model = [](const std::string&, const ManifestProgress&) {
    return testing::MakeFacts();
  };
  SteadyClock clock_;
  SystemRng rng_;
  Logger logger_{"coordinator", LogLevel::kOff};
  OnceSet once_;
  std::unique_ptr<Driver> driver;
};

TEST_F(DriverTest, ServesADeploymentFromApplyToSession) {
  Start();
  const auto a = Join("a");
  const auto b = Join("bb");
  SY_ASSERT_OK(Apply(MakeSpec(2)));

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, Open());

  EXPECT_EQ(grant.plan.workers.size(), 2U);
  const CoordinatorView view = driver->View();
  ASSERT_EQ(view.deployments.size(), 1U);
  EXPECT_EQ(view.deployments[0].state, DeploymentState::kServing);
  EXPECT_EQ(view.deployments[0].sessions, 1);
  ASSERT_EQ(view.workers.size(), 2U);
  EXPECT_EQ(view.workers[0].experts, 16);
  std::promise<absl::Status> closed;
  driver->CloseSession(grant.session, [&closed](absl::Status s) { closed.set_value(s); });
  SY_EXPECT_OK(closed.get_future().get());
  EXPECT_EQ(driver->View().deployments[0].sessions, 0);
}

// What a health check and a scrape read while the driver's own lock may be held.
TEST_F(DriverTest, CountsItsTurnsAndItsWrites) {
  class FullStore final : public StateStore {
   public:
    absl::Status Write(const StoreWrite& write) override {
      if (full) return absl::UnavailableError("the disk is full");
      return memory.Write(write);
    }
    absl::StatusOr<StoredState> Load() override { return memory.Load(); }
    MemoryStore memory;
    std::atomic<bool> full{false};
  };
  auto store = std::make_unique<FullStore>();
  FullStore* disk = store.get();
  Start(std::move(store));
  const auto worker = Join("a");
  SY_ASSERT_OK(Apply(MakeSpec(1)));
  SY_ASSERT_OK(Open());
  const DriverCounters& counters = driver->counters();
  EXPECT_GT(counters.store_writes, 1U);
  EXPECT_EQ(counters.store_writes_failed, 0U);
  const DeploymentView served = driver->View().deployments[0];
  EXPECT_EQ(served.changes.served, 1U);
  EXPECT_EQ(served.changes.failed, 0U);

  disk->full = true;
  EXPECT_FALSE(Apply(MakeSpec(2)).ok());
  EXPECT_EQ(counters.store_writes_failed, 1U);

  const std::uint64_t turns = counters.turns;
  const TimePoint end = clock_.Now() + seconds(20);
  while (counters.turns < turns + 2 && clock_.Now() < end) {
  }
  EXPECT_GE(counters.turns, turns + 2) << "an idle driver turns";
}

int CountOf(const std::string& what, const std::string& text) {
  int count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// R2, R17: one line for each reason and process, however many layers, plans and deployments have
// it.
TEST_F(DriverTest, LogsAWarningOfPlansOnceAProcess) {
  DriverOptions options;
  options.coordinator.dispatch.bf16_dispatch_flag = "the coordinator's environment";
  Logger loud("coordinator", LogLevel::kWarn);
  ::testing::internal::CaptureStderr();
  for (int life = 0; life < 2; ++life) {
    auto made = Driver::Create(options, {.store = std::make_unique<MemoryStore>(),
                                         .check_model = check_model,
                                         .load_model = load_model,
                                         .clock = &clock_,
                                         .rng = &rng_,
                                         .logger = &loud,
                                         .once = &once_});
    SY_ASSERT_OK(made);
    driver = *std::move(made);
    auto a = Join("a");
    SY_ASSERT_OK(Apply(MakeSpec(1)));
    SY_ASSERT_OK(Open());
    DeploymentSpec second = MakeSpec(1);
    second.name = "second";
    SY_ASSERT_OK(Apply(second));
    a.reset();
    driver.reset();
  }
  const std::string log = ::testing::internal::GetCapturedStderr();

  EXPECT_EQ(CountOf("SGLANG_DEEPEP_BF16_DISPATCH is deprecated", log), 1) << log;
  EXPECT_EQ(CountOf("write --dispatcher-output-dtype bf16 instead", log), 1) << log;
}

TEST_F(DriverTest, WatchesHearOfANewEpoch) {
  Start();
  const auto a = Join("a");
  SY_ASSERT_OK(Apply(MakeSpec(1)));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, Open());
  NewsRecorder news;
  SY_ASSERT_OK_AND_ASSIGN(
      const WatchId watch,
      driver->Watch({grant.session, "demo", Phase::kMixed, grant.plan.epoch, grant.hash}, &news));

  const auto b = Join("bb");

  EXPECT_TRUE(news.WaitForNews());
  driver->StopWatch(watch);
}

TEST_F(DriverTest, RefusedWatchesAreClosedOnce) {
  Start();
  NewsRecorder news;

  SY_ASSERT_OK(driver->Watch({{}, "none", Phase::kMixed, Epoch{1}, {}}, &news));

  const auto closed = news.WaitForClose();
  ASSERT_TRUE(closed.has_value());
  EXPECT_THAT(*closed, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST_F(DriverTest, AStreamThatEndsIsADeath) {
  DriverOptions options;
  options.coordinator.stream_grace = milliseconds(20);
  Start(std::make_unique<MemoryStore>(), options);
  auto a = Join("a");
  const auto b = Join("bb");
  SY_ASSERT_OK(Apply(MakeSpec(2)));
  SY_ASSERT_OK(Open());

  a.reset();

  const TimePoint end = clock_.Now() + seconds(30);
  std::size_t workers = 2;
  while (workers != 1 && clock_.Now() < end) {
    const CoordinatorView view = driver->View();
    if (view.deployments[0].state != DeploymentState::kServing) continue;
    workers = view.deployments[0].serving->plan.workers.size();
  }
  EXPECT_EQ(workers, 1U);
}

TEST_F(DriverTest, ReturnsToItsStoreWithTheSameEpoch) {
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("sy_driver_", getpid());
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "state.db").string();
  SY_ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path));
  Start(std::move(store));
  auto a = Join("a");
  SY_ASSERT_OK(Apply(MakeSpec(1)));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant before, Open());
  a.reset();
  driver.reset();
  SY_ASSERT_OK_AND_ASSIGN(store, SqliteStore::Open(path));

  Start(std::move(store));
  a = Join("a", {{"demo", before.plan.epoch, before.hash, true}});
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant after, Open());

  EXPECT_EQ(after.hash, before.hash);
  EXPECT_EQ(a->prepares, 0);
  a.reset();
  driver.reset();
  std::filesystem::remove_all(folder);
}

// While a checkpoint is read, the coordinator goes on and says how far that is.
TEST_F(DriverTest, ShowsACheckpointThatIsRead) {
  std::promise<void> go;
  load_model = [wait = go.get_future().share()](
                   const std::string&,
                   const ManifestProgress& progress) -> absl::StatusOr<ModelFacts> {
    EXPECT_TRUE(progress(30, 100));
    wait.wait();
    EXPECT_TRUE(progress(100, 100));
    return testing::MakeFacts();
  };
  Start();
  auto applied = std::make_shared<std::promise<absl::Status>>();
  driver->ApplyDeployment(MakeSpec(1), false,
                          [applied](auto result) { applied->set_value(result.status()); });

  const CoordinatorView view = driver->WaitForView(
      [](const CoordinatorView& now) {
        return now.deployments.size() == 1 && now.deployments[0].reading &&
               now.deployments[0].reading->bytes_done == 30;
      },
      seconds(30));

  ASSERT_EQ(view.deployments.size(), 1U);
  EXPECT_EQ(view.deployments[0].state, DeploymentState::kReading);
  EXPECT_EQ(view.deployments[0].activity, "reading /models/m (30 of 100 B)");
  go.set_value();
  SY_EXPECT_OK(applied->get_future().get());
  // The apply may have been answered while the checkpoint was still read.
  const CoordinatorView after = driver->WaitForView(
      [](const CoordinatorView& now) {
        return now.deployments.size() == 1 && now.deployments[0].state == DeploymentState::kPending;
      },
      seconds(30));
  ASSERT_EQ(after.deployments.size(), 1U);
  EXPECT_EQ(after.deployments[0].state, DeploymentState::kPending);
}

// The tick is far away, and the checkpoint takes its time.
TEST_F(DriverTest, AnApplyIsAnsweredWithoutATick) {
  std::promise<void> go;
  load_model = [wait = go.get_future().share()](const std::string&, const ManifestProgress&) {
    wait.wait();
    return testing::MakeFacts();
  };
  DriverOptions options;
  options.tick = seconds(60);
  Start(std::make_unique<MemoryStore>(), options);
  const TimePoint begin = clock_.Now();

  SY_EXPECT_OK(Apply(MakeSpec(2)));

  EXPECT_GE(clock_.Now() - begin, kApplyAnswer);
  EXPECT_LT(clock_.Now() - begin, seconds(30));
  go.set_value();
}

TEST_F(DriverTest, ShutdownAnswersAndClosesEverythingOnce) {
  std::promise<void> loading;
  const auto go = std::make_shared<std::promise<void>>();
  load_model = [&loading, wait = go->get_future().share(), go](
                   const std::string&, const ManifestProgress&) -> absl::StatusOr<ModelFacts> {
    loading.set_value();
    wait.wait();
    return testing::MakeFacts();
  };
  Start();
  const auto a = Join("a");
  std::promise<absl::Status> applied;
  driver->ApplyDeployment(MakeSpec(1), false,
                          [&applied](auto result) { applied.set_value(result.status()); });
  loading.get_future().wait();

  EXPECT_FALSE(driver->Shutdown(milliseconds(1)));  // The load still runs.

  EXPECT_THAT(applied.get_future().get(), kStopped);
  EXPECT_EQ(a->closes, 1);
  EXPECT_THAT(a->closed, kStopped);
  EXPECT_THAT(OpenNow(), kStopped);
  EXPECT_THAT(driver->OpenWorkerStream(a.get()), kStopped);
  go->set_value();
  EXPECT_TRUE(driver->Shutdown(seconds(30)));
  EXPECT_EQ(a->closes, 1);
}

TEST_F(DriverTest, RefusesWhenTheQueueIsFull) {
  DriverOptions options;
  options.queue_max = 4;
  std::promise<void> entered;
  std::promise<void> release;
  load_model = [](const std::string&, const ManifestProgress&) -> absl::StatusOr<ModelFacts> {
    return MakeError(absl::StatusCode::kNotFound, Reason::kCheckpoint, "none");
  };
  Start(std::make_unique<MemoryStore>(), options);
  driver->ApplyDeployment(MakeSpec(1), false, [&](auto) {
    entered.set_value();
    release.get_future().wait();  // The driver thread is busy.
  });
  entered.get_future().wait();

  std::atomic<int> refused = 0;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 10; ++i) {
    OpenSessionRequest order;
    driver->OpenSession(order, [&](auto result) {
      ++answered;
      if (ReasonOf(result.status()) == Reason::kNoCredits) ++refused;
    });
  }
  EXPECT_EQ(refused, 6);
  EXPECT_THAT(driver->OnWorkerMessage(StreamId{1}, Heartbeat{}),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  release.set_value();
  driver->Shutdown(seconds(10));
  EXPECT_EQ(answered, 10);
}

TEST_F(DriverTest, ASinkIsNotCalledAfterItsStreamWasClosed) {
  Start();
  const auto a = Join("a");
  SY_ASSERT_OK(Apply(MakeSpec(1)));
  for (int round = 0; round < 200; ++round) {
    auto b = std::make_unique<YesWorker>(driver.get(), "b",
                                         Incarnation{2, 7U + static_cast<std::uint64_t>(round)});
    b->Dial();
    if (round % 2 == 0) b->Say(Leave{});
    b.reset();  // Touched afterwards, it is a use after free for the sanitizers.
  }
}

TEST_F(DriverTest, RefusesAnUnknownPlacementPolicy) {
  DriverOptions options;
  options.placement = "astrology";
  Driver::Parts parts{
      std::make_unique<MemoryStore>(), check_model, load_model, &clock_, &rng_, &logger_};

  EXPECT_THAT(Driver::Create(options, std::move(parts)),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
