#include "worker/agent/agent_runner.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "worker/agent/agent.h"

namespace switchyard {
namespace {

// Messages from the coordinator that may be queued. The protocol has a handful in flight for each
// deployment; a full queue means that the peer misbehaves.
constexpr std::size_t kInboxMax = 1024;
// Longest sleep. A simulated clock can advance without waking the thread, so it must look again.
constexpr Duration kSleepMax = std::chrono::milliseconds(50);

// Queue of events for the agent's thread. Shared with the stager's callbacks, so that a callback
// after the end of the runner still finds a queue.
class AgentInbox {
 public:
  // False if the queue is full. For messages from the coordinator, whose rate is not under our
  // control.
  bool Offer(AgentEvent event) {
    const MutexLock lock(mutex_);
    if (events_.size() >= kInboxMax) return false;
    events_.push_back(std::move(event));
    changed_.NotifyOne();
    return true;
  }
  // For events that must not be lost. They need no bound because each answers one of the agent's
  // own effects.
  void Push(AgentEvent event) {
    const MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    changed_.NotifyOne();
  }
  void Stop() {
    const MutexLock lock(mutex_);
    stopped_ = true;
    changed_.NotifyOne();
  }
  // All queued events; waits up to `timeout` for the first one. nullopt after Stop.
  std::optional<std::deque<AgentEvent>> TakeAll(Duration timeout) {
    const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
    const MutexLock lock(mutex_);
    while (!stopped_ && events_.empty() && changed_.WaitUntil(mutex_, deadline)) {
    }
    if (stopped_) return std::nullopt;
    return std::exchange(events_, {});
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<AgentEvent> events_ SY_GUARDED_BY(mutex_);
  bool stopped_ SY_GUARDED_BY(mutex_) = false;
};

// Turns the callbacks of one connection into events.
class DialSink final : public AgentStreamSink {
 public:
  DialSink(DialId dial, AgentInbox* inbox) : dial_(dial), inbox_(inbox) {}

  void OnUp() override { inbox_->Push(ChannelUp{dial_}); }
  void OnMessage(CoordinatorMessage message) override {
    if (overflown_ || inbox_->Offer(ChannelMessage{dial_, std::move(message)})) return;
    overflown_ = true;  // Later messages would follow a gap, so they must be discarded too.
    OnDown(MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                     "the coordinator sends messages faster than this worker can handle them"));
  }
  void OnDown(const absl::Status& why) override {
    if (!std::exchange(down_, true)) inbox_->Push(ChannelDown{dial_, why});
  }

 private:
  const DialId dial_;
  AgentInbox* const inbox_;
  bool overflown_ = false;
  bool down_ = false;
};

}  // namespace

class AgentRunner::Impl {
 public:
  Impl(AgentOptions options, Parts parts, std::function<void(absl::Status)> finished)
      : parts_(parts),
        finished_(std::move(finished)),
        incarnation_(options.incarnation),
        agent_(std::move(options), parts.rng, parts.clock->Now()),
        inbox_(std::make_shared<AgentInbox>()),
        thread_([this] { Loop(); }) {}

  ~Impl() {
    inbox_->Stop();
    thread_.join();
    stream_.reset();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Leave() { inbox_->Push(LeaveRequested{}); }

  AgentView View() const {
    const MutexLock lock(agent_mutex_);
    return {agent_.registered(), incarnation_, agent_.Resident(), agent_.last_stream_end()};
  }

 private:
  void Loop() {
    while (true) {
      const Duration sleep =
          std::clamp(NextDeadline() - parts_.clock->Now(), Duration::zero(), Duration(kSleepMax));
      const std::optional<std::deque<AgentEvent>> events = inbox_->TakeAll(sleep);
      if (!events) return;
      for (const AgentEvent& event : *events) Step(event);
      if (parts_.clock->Now() >= NextDeadline()) {
        Step(AgentTick{parts_.stager->MakeHeartbeat(), parts_.stager->IsInUse()});
      }
    }
  }
  TimePoint NextDeadline() const {
    const MutexLock lock(agent_mutex_);
    // A finished agent has none; the subtraction from it must not overflow.
    return std::min(agent_.NextDeadline(), parts_.clock->Now() + kSleepMax);
  }
  // The lock covers only the state machine. Effects run without it, because a stager may call back
  // from within the call and View must not wait for a slow one.
  void Step(const AgentEvent& event) {
    std::vector<AgentEffect> effects;
    {
      const MutexLock lock(agent_mutex_);
      effects = agent_.Step(event, parts_.clock->Now());
    }
    for (const AgentEffect& effect : effects) {
      std::visit([this](const auto& e) { Perform(e); }, effect);
    }
  }

  void Perform(const DialChannel& effect) {
    stream_.reset();  // It may still call its sink, so it goes first.
    sink_ = std::make_unique<DialSink>(effect.dial, inbox_.get());
    stream_ = parts_.channel->Open(sink_.get());
  }
  void Perform(const SendToCoordinator& effect) {
    if (stream_ != nullptr) stream_->Send(effect.message);
  }
  void Perform(const HangUpChannel& /*effect*/) { stream_.reset(); }
  void Perform(const StageEpoch& effect) {
    const EpochKey key{effect.prepare.plan.deployment, effect.prepare.plan.epoch};
    parts_.stager->StagePlan(effect.prepare, [inbox = inbox_, key](absl::Status status) {
      inbox->Push(EpochStaged{key, std::move(status)});
    });
  }
  void Perform(const ActivateEpoch& effect) { parts_.stager->Activate(effect.key); }
  void Perform(const RetireEpoch& effect) {
    parts_.stager->Retire(effect.key,
                          [inbox = inbox_, key = effect.key] { inbox->Push(EpochUnbound{key}); });
  }
  void Perform(const ShortenRetire& effect) {
    parts_.stager->ShortenRetire(effect.key, effect.within);
  }
  void Perform(const UseTracing& effect) { parts_.stager->UseTracing(effect.settings); }
  void Perform(const DropEpoch& effect) { parts_.stager->Drop(effect.key); }
  void Perform(const AgentFinished& effect) { finished_(effect.why); }
  void Perform(const AgentReport& effect) {
    parts_.logger->Write(effect.level, effect.text, effect.fields);
  }

  const Parts parts_;
  const std::function<void(absl::Status)> finished_;
  const Incarnation incarnation_;
  mutable Mutex agent_mutex_;
  Agent agent_ SY_GUARDED_BY(agent_mutex_);
  const std::shared_ptr<AgentInbox> inbox_;
  std::unique_ptr<DialSink> sink_;       // used only by the agent's thread
  std::unique_ptr<AgentStream> stream_;  // used only by the agent's thread; destroyed before sink_
  std::thread thread_;                   // last, because it uses every member above
};

AgentRunner::AgentRunner(AgentOptions options, Parts parts,
                         std::function<void(absl::Status)> finished)
    : impl_(std::make_unique<Impl>(std::move(options), parts, std::move(finished))) {}
AgentRunner::~AgentRunner() = default;

void AgentRunner::Leave() { impl_->Leave(); }
AgentView AgentRunner::View() const { return impl_->View(); }

}  // namespace switchyard
