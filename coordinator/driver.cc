#include "coordinator/driver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"

#include "coordinator/placement/registry.h"
#include "core/base/status_macros.h"
#include "core/base/wall_time.h"

namespace switchyard {

absl::StatusOr<std::unique_ptr<Driver>> Driver::Create(DriverOptions options, Parts parts) {
  SY_ASSIGN_OR_RETURN(std::unique_ptr<PlacementPolicy> placement,
                      MakePlacementPolicy(options.placement));
  // Read before any thread runs: a store that is damaged stops the start, with its remedy.
  SY_ASSIGN_OR_RETURN(const StoredState stored, parts.store->Load());
  SY_ASSIGN_OR_RETURN(RecoveredState recovered, Recover(stored));
  for (const RecoveredDeployment& one : recovered.deployments) {
    if (one.older.empty()) continue;
    parts.logger->Write(
        LogLevel::kWarn,
        absl::StrFormat("deployment %s: an earlier version wrote its plan of epoch %d; a new plan "
                        "is made when its workers have registered",
                        one.record.spec.name, one.older.back().value));
  }
  return std::unique_ptr<Driver>(
      new Driver(std::move(options), std::move(parts), std::move(placement), std::move(recovered)));
}

Driver::Driver(DriverOptions options, Parts parts, std::unique_ptr<PlacementPolicy> placement,
               RecoveredState stored)
    : options_(std::move(options)),
      store_(std::move(parts.store)),
      dial_(std::move(parts.dial)),
      clock_(parts.clock),
      logger_(parts.logger),
      once_(parts.once == nullptr ? &own_once_ : parts.once),
      placement_(std::move(placement)),
      coordinator_(options_.coordinator, placement_.get(), parts.rng, std::move(stored),
                   parts.clock->Now()),
      inbox_(std::make_shared<Inbox<Event>>(options_.queue_max)),
      reads_(std::move(parts.check_model), std::move(parts.load_model)),
      thread_([this] { Loop(); }) {}

Driver::~Driver() { Shutdown(std::chrono::seconds(1)); }

// The callback is in the table before the event is in the queue: the answer may be faster than the
// return of TryPush.
template <typename Callback, typename MakeEvent>
void Driver::SendRequest(CallbackTable<RequestId, Callback>& table, Callback done, MakeEvent make) {
  const RequestId id{NextId()};
  table.Add(id, std::move(done));
  const absl::Status pushed = inbox_->TryPush(make(id));
  if (!pushed.ok()) table.Answer(id, pushed);
}

// The sink is in the table before the event is in the queue, for the same reason.
template <typename Id, typename Sink, typename MakeEvent>
absl::StatusOr<Id> Driver::AddSink(SinkTable<Id, Sink>& table, Sink* sink, MakeEvent make) {
  const Id id{NextId()};
  table.Add(id, sink);
  const absl::Status pushed = inbox_->TryPush(make(id));
  if (pushed.ok()) return id;
  table.Remove(id);
  return pushed;
}

absl::StatusOr<StreamId> Driver::OpenWorkerStream(WorkerStreamSink* sink) {
  return AddSink(streams_, sink, [](StreamId id) { return StreamOpened{id}; });
}

// Refused when the queue is full. The caller then ends the stream, and the worker registers again:
// no message is lost silently.
absl::Status Driver::OnWorkerMessage(StreamId stream, WorkerMessage message,
                                     std::shared_ptr<const void> handled) {
  return inbox_->TryPush(StreamMessage{stream, std::move(message), std::move(handled)});
}

void Driver::OnWorkerStreamClosed(StreamId stream) {
  // Pushed even if the queue is full: a lost end would keep the worker alive until its lease ends.
  inbox_->Push(StreamClosed{stream});
  streams_.Remove(stream);
}

void Driver::ApplyDeployment(DeploymentSpec spec, bool dry_run, DeploymentCallback done,
                             bool hash_weights) {
  SendRequest(deployments_, std::move(done), [&](RequestId id) {
    return ApplyRequested{id, std::move(spec), dry_run, hash_weights};
  });
}

void Driver::RollbackDeployment(std::string deployment, std::uint64_t to_revision,
                                DeploymentCallback done) {
  SendRequest(deployments_, std::move(done), [&](RequestId id) {
    return RollbackRequested{id, std::move(deployment), to_revision};
  });
}

void Driver::DeleteDeployment(std::string deployment, bool now, DeploymentCallback done) {
  SendRequest(deployments_, std::move(done), [&](RequestId id) {
    return DeleteRequested{id, std::move(deployment), now};
  });
}

void Driver::SetDuty(std::string worker, WorkerDuty duty, bool force, DutyCallback done) {
  SendRequest(duties_, std::move(done), [&](RequestId id) {
    return DutyRequested{id, std::move(worker), duty, force};
  });
}

void Driver::OpenSession(OpenSessionRequest request, SessionCallback done, TenantRef tenant) {
  SendRequest(opens_, std::move(done), [&](RequestId id) {
    return SessionRequested{id, std::move(request), std::move(tenant)};
  });
}

// Answered also for a session that is not known: one without a watch may have been forgotten.
void Driver::CloseSession(SessionId session, StatusCallback done, std::string caller) {
  SendRequest(ends_, std::move(done), [&](RequestId id) {
    return SessionEnded{id, session, std::move(caller)};
  });
}

absl::StatusOr<WatchId> Driver::Watch(WatchRequest request, PlanUpdateSink* sink, std::string peer,
                                      TenantRef tenant) {
  return AddSink(watches_, sink, [&](WatchId id) {
    return WatchStarted{id, std::move(request), std::move(peer), std::move(tenant)};
  });
}

void Driver::StopWatch(WatchId watch) {
  // Pushed even if the queue is full, as the end of a stream is.
  inbox_->Push(WatchStopped{watch});
  watches_.Remove(watch);
}

CoordinatorView Driver::View() const {
  const MutexLock lock(coordinator_mutex_);
  return coordinator_.View(clock_->Now());
}

std::vector<JournalEntry> Driver::JournalAfter(std::uint64_t number) const {
  const MutexLock lock(coordinator_mutex_);
  return coordinator_.journal().After(number);
}

LoadView Driver::Load(const std::string& deployment, const LoadQuery& query) const {
  const MutexLock lock(coordinator_mutex_);
  return coordinator_.Load(deployment, query, clock_->Now());
}

std::vector<SessionView> Driver::Sessions() const {
  const MutexLock lock(coordinator_mutex_);
  return coordinator_.Sessions();
}

CoordinatorView Driver::WaitForView(absl::FunctionRef<bool(const CoordinatorView&)> done,
                                    Duration timeout) const {
  const auto until = std::chrono::steady_clock::now() + timeout;
  const MutexLock lock(coordinator_mutex_);
  CoordinatorView view = coordinator_.View(clock_->Now());
  while (!done(view) && stepped_.WaitUntil(coordinator_mutex_, until)) {
    view = coordinator_.View(clock_->Now());
  }
  return view;
}

bool Driver::Shutdown(Duration deadline) {
  const MutexLock lock(shutdown_mutex_);
  inbox_->Stop();
  // The driver thread ends first: from then on only this thread calls sinks and callbacks.
  if (thread_.joinable()) thread_.join();
  streams_.EndAll([](WorkerStreamSink& sink) { sink.Close(CoordinatorStopped()); });
  watches_.EndAll([](PlanUpdateSink& sink) { sink.OnClosed(CoordinatorStopped()); });
  deployments_.AnswerAll(CoordinatorStopped());
  duties_.AnswerAll(CoordinatorStopped());
  opens_.AnswerAll(CoordinatorStopped());
  ends_.AnswerAll(CoordinatorStopped());
  // A model load can be repeated; a write may be the one that a worker's COMMIT depends on.
  const bool read = reads_.Stop(deadline);
  return writer_.Stop(SerialExecutor::Pending::kFinish, deadline) && read;
}

void Driver::Loop() {
  TimePoint next_tick = clock_->Now();
  while (!inbox_->stopped()) {
    counters_->turns.fetch_add(1, std::memory_order_relaxed);
    // A caller may wait for what is due before the tick.
    const Duration wait = std::min(next_tick, due_) - clock_->Now();
    for (const Event& event : inbox_->TakeAll(std::clamp(wait, Duration{}, options_.tick))) {
      Step(event);
    }
    // Also under load: a queue that is never empty must not keep leases from ending.
    if (clock_->Now() < std::min(next_tick, due_)) continue;
    Step(Tick{});
    next_tick = clock_->Now() + options_.tick;
  }
}

void Driver::Step(const Event& event) {
  if (const auto* loaded = std::get_if<ModelLoaded>(&event)) reads_.Forget(loaded->id);
  std::vector<Effect> effects;
  {
    const MutexLock lock(coordinator_mutex_);
    effects = coordinator_.Step(event, clock_->Now(), ReadWallTime());
    due_ = coordinator_.NextDue();
  }
  // For WaitForView, before the effects: those may take a while, and the view has changed already.
  stepped_.NotifyAll();
  // Without the lock, since sinks and callbacks may call View.
  for (Effect& effect : effects) {
    std::visit([this](auto& e) { Perform(e); }, effect);
  }
}

void Driver::Perform(const SendMessage& effect) {
  streams_.Use(effect.stream, [&](WorkerStreamSink& sink) { sink.Send(effect.message); });
}

void Driver::Perform(const CloseStream& effect) {
  streams_.Use(effect.stream, [&](WorkerStreamSink& sink) { sink.Close(effect.why); });
  streams_.Remove(effect.stream);
}

void Driver::Perform(const DialWorker& effect) {
  // Shared: the answer may come after the driver's end.
  auto answer = [inbox = inbox_, effect](absl::Status status) {
    inbox->Push(
        WorkerDialed{effect.worker, effect.incarnation, effect.endpoint, std::move(status)});
  };
  if (dial_ == nullptr) {
    // In one process nobody can be out of reach.
    answer(absl::OkStatus());
  } else {
    dial_(effect, std::move(answer));
  }
}

void Driver::Perform(const CheckModel& effect) {
  reads_.Check(effect.checkpoint,
               [inbox = inbox_, id = effect.id](absl::StatusOr<ModelFacts> facts) {
                 inbox->Push(ModelChecked{id, std::move(facts)});
               });
}

void Driver::Perform(const LoadModel& effect) {
  const auto progress = [inbox = inbox_, id = effect.id](std::int64_t done, std::int64_t total) {
    // A full queue has more urgent things in it, and the next report makes up for this one.
    inbox->TryPush(ModelProgress{id, done, total}).IgnoreError();
  };
  const auto done = [inbox = inbox_, id = effect.id](absl::StatusOr<ModelFacts> facts) {
    inbox->Push(ModelLoaded{id, std::move(facts)});
  };
  reads_.Load(effect.id, effect.checkpoint, progress, done);
}

void Driver::Perform(const CancelLoad& effect) { reads_.Cancel(effect.id); }

// One thread for all writes, so that they reach the store in the order in which they were sent.
void Driver::Perform(WriteStore& effect) {
  writer_.Run([inbox = inbox_, store = store_, counters = counters_, change = std::move(effect)] {
    absl::Status written = store->Write(change.change);
    ++(written.ok() ? counters->store_writes : counters->store_writes_failed);
    inbox->Push(StoreWritten{change.write, std::move(written)});
  });
}

void Driver::Perform(AnswerDeployment& effect) {
  deployments_.Answer(effect.id, std::move(effect.result));
}

void Driver::Perform(AnswerDuty& effect) { duties_.Answer(effect.id, std::move(effect.result)); }

void Driver::Perform(AnswerSession& effect) { opens_.Answer(effect.id, std::move(effect.result)); }

void Driver::Perform(const AnswerEnd& effect) { ends_.Answer(effect.id, effect.result); }

void Driver::Perform(const SendPlanUpdate& effect) {
  watches_.Use(effect.watch, [&](PlanUpdateSink& sink) { sink.OnPlanUpdate(effect.update); });
}

void Driver::Perform(const CloseWatch& effect) {
  watches_.Use(effect.watch, [&](PlanUpdateSink& sink) { sink.OnClosed(effect.why); });
  watches_.Remove(effect.watch);
}

void Driver::Perform(const Report& effect) {
  // Once in the process and not in the coordinator: deployments repeat each other's warnings.
  if (!effect.once.empty() && !once_->First(effect.once)) return;
  logger_->Write(effect.level, effect.text, effect.fields);
}

}  // namespace switchyard
