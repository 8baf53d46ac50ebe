#include "coordinator/driver.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/placement/registry.h"
#include "coordinator/recovery.h"
#include "coordinator/serial_executor.h"
#include "coordinator/store/state_store.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status Stopped() {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost,
                   "the coordinator is shutting down; try again");
}

absl::Status QueueFull() {
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                   "the coordinator has too much to do; try again later");
}

// Events on their way to the driver thread. Outlives the driver where a model load does.
class Inbox {
 public:
  explicit Inbox(std::size_t max) : max_(max) {}

  // What the world asks for; refused when there is too much of it.
  absl::Status Ask(Event event) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return Stopped();
    if (events_.size() >= max_) return QueueFull();
    events_.push_back(std::move(event));
    changed_.notify_one();
    return absl::OkStatus();
  }
  // What must not get lost, and is bounded by what was asked for.
  void Tell(Event event) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    events_.push_back(std::move(event));
    changed_.notify_one();
  }
  // Waits for events at most `timeout`. Nothing once stopped.
  std::deque<Event> TakeAll(Duration timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return stopped_ || !events_.empty(); });
    return std::exchange(events_, {});
  }
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    events_.clear();
    changed_.notify_one();
  }
  [[nodiscard]] bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

 private:
  const std::size_t max_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool stopped_ = false;
};

// Sinks by id. A sink is called under a lock of its own, so that Remove can wait for a call that
// is running; the lock may be taken again by the same thread, so that a sink may end its stream
// from within a call.
template <typename Id, typename Sink>
class SinkTable {
 public:
  void Add(Id id, Sink* sink) {
    const std::lock_guard lock(mutex_);
    slots_[id] = std::make_shared<Slot>(sink);
  }
  void Remove(Id id) {
    std::shared_ptr<Slot> slot;
    {
      const std::lock_guard lock(mutex_);
      const auto it = slots_.find(id);
      if (it == slots_.end()) return;
      slot = std::move(it->second);
      slots_.erase(it);
    }
    const std::lock_guard lock(slot->mutex);
    slot->sink = nullptr;
  }
  template <typename Call>
  void Use(Id id, Call call) {
    std::shared_ptr<Slot> slot;
    {
      const std::lock_guard lock(mutex_);
      const auto it = slots_.find(id);
      if (it == slots_.end()) return;
      slot = it->second;
    }
    const std::lock_guard lock(slot->mutex);
    if (slot->sink != nullptr) call(*slot->sink);
  }
  // Calls each sink a last time; afterwards the table is empty.
  template <typename Call>
  void EndAll(Call call) {
    std::vector<Id> ids;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, slot] : slots_) ids.push_back(id);
    }
    for (const Id id : ids) {
      Use(id, call);
      Remove(id);
    }
  }

 private:
  struct Slot {
    explicit Slot(Sink* s) : sink(s) {}
    std::recursive_mutex mutex;
    Sink* sink;
  };
  std::mutex mutex_;
  std::map<Id, std::shared_ptr<Slot>> slots_;
};

// Callbacks by request, each taken once.
template <typename Callback>
class CallbackTable {
 public:
  void Add(RequestId id, Callback callback) {
    const std::lock_guard lock(mutex_);
    waiting_[id] = std::move(callback);
  }
  // Empty when it was taken before.
  Callback Take(RequestId id) {
    const std::lock_guard lock(mutex_);
    const auto it = waiting_.find(id);
    if (it == waiting_.end()) return nullptr;
    Callback callback = std::move(it->second);
    waiting_.erase(it);
    return callback;
  }
  template <typename Result>
  void Answer(RequestId id, Result&& result) {
    if (Callback callback = Take(id)) callback(std::forward<Result>(result));
  }
  void AnswerAll(const absl::Status& status) {
    std::map<RequestId, Callback> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(waiting_);
    }
    for (auto& [id, callback] : all) callback(status);
  }

 private:
  std::mutex mutex_;
  std::map<RequestId, Callback> waiting_;
};

}  // namespace

class Driver::Impl {
 public:
  Impl(DriverOptions options, Parts parts, std::unique_ptr<PlacementPolicy> placement,
       std::vector<RecoveredDeployment> stored)
      : options_(std::move(options)),
        store_(std::move(parts.store)),
        load_model_(std::move(parts.load_model)),
        clock_(parts.clock),
        logger_(parts.logger),
        once_(parts.once == nullptr ? &own_once_ : parts.once),
        placement_(std::move(placement)),
        coordinator_(options_.coordinator, placement_.get(), parts.rng, std::move(stored),
                     parts.clock->Now()),
        inbox_(std::make_shared<Inbox>(options_.queue_max)),
        thread_([this] { Loop(); }) {}

