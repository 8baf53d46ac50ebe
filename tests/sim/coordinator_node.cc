#include "tests/sim/coordinator_node.h"

#include <chrono>
#include <utility>

#include "coordinator/recovery.h"
#include "core/base/error.h"
#include "tests/sim/world.h"

namespace switchyard::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

CoordinatorNode::CoordinatorNode(World* world)
    : world_(world), id_(world->network.Add("coordinator")) {}

void CoordinatorNode::Start() {
  if (alive()) return;
  ++world_->stats.coordinator_starts;
  world_->network.Start(id_);
  world_->oracles.CoordinatorStarts(world_->now());
  auto recovered = Recover(*world_->disk.Load());
  if (!recovered.ok()) {
    world_->oracles.Fail("the store cannot be read: " + recovered.status().ToString());
    return;
  }
  world_->Trace("coordinator starts");
  coordinator_ = std::make_unique<Coordinator>(world_->coordinator_options, &placement_,
                                               &world_->rng, *std::move(recovered), world_->now());
  write_done_ = world_->now();
  Tick();
}

void CoordinatorNode::Crash(bool silent) {
  if (!alive()) return;
  world_->Trace("coordinator crashes%s", silent ? " with its machine" : "");
  while (!writing_.empty() && world_->Chance(0.5)) WriteFirst().IgnoreError();
  writing_.clear();
  world_->network.Crash(id_, silent);  // while the streams are still there
  coordinator_.reset();
  streams_.clear();
  watches_.clear();
  opens_.clear();
}

void CoordinatorNode::Pause(Duration for_how_long) {
  if (!alive()) return;
  world_->Trace("coordinator pauses");
  world_->network.Pause(id_, for_how_long);
  world_->oracles.CoordinatorStalled(world_->now() + for_how_long);
}

CoordinatorView CoordinatorNode::View() const {
  return alive() ? coordinator_->View(world_->now()) : CoordinatorView{};
}

void CoordinatorNode::Apply(const DeploymentSpec& spec) {
  if (alive()) Step(ApplyRequested{RequestId{++last_id_}, spec, false});
}

void CoordinatorNode::Delete(const std::string& deployment, bool at_once) {
  if (alive()) Step(DeleteRequested{RequestId{++last_id_}, deployment, at_once});
}

void CoordinatorNode::SetDuty(const std::string& worker, WorkerDuty duty, bool force) {
  if (alive()) Step(DutyRequested{RequestId{++last_id_}, worker, duty, force});
}

void CoordinatorNode::Tick() {
  Step(switchyard::Tick{});
  if (++ticks_ % 8 == 0) world_->oracles.CoordinatorShows(View());
  world_->network.AtNode(id_, milliseconds(50), [this] { Tick(); });
}

StreamId CoordinatorNode::OpenStream(const std::shared_ptr<Wire>& link,
                                     std::function<void(const CoordinatorMessage&)> receive) {
  const StreamId stream{++last_id_};
  streams_[stream] = {link, std::move(receive), std::nullopt, std::nullopt};
  link->on_down[1] = [this, stream](const absl::Status&) {
    Forget(stream);
    Step(StreamClosed{stream});
  };
  Step(StreamOpened{stream});
  return stream;
}

void CoordinatorNode::Hear(StreamId stream, const WorkerMessage& message) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  if (const auto* request = std::get_if<Register>(&message)) {
    it->second.request = *request;
  } else if (it->second.peer) {
    world_->oracles.CoordinatorHears(*it->second.peer, message);
  }
  Step(StreamMessage{stream, message});
}

void CoordinatorNode::Forget(StreamId stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  const std::optional<Oracles::Peer> peer = it->second.peer;
  streams_.erase(it);
  if (!peer) return;
  for (const auto& [other, entry] : streams_) {
    // It has dialled again already: what it said there counts.
    if (entry.peer && entry.peer->incarnation == peer->incarnation) return;
  }
  world_->oracles.CoordinatorEndsStream(*peer);
}

void CoordinatorNode::OpenSession(const OpenSessionRequest& order,
                                  std::function<void(const absl::StatusOr<SessionGrant>&)> answer) {
  const RequestId request{++last_id_};
  opens_[request] = std::move(answer);
  Step(SessionRequested{request, order});
}

void CoordinatorNode::CloseSession(SessionId session) {
  Step(SessionEnded{RequestId{++last_id_}, session});
}

WatchId CoordinatorNode::Watch(const std::shared_ptr<Wire>& link, const WatchRequest& order,
                               std::function<void(std::shared_ptr<const PlanUpdate>)> news) {
  const WatchId watch{++last_id_};
  watches_[watch] = {link, std::move(news)};
  link->on_down[1] = [this, watch](const absl::Status&) {
    watches_.erase(watch);
    Step(WatchStopped{watch});
  };
  Step(WatchStarted{watch, order});
  return watch;
}

void CoordinatorNode::Step(const Event& event) {
  if (!alive()) return;
  for (const Effect& effect : coordinator_->Step(event, world_->now())) {
    std::visit([this](const auto& e) { Perform(e); }, effect);
  }
}

