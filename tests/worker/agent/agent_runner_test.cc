// The runner with its real thread, against a channel and a stager played by the test.
#include "worker/agent/agent_runner.h"

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/plan.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Incarnation kMe{1, 2};

// The coordinator's side: records what is sent, in one place, and can speak through the sink.
class FakeChannel final : public AgentChannel {
 public:
  class Stream final : public AgentStream {
   public:
    explicit Stream(FakeChannel* channel) : channel_(channel) {}
    ~Stream() override {
      const std::lock_guard lock(channel_->mutex_);
      channel_->sink_ = nullptr;
      ++channel_->ended_;
      channel_->changed_.notify_all();
    }
    void Send(const WorkerMessage& message) override {
      const std::lock_guard lock(channel_->mutex_);
      channel_->sent_.push_back(message);
      channel_->changed_.notify_all();
    }

   private:
    FakeChannel* channel_;
  };

  std::unique_ptr<AgentStream> Open(AgentStreamSink* sink) override {
    const std::lock_guard lock(mutex_);
    sink_ = sink;
    ++opened_;
    changed_.notify_all();
    return std::make_unique<Stream>(this);
  }
  bool WaitForDials(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(30),
                             [&] { return opened_ >= count && sink_ != nullptr; });
  }
  bool WaitForEnds(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(30), [&] { return ended_ >= count; });
  }
  template <typename T>
  std::optional<T> WaitFor() {
    std::unique_lock lock(mutex_);
    std::optional<T> found;
    changed_.wait_for(lock, seconds(30), [&] {
      for (const WorkerMessage& message : sent_) {
        if (const T* m = std::get_if<T>(&message)) found = *m;
      }
      return found.has_value();
    });
    return found;
  }
  void Up() { Sink()->OnUp(); }
  void Say(CoordinatorMessage message) { Sink()->OnMessage(std::move(message)); }
  void Down(const absl::Status& why) { Sink()->OnDown(why); }

 private:
  AgentStreamSink* Sink() {
    const std::lock_guard lock(mutex_);
    return sink_;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  AgentStreamSink* sink_ = nullptr;
  int opened_ = 0;
  int ended_ = 0;
  std::vector<WorkerMessage> sent_;
};

// Stages immediately unless it is held; records its calls.
class FakeStager final : public PlanStager {
 public:
  void StagePlan(const Prepare& prepare, std::function<void(absl::Status)> done) override {
    Note("stage", {prepare.plan.deployment, prepare.plan.epoch});
    held_done = done;
    if (!hold) done(absl::OkStatus());
  }
  void Activate(const EpochKey& key) override { Note("activate", key); }
  void Retire(const EpochKey& key, std::function<void()> unbound) override {
    Note("retire", key);
    unbound();
  }
  void ShortenRetire(const EpochKey& key, Duration /*within*/) override { Note("shorten", key); }
  void Drop(const EpochKey& key) override { Note("drop", key); }
  void UseTracing(const TraceSettings& settings) override {
    Note(absl::StrCat("trace", settings.ratio, "@", settings.endpoint), {});
  }
  Heartbeat MakeHeartbeat() const override { return {.progress = 42}; }
  bool IsInUse() const override { return in_use; }

  std::string Calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  std::atomic<bool> hold{false};
  std::atomic<bool> in_use{false};
  std::function<void(absl::Status)> held_done;

 private:
  void Note(const std::string& what, const EpochKey& key) {
    const std::lock_guard lock(mutex_);
    calls_ += what + std::to_string(key.epoch.value) + " ";
  }
  std::mutex mutex_;
  std::string calls_;
};

Prepare PrepareFirst() {
  Prepare prepare;
  prepare.nonce = 5;
  prepare.plan.deployment = "demo";
  prepare.plan.epoch = Epoch{1};
  prepare.plan.shape = {.hidden = 8, .intermediate = 4, .experts = 1, .top_k = 1};
  prepare.plan.workers = {{"w", kMe, "h:1", DeviceKind::kCpu, "scalar"}};
  prepare.plan.layers = {{LayerId{0}, {{ExpertId{0}, WorkerOrdinal{0}, SlotId{0}}}}};
  prepare.plan.configs.resize(1);
  prepare.hash = HashOf(prepare.plan);
  return prepare;
}

class AgentRunnerTest : public ::testing::Test {
 protected:
  void Start() {
    AgentOptions options;
    options.worker_id = "w";
    options.incarnation = kMe;
    options.endpoint = "h:1";
    runner = std::make_unique<AgentRunner>(
        options, AgentRunner::Parts{&channel, &stager, &clock_, &rng_, &logger_},
        [this](absl::Status why) { finished.set_value(std::move(why)); });
  }
  void Connect(Duration lease_ttl = seconds(2)) {
    ASSERT_TRUE(channel.WaitForDials(1));
    channel.Up();
    ASSERT_TRUE(channel.WaitFor<Register>().has_value());
    channel.Say(Registered{lease_ttl});
  }