  absl::StatusOr<StreamId> OpenWorkerStream(WorkerStreamSink* sink) {
    const StreamId id{NextId()};
    streams_.Add(id, sink);
    const absl::Status asked = inbox_->Ask(StreamOpened{id});
    if (asked.ok()) return id;
    streams_.Remove(id);
    return asked;
  }
  absl::Status OnWorkerMessage(StreamId stream, WorkerMessage message) {
    return inbox_->Ask(StreamMessage{stream, std::move(message)});
  }
  void OnWorkerStreamClosed(StreamId stream) {
    inbox_->Tell(StreamClosed{stream});
    streams_.Remove(stream);
  }
  void ApplyDeployment(DeploymentSpec spec, bool dry_run, ApplyCallback done) {
    Request(applies_, std::move(done), [&](RequestId id) {
      return ApplyRequested{id, std::move(spec), dry_run};
    });
  }
  void OpenSession(OpenSessionRequest order, SessionCallback done) {
    Request(opens_, std::move(done), [&](RequestId id) {
      return SessionRequested{id, std::move(order)};
    });
  }
  void CloseSession(SessionId session, StatusCallback done) {
    Request(ends_, std::move(done), [&](RequestId id) { return SessionEnded{id, session}; });
  }
  absl::StatusOr<WatchId> Watch(WatchRequest order, PlanUpdateSink* sink) {
    const WatchId id{NextId()};
    watches_.Add(id, sink);
    const absl::Status asked = inbox_->Ask(WatchStarted{id, std::move(order)});
    if (asked.ok()) return id;
    watches_.Remove(id);
    return asked;
  }
  void StopWatch(WatchId watch) {
    inbox_->Tell(WatchStopped{watch});
    watches_.Remove(watch);
  }
  CoordinatorView View() const {
    const std::lock_guard lock(coordinator_mutex_);
    return coordinator_.View(clock_->Now());
  }

  bool Shutdown(Duration deadline) {
    const std::lock_guard lock(shutdown_mutex_);
    inbox_->Stop();
    if (thread_.joinable()) thread_.join();
    streams_.EndAll([](WorkerStreamSink& sink) { sink.Close(Stopped()); });
    watches_.EndAll([](PlanUpdateSink& sink) { sink.OnClosed(Stopped()); });
    applies_.AnswerAll(Stopped());
    opens_.AnswerAll(Stopped());
    ends_.AnswerAll(Stopped());
    const bool loaded = loader_.Stop(SerialExecutor::Pending::kDrop, deadline);
    return writer_.Stop(SerialExecutor::Pending::kFinish, deadline) && loaded;
  }

 private:
  std::uint64_t NextId() { return last_id_.fetch_add(1) + 1; }

  template <typename Callback, typename MakeEvent>
  void Request(CallbackTable<Callback>& table, Callback done, MakeEvent make) {
    const RequestId id{NextId()};
    table.Add(id, std::move(done));
    const absl::Status asked = inbox_->Ask(make(id));
    if (!asked.ok()) table.Answer(id, asked);
  }

  void Loop() {
    TimePoint next_tick = clock_->Now();
    while (!inbox_->stopped()) {
      for (const Event& event : inbox_->TakeAll(options_.tick)) Step(event);
      if (clock_->Now() < next_tick) continue;
      Step(Tick{});
      next_tick = clock_->Now() + options_.tick;
    }
  }
  void Step(const Event& event) {
    std::vector<Effect> effects;
    {
      const std::lock_guard lock(coordinator_mutex_);
      effects = coordinator_.Step(event, clock_->Now());
    }
    for (Effect& effect : effects) {
      std::visit([this](auto& e) { Perform(e); }, effect);
    }
  }