void CoordinatorNode::Perform(const SendMessage& effect) {
  const auto it = streams_.find(effect.stream);
  if (it == streams_.end()) return;
  Stream& stream = it->second;
  if (std::holds_alternative<Registered>(effect.message) && stream.request) {
    stream.peer = {stream.request->worker_id, stream.request->incarnation};
    world_->oracles.CoordinatorHears(*stream.peer, *stream.request);
  }
  if (stream.peer) world_->oracles.CoordinatorSends(*stream.peer, effect.message);
  if (std::holds_alternative<Abort>(effect.message)) ++world_->stats.aborts;
  stream.link->Send(
      1, [receive = stream.receive, message = OnTheWay(effect.message)] { receive(message); });
}

// Now and then a message comes out of the wire other than it went in: a bug of a converter, say.
CoordinatorMessage CoordinatorNode::OnTheWay(const CoordinatorMessage& message) {
  CoordinatorMessage arrives = message;
  if (!world_->Chance(world_->weather.damage)) return arrives;
  if (auto* prepare = std::get_if<Prepare>(&arrives)) {
    auto& experts = prepare->plan.layers[world_->rng.Below(prepare->plan.layers.size())].experts;
    std::swap(experts.front().expert, experts.back().expert);
    ++world_->stats.faults;
  } else if (auto* commit = std::get_if<Commit>(&arrives)) {
    commit->hash.bytes[world_->rng.Below(32)] ^= 1;
    ++world_->stats.faults;
  }
  return arrives;
}

void CoordinatorNode::Perform(const switchyard::CloseStream& effect) {
  const auto it = streams_.find(effect.stream);
  if (it == streams_.end()) return;
  it->second.link->Close(1, effect.why);
  Forget(effect.stream);
}

void CoordinatorNode::Perform(const DialWorker& effect) {
  world_->network.AtNode(id_, Duration::zero(), [this, effect] {
    Step(WorkerDialed{effect.worker, effect.incarnation, effect.endpoint, absl::OkStatus()});
  });
}

void CoordinatorNode::Perform(const CheckModel& effect) {
  ModelFacts facts = world_->models.at(effect.checkpoint);
  facts.manifest = {};
  const Duration takes = world_->Between(microseconds(100), milliseconds(20));
  world_->network.AtNode(id_, takes, [this, request = effect.id, facts = std::move(facts)] {
    Step(ModelChecked{request, facts});
  });
}

// The load goes on, and its answer finds nobody.
void CoordinatorNode::Perform(const CancelLoad& /*effect*/) {}

void CoordinatorNode::Perform(const LoadModel& effect) {
  absl::StatusOr<ModelFacts> facts = world_->models.at(effect.checkpoint);
  const Duration takes = world_->Between(milliseconds(1), milliseconds(500));
  world_->network.AtNode(id_, takes, [this, request = effect.id, facts = std::move(facts)] {
    Step(ModelLoaded{request, facts});
  });
}

void CoordinatorNode::Perform(const WriteStore& effect) {
  const bool slow = world_->Chance(world_->weather.slow_disk);
  const Duration takes = slow ? world_->Between(milliseconds(10), milliseconds(800))
                              : world_->Between(microseconds(100), milliseconds(5));
  const bool bad = world_->Chance(world_->weather.bad_write);
  // What is reported as failed may be on disk all the same.
  const bool reaches_disk = !bad || world_->Chance(0.3);
  if (bad) ++world_->stats.faults;
  if (std::holds_alternative<MarkServing>(effect.change)) ++world_->stats.epochs_served;
  write_done_ = std::max(write_done_, world_->now()) + takes;
  writing_.push_back(effect.change);
  const std::uint64_t life = world_->network.node(id_).life;
  // The disk works on while the process is stopped.
  world_->scheduler.At(write_done_, [=, this] {
    if (world_->network.node(id_).life != life) return;  // Crash has decided about it.
    absl::Status status = absl::OkStatus();
    if (reaches_disk) status = WriteFirst();
    if (!reaches_disk) writing_.pop_front();
    if (bad) {
      status = MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk is full");
    }
    world_->network.AtNode(id_, Duration::zero(), [this, write = effect.write, status] {
      Step(StoreWritten{write, status});
    });
  });
}

absl::Status CoordinatorNode::WriteFirst() {
  const StoreWrite change = std::move(writing_.front());
  writing_.pop_front();
  absl::Status status = world_->disk.Write(change);
  if (status.ok()) world_->oracles.DiskTakes(change);
  return status;
}

void CoordinatorNode::Perform(const AnswerSession& effect) {
  const auto it = opens_.find(effect.id);
  if (it == opens_.end()) return;
  if (effect.result.ok()) world_->oracles.CoordinatorGrants(*effect.result);
  const auto answer = std::move(it->second);
  opens_.erase(it);
  answer(effect.result);
}

void CoordinatorNode::Perform(const SendPlanUpdate& effect) {
  world_->oracles.CoordinatorAnnounces(*effect.update);
  const auto it = watches_.find(effect.watch);
  if (it == watches_.end()) return;
  it->second.link->Send(1, [news = it->second.news, plan = effect.update] { news(plan); });
}

void CoordinatorNode::Perform(const CloseWatch& effect) {
  const auto it = watches_.find(effect.watch);
  if (it == watches_.end()) return;
  it->second.link->Close(1, effect.why);
  watches_.erase(it);
}

void CoordinatorNode::Perform(const Report& effect) {
  world_->Trace("coordinator: %s", effect.text);
}

}  // namespace switchyard::sim