  FakeChannel channel;
  FakeStager stager;
  SteadyClock clock_;
  SystemRng rng_;
  Logger logger_{"worker", LogLevel::kOff};
  std::promise<absl::Status> finished;
  std::unique_ptr<AgentRunner> runner;
};

TEST_F(AgentRunnerTest, PassesOnHowToTrace) {
  Start();
  Connect();

  channel.Say(Registered{std::chrono::seconds(2), {.ratio = 0.5, .endpoint = "collector:4317"}});
  channel.Say(PrepareFirst());
  ASSERT_TRUE(channel.WaitFor<PrepareAck>().has_value());

  EXPECT_EQ(stager.Calls(), "trace0.5@collector:43170 stage1 ");
}

TEST_F(AgentRunnerTest, TakesAnEpochFromPrepareToRetire) {
  Start();
  Connect();
  const Prepare prepare = PrepareFirst();

  channel.Say(prepare);
  ASSERT_TRUE(channel.WaitFor<PrepareAck>().has_value());
  channel.Say(Commit{"demo", Epoch{1}, prepare.hash});
  ASSERT_TRUE(channel.WaitFor<CommitAck>().has_value());
  EXPECT_EQ(runner->View().resident.size(), 1U);
  channel.Say(Retire{"demo", Epoch{1}});
  ASSERT_TRUE(channel.WaitFor<RetireAck>().has_value());

  EXPECT_EQ(stager.Calls(), "stage1 activate1 retire1 drop1 ");
  EXPECT_TRUE(runner->View().resident.empty());
  EXPECT_TRUE(runner->View().registered);
}

TEST_F(AgentRunnerTest, HeartbeatsWithTheRuntimesProgress) {
  Start();
  Connect(milliseconds(40));

  const auto heartbeat = channel.WaitFor<Heartbeat>();

  ASSERT_TRUE(heartbeat.has_value());
  EXPECT_EQ(heartbeat->progress, 42U);
}

TEST_F(AgentRunnerTest, DialsAgainWhenTheStreamEnds) {
  Start();
  Connect();
  channel.Down(absl::UnavailableError("reset"));

  EXPECT_TRUE(channel.WaitForDials(2));
  EXPECT_EQ(runner->View().last_stream_end.message(), "reset");
}

TEST_F(AgentRunnerTest, LeavesAndFinishes) {
  Start();
  Connect();
  runner->Leave();
  ASSERT_TRUE(channel.WaitFor<Leave>().has_value());

  channel.Say(Goodbye{});

  SY_EXPECT_OK(finished.get_future().get());
  EXPECT_TRUE(channel.WaitForEnds(1));
}

TEST_F(AgentRunnerTest, AStagerMayAnswerAfterTheRunnerIsGone) {
  stager.hold = true;
  Start();
  Connect();
  channel.Say(PrepareFirst());
  while (stager.Calls().empty()) std::this_thread::yield();

  runner.reset();

  EXPECT_TRUE(channel.WaitForEnds(1));
  stager.held_done(absl::OkStatus());
  EXPECT_EQ(stager.Calls(), "stage1 ");
}

TEST_F(AgentRunnerTest, ACoordinatorThatSendsTooFastIsHungUpOn) {
  std::promise<void> busy;
  std::promise<void> go;
  class Blocking final : public PlanStager {
   public:
    Blocking(std::promise<void>* busy, std::promise<void>* go) : busy_(busy), go_(go) {}
    void StagePlan(const Prepare&, std::function<void(absl::Status)>) override {
      busy_->set_value();
      go_->get_future().wait();
    }
    void Activate(const EpochKey&) override {}
    void Retire(const EpochKey&, std::function<void()>) override {}
    void ShortenRetire(const EpochKey&, Duration) override {}
    void Drop(const EpochKey&) override {}
    void UseTracing(const TraceSettings&) override {}
    Heartbeat MakeHeartbeat() const override { return {}; }
    bool IsInUse() const override { return false; }

   private:
    std::promise<void>* busy_;
    std::promise<void>* go_;
  } blocking(&busy, &go);
  AgentOptions options;
  options.worker_id = "w";
  options.incarnation = kMe;
  runner = std::make_unique<AgentRunner>(
      options, AgentRunner::Parts{&channel, &blocking, &clock_, &rng_, &logger_},
      [](absl::Status) {});
  Connect();
  channel.Say(PrepareFirst());
  busy.get_future().wait();

  for (int i = 0; i < 3000; ++i) channel.Say(Retire{"demo", Epoch{99}});
  go.set_value();

  EXPECT_TRUE(channel.WaitForDials(2));
  EXPECT_EQ(ReasonOf(runner->View().last_stream_end), Reason::kNoCredits);
}

}  // namespace
}  // namespace switchyard
