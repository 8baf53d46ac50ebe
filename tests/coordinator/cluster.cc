#include "tests/coordinator/cluster.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {

void Cluster::StopCoordinator() {
  coordinator_.reset();
  queue_.clear();
  held.clear();
  for (auto& [id, worker] : workers_) worker.stream = {};
}

void Cluster::StartCoordinator() {
  auto stored = store.Load();
  SY_ASSERT_OK(stored);
  auto recovered = Recover(*stored);
  SY_ASSERT_OK(recovered);
  coordinator_ =
      std::make_unique<Coordinator>(options_, &placement_, &rng_, *std::move(recovered), now);
}

FakeWorker& Cluster::Join(const std::string& id, std::int64_t weight_bytes_max,
                          const std::string& pool) {
  FakeWorker& worker = workers_[id];
  worker = FakeWorker{};
  worker.id = id;
  worker.incarnation = rng_.NextId<Incarnation>();
  worker.capabilities = testing::MakeCapabilities(weight_bytes_max);
  worker.pool = pool;
  Register(worker);
  return worker;
}

void Cluster::Register(FakeWorker& worker) {
  worker.stream = StreamId{++last_id_};
  worker.closed.reset();
  switchyard::Register request{
      worker.id, worker.incarnation, absl::StrCat(worker.id, ":1"), worker.capabilities, {}};
  request.pool = worker.pool;
  request.checks_opener = worker.checks_opener;
  for (const auto& [key, resident] : worker.resident) {
    request.resident.push_back(resident);
    if (resident.committed) {
      request.grant_keys.push_back({key.deployment, worker.grant_keys[key]});
    }
  }
  Step(StreamOpened{worker.stream});
  Step(StreamMessage{worker.stream, request});
}

void Cluster::BreakStream(const std::string& id) {
  const StreamId stream = std::exchange(worker(id).stream, StreamId{});
  Step(StreamClosed{stream});
}

void Cluster::Restart(const std::string& id) {
  FakeWorker& old = worker(id);
  if (old.stream.value != 0) BreakStream(id);
  old.incarnation = rng_.NextId<Incarnation>();
  old.resident.clear();
  old.grant_keys.clear();
  old.inbox.clear();
  Register(old);
}

void Cluster::Say(FakeWorker& worker, WorkerMessage message) {
  Step(StreamMessage{worker.stream, std::move(message)});
}

absl::StatusOr<DeploymentView> Cluster::Apply(const DeploymentSpec& spec, bool dry_run,
                                              bool hash_weights) {
  deployment_.reset();
  Step(ApplyRequested{RequestId{++last_id_}, spec, dry_run, hash_weights});
  if (!deployment_) return absl::InternalError("apply was not answered");
  return *deployment_;
}

absl::StatusOr<DeploymentView> Cluster::Rollback(std::uint64_t to_revision,
                                                 const std::string& name) {
  deployment_.reset();
  Step(RollbackRequested{RequestId{++last_id_}, name, to_revision});
  if (!deployment_) return absl::InternalError("rollback was not answered");
  return *deployment_;
}

absl::StatusOr<DeploymentView> Cluster::Delete(const std::string& name, bool at_once) {
  deployment_.reset();
  Step(DeleteRequested{RequestId{++last_id_}, name, at_once});
  if (!deployment_) return absl::InternalError("delete was not answered");
  return *deployment_;
}

absl::StatusOr<DutyView> Cluster::SetDuty(const std::string& worker, WorkerDuty duty, bool force) {
  duty_.reset();
  Step(DutyRequested{RequestId{++last_id_}, worker, duty, force});
  if (!duty_) return absl::InternalError("the duty was not answered");
  return *duty_;
}

absl::StatusOr<SessionGrant> Cluster::Open(const OpenSessionRequest& order, TenantRef tenant) {
  opened_.reset();
  Step(SessionRequested{RequestId{++last_id_}, order, std::move(tenant)});
  if (!opened_) return absl::InternalError("open was not answered");
  return *opened_;
}

absl::StatusOr<SessionGrant> Cluster::OpenDecode() {
  OpenSessionRequest order;
  order.model = "m";
  order.phase = Phase::kDecode;
  return Open(order);
}

WatchId Cluster::Watch(const WatchRequest& order, TenantRef tenant) {
  const WatchId watch{++last_id_};
  Step(WatchStarted{watch, order, "", std::move(tenant)});
  return watch;
}

void Cluster::Advance(Duration by, Duration every) {
  const TimePoint end = now + by;
  while (now < end) {
    now += every;
    for (auto& [id, worker] : workers_) {
      if (worker.heartbeats && worker.stream.value != 0) {
        if (worker.data_thread_turns) ++worker.heartbeat.progress;
        Say(worker, worker.heartbeat);
      }
    }
    Step(Tick{});
  }
}

void Cluster::Step(Event event) {
  queue_.push_back(std::move(event));
  if (running_) return;
  running_ = true;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const Event next = std::move(queue_[i]);
    for (const Effect& effect : coordinator_->Step(next, now, wall_time)) {
      std::visit([this](const auto& e) { Perform(e); }, effect);
    }
  }
  queue_.clear();
  running_ = false;
}

void Cluster::ReleaseWrites(bool hold_on) {
  hold_writes = false;
  for (const WriteStore& write : std::exchange(held, {})) Perform(write);
  hold_writes = hold_on;
  Step(Tick{});
}