  void Perform(const SendMessage& effect) {
    streams_.Use(effect.stream, [&](WorkerStreamSink& sink) { sink.Send(effect.message); });
  }
  void Perform(const CloseStream& effect) {
    streams_.Use(effect.stream, [&](WorkerStreamSink& sink) { sink.Close(effect.why); });
    streams_.Remove(effect.stream);
  }
  void Perform(const LoadModel& effect) {
    loader_.Run([inbox = inbox_, load = load_model_, effect] {
      inbox->Tell(ModelLoaded{effect.request, load(effect.checkpoint)});
    });
  }
  void Perform(WriteStore& effect) {
    writer_.Run([inbox = inbox_, store = store_, change = std::move(effect)] {
      inbox->Tell(StoreWritten{change.write, store->Write(change.change)});
    });
  }
  void Perform(AnswerApply& effect) { applies_.Answer(effect.request, std::move(effect.result)); }
  void Perform(AnswerSession& effect) { opens_.Answer(effect.request, std::move(effect.result)); }
  void Perform(const AnswerEnd& effect) { ends_.Answer(effect.request, absl::OkStatus()); }
  void Perform(const SendPlanUpdate& effect) {
    watches_.Use(effect.watch, [&](PlanUpdateSink& sink) { sink.OnNews(effect.news); });
  }
  void Perform(const CloseWatch& effect) {
    watches_.Use(effect.watch, [&](PlanUpdateSink& sink) { sink.OnClosed(effect.why); });
    watches_.Remove(effect.watch);
  }
  void Perform(const Report& effect) {
    if (!effect.once.empty() && !once_->First(effect.once)) return;
    logger_->Write(effect.level, effect.text);
  }

  const DriverOptions options_;
  const std::shared_ptr<StateStore> store_;  // a write may outlive the driver
  const ModelLoader load_model_;
  Clock* const clock_;
  Logger* const logger_;
  OnceSet own_once_;
  OnceSet* const once_;
  const std::unique_ptr<PlacementPolicy> placement_;

  mutable std::mutex coordinator_mutex_;
  Coordinator coordinator_;  // guarded by coordinator_mutex_

  const std::shared_ptr<Inbox> inbox_;
  SinkTable<StreamId, WorkerStreamSink> streams_;
  SinkTable<WatchId, PlanUpdateSink> watches_;
  CallbackTable<ApplyCallback> applies_;
  CallbackTable<SessionCallback> opens_;
  CallbackTable<StatusCallback> ends_;
  std::atomic<std::uint64_t> last_id_{0};
  SerialExecutor writer_;
  SerialExecutor loader_;
  std::mutex shutdown_mutex_;
  std::thread thread_;  // last: it uses all of the above
};

absl::StatusOr<std::unique_ptr<Driver>> Driver::Create(DriverOptions options, Parts parts) {
  SY_ASSIGN_OR_RETURN(std::unique_ptr<PlacementPolicy> placement,
                      MakePlacementPolicy(options.placement));
  SY_ASSIGN_OR_RETURN(const std::vector<StoredDeployment> stored, parts.store->Load());
  SY_ASSIGN_OR_RETURN(std::vector<RecoveredDeployment> recovered, Recover(stored));
  for (const RecoveredDeployment& one : recovered) {
    if (one.older.empty()) continue;
    parts.logger->Write(
        LogLevel::kWarn,
        absl::StrFormat("deployment %s: its plan of epoch %d was written by an earlier version; it "
                        "is planned anew when its workers are there",
                        one.record.spec.name, one.older.back().value));
  }
  return std::unique_ptr<Driver>(new Driver(std::make_unique<Impl>(
      std::move(options), std::move(parts), std::move(placement), std::move(recovered))));
}

Driver::Driver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Driver::~Driver() { Shutdown(std::chrono::seconds(1)); }

absl::StatusOr<StreamId> Driver::OpenWorkerStream(WorkerStreamSink* sink) {
  return impl_->OpenWorkerStream(sink);
}
absl::Status Driver::OnWorkerMessage(StreamId stream, WorkerMessage message) {
  return impl_->OnWorkerMessage(stream, std::move(message));
}
void Driver::OnWorkerStreamClosed(StreamId stream) { impl_->OnWorkerStreamClosed(stream); }
void Driver::ApplyDeployment(DeploymentSpec spec, bool dry_run, ApplyCallback done) {
  impl_->ApplyDeployment(std::move(spec), dry_run, std::move(done));
}
void Driver::OpenSession(OpenSessionRequest order, SessionCallback done) {
  impl_->OpenSession(std::move(order), std::move(done));
}
void Driver::CloseSession(SessionId session, StatusCallback done) {
  impl_->CloseSession(session, std::move(done));
}
absl::StatusOr<WatchId> Driver::Watch(WatchRequest order, PlanUpdateSink* sink) {
  return impl_->Watch(std::move(order), sink);
}
void Driver::StopWatch(WatchId watch) { impl_->StopWatch(watch); }
CoordinatorView Driver::View() const { return impl_->View(); }
bool Driver::Shutdown(Duration deadline) { return impl_->Shutdown(deadline); }

}  // namespace switchyard