void Cluster::Perform(const SendMessage& effect) {
  for (auto& [id, worker] : workers_) {
    if (worker.stream != effect.stream) continue;
    worker.inbox.push_back(effect.message);
    Answer(worker, effect.message);
  }
}

void Cluster::Answer(FakeWorker& worker, const CoordinatorMessage& message) {
  const auto say = [&](WorkerMessage reply) {
    queue_.push_back(StreamMessage{worker.stream, std::move(reply)});
  };
  const absl::Status refusal =
      MakeError(absl::StatusCode::kDataLoss, Reason::kWeightHash, "tensor x differs");
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    const EpochKey key{prepare->plan.deployment, prepare->plan.epoch};
    worker.grant_keys[key] = prepare->grant_keys;
    if (worker.prepares == Answers::kAck) {
      worker.resident[key] = {key.deployment, key.epoch, prepare->hash, false};
      say(PrepareAck{key.deployment, key.epoch, prepare->nonce, prepare->hash});
    } else if (worker.prepares == Answers::kNack) {
      say(PrepareNack{key.deployment, key.epoch, prepare->nonce, refusal});
    }
  } else if (const auto* commit = std::get_if<Commit>(&message)) {
    if (worker.commits == Answers::kAck) {
      worker.resident[{commit->deployment, commit->epoch}].committed = true;
      say(CommitAck{commit->deployment, commit->epoch, commit->hash});
    } else if (worker.commits == Answers::kNack) {
      say(CommitNack{commit->deployment, commit->epoch, refusal});
    }
  } else if (const auto* abort = std::get_if<Abort>(&message)) {
    worker.resident.erase({abort->deployment, abort->epoch});
  } else if (const auto* retire = std::get_if<Retire>(&message)) {
    if (!worker.acks_retire) return;
    worker.resident.erase({retire->deployment, retire->epoch});
    say(RetireAck{retire->deployment, retire->epoch});
  }
}

void Cluster::Perform(const CloseStream& effect) {
  for (auto& [id, worker] : workers_) {
    if (worker.stream != effect.stream) continue;
    worker.stream = {};
    worker.closed = effect.why;
  }
}

void Cluster::Perform(const DialWorker& effect) {
  if (hold_dials) {
    held_dials.push_back(effect);
    return;
  }
  const auto it = unreachable.find(effect.worker);
  queue_.push_back(WorkerDialed{effect.worker, effect.incarnation, effect.endpoint,
                                it == unreachable.end() ? absl::OkStatus() : it->second});
}

absl::StatusOr<ModelFacts> Cluster::FactsAt(const std::string& checkpoint) const {
  const auto it = models.find(checkpoint);
  if (it != models.end()) return it->second;
  return MakeError(absl::StatusCode::kNotFound, Reason::kCheckpoint,
                   "no checkpoint at " + checkpoint);
}

void Cluster::Perform(const CheckModel& effect) {
  absl::StatusOr<ModelFacts> facts = FactsAt(effect.checkpoint);
  if (facts.ok()) facts->manifest = {};
  queue_.push_back(ModelChecked{effect.id, std::move(facts)});
}

void Cluster::Perform(const CancelLoad& effect) { canceled_loads.push_back(effect.id); }

void Cluster::Perform(const LoadModel& effect) {
  if (hold_loads) {
    held_loads.push_back(effect);
    return;
  }
  queue_.push_back(ModelLoaded{effect.id, FactsAt(effect.checkpoint)});
}

void Cluster::Perform(const WriteStore& effect) {
  if (hold_writes) {
    held.push_back(effect);
    return;
  }
  const absl::Status status = write_status.ok() ? store.Write(effect.change) : write_status;
  if (status.ok()) written.push_back(effect.change);
  queue_.push_back(StoreWritten{effect.write, status});
}

void Cluster::Perform(const AnswerDeployment& effect) { deployment_ = effect.result; }
void Cluster::Perform(const AnswerSession& effect) { opened_ = effect.result; }
void Cluster::Perform(const SendPlanUpdate& effect) {
  news[effect.watch].push_back(*effect.update);
}
void Cluster::Perform(const CloseWatch& effect) { closed_watches[effect.watch] = effect.why; }

DeploymentView Cluster::Deployment(const std::string& name) {
  for (const DeploymentView& view : coordinator_->View(now).deployments) {
    if (view.spec.name == name) return view;
  }
  ADD_FAILURE() << "no deployment " << name;
  return {};
}

WorkerView Cluster::Worker(const std::string& id) {
  for (const WorkerView& view : coordinator_->View(now).workers) {
    if (view.id == id) return view;
  }
  ADD_FAILURE() << "no worker " << id;
  return {};
}

std::uint64_t Cluster::Serving(const std::string& name) {
  const DeploymentView view = Deployment(name);
  return view.state == DeploymentState::kServing ? view.serving->plan.epoch.value : 0;
}

std::string Cluster::ServingWorkers(const std::string& name) {
  const DeploymentView view = Deployment(name);
  if (view.serving == nullptr) return "";
  std::vector<std::string> ids;
  for (const PlanWorker& worker : view.serving->plan.workers) ids.push_back(worker.id);
  return absl::StrJoin(ids, " ");
}

}  // namespace switchyard
